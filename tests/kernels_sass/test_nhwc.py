"""Direct convolution in NHWC, kernels_sass/winograd/nhwc.sass, on the CPU device."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

import turingas
from kernels_sass import winograd
from tests.kernels_sass import harness
from tests.kernels_sass.harness import Shape
from turingas.check.command import look
from turingas.emulate import Device

SOURCE = Path(winograd.__file__).with_name("nhwc.sass")


@functools.cache
def cubin(arch, channels):
    return turingas.assemble(SOURCE.read_text(), arch, {"CHANNELS": channels}, filename=str(SOURCE))


@pytest.mark.parametrize(("arch", "s"), [
    ("sm_90", Shape(1, 3, 9, 7, 5, bias=True, residual=True, relu=True)),
    ("sm_90", Shape(2, 3, 20, 40, 70, bias=True, relu=True)),              # several blocks, and filters beyond the last
    ("sm_86", Shape(1, 1, 17, 33, 64, pad=0, residual=True)),
    ("sm_89", Shape(1, 2, 5, 5, 33)),
    ("sm_90a", Shape(1, 4, 18, 34, 100, bias=True)),
    ("sm_80", Shape(1, 3, 1, 1, 1)),
])  # fmt: skip
def test_against_float64(arch, s):
    random, module = np.random.default_rng(0), Device(arch).load(cubin(arch, s.c))
    x, w = (random.standard_normal(size, np.float32) for size in ((s.n, s.c, s.h, s.w), (s.k, s.c, 3, 3)))
    bias = random.standard_normal(s.k, np.float32) if s.bias else None
    residual = random.standard_normal((s.n, s.k, s.p, s.q), np.float32) if s.residual else None
    wanted = harness.exact(x, w, s, bias, residual)
    there_x, strides_x = harness.stored(x, "NCHW", "NHWC")
    y, strides_y = harness.stored(np.full((s.n, s.k, s.p, s.q), np.nan, np.float32), "NCHW", "NHWC")
    added = 0 if residual is None else harness.stored(residual, "NCHW", "NHWC")[0]
    groups, rows, columns = -(-s.k // 64), -(-s.p // 16), -(-s.q // 32)
    u = np.full(groups * 64 * 9 * s.c, np.nan, np.float32)
    args = [w, u, s.c, s.k, 9 * s.c, 9, 3, 1]
    reports = [module.launch("filter_transform", groups, 256, args, strict=True, races=True)]
    assert np.isfinite(u).all()
    tiles = s.n * rows * columns
    args = [there_x, u, y, 0 if bias is None else bias, added, tiles, s.n, s.c, s.h, s.w, s.k, s.p, s.q, s.pad]
    args += [rows, columns, 1, *strides_x, *strides_y, int(s.relu), 1, 1]
    reports.append(module.launch("nhwc", (tiles, groups), 128, args, strict=True, races=True))
    assert not [fault for one in reports for fault in (*one.hazards, *one.races)]
    off = y.transpose(0, 3, 1, 2) - wanted
    assert np.linalg.norm(off) < 1e-6 * np.linalg.norm(wanted)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_the_linter_finds_no_error(channels):
    found = look(cubin("sm_90", channels), str(SOURCE))
    assert not [one for one in found.findings if one.severity != "note"]

"""Layers by HGMMA: float64, how far they are off it, and what the linter finds in their kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import turingas
from kernels_sass.conv import Conv2d
from kernels_sass.conv.methods.hgmma import PRECISIONS
from loader.reference.problem import arrange, relative_error

BOUNDS = {"fp32": 1e-6, "tf32": 5e-4, "fp16": 3e-4, "bf16": 2.5e-3}


def rounded(x, precision):
    """As arrays of the precision."""
    if precision == "bf16":
        bits = x.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return x.astype(np.float16 if precision == "fp16" else np.float32)


def wide(x):
    """In float64."""
    return (x.astype(np.uint32) << 16).view(np.float32).astype("f8") if x.dtype == np.uint16 else x.astype("f8")


def truth(x, w, stride, padding, dilation):
    """N, C, H, W by K, C, R, S in float64."""
    x = np.pad(x, ((0, 0), (0, 0), *((one, one) for one in padding)))
    n, _, h, width = x.shape
    k, _, r, s = w.shape
    p, q = ((size - reach * (of - 1) - 1) // step + 1 for size, of, step, reach in
            zip((h, width), (r, s), stride, dilation))  # fmt: skip
    y = np.zeros((n, k, p, q))
    for i in range(r):
        for j in range(s):
            rows, columns = (slice(at * reach, at * reach + (size - 1) * step + 1, step)
                             for at, reach, size, step in zip((i, j), dilation, (p, q), stride))  # fmt: skip
            y += np.einsum("nchw,kc->nkhw", x[:, :, rows, columns], w[:, :, i, j])
    return y


def off(n, c, h, w, k, r, s, precision, layout="NHWC", stride=1, padding=0, dilation=1, more=True, seed=0, **options):
    """The relative L2 error of a layer; ``more``: with bias, residual (which y is written over) and ReLU."""
    random = np.random.default_rng(seed)
    x, weight = (rounded(random.standard_normal(one, np.float32), precision) for one in ((n, c, h, w), (k, c, r, s)))
    pairs = [one if isinstance(one, tuple) else (one, one) for one in (stride, padding, dilation)]
    exact = truth(wide(x), wide(weight), *pairs)
    bias = random.standard_normal(k).astype(np.float32) if more else None
    out = np.zeros(exact.shape, x.dtype)
    if more:
        out = rounded(random.standard_normal(exact.shape, np.float32), precision)
        exact = np.maximum(exact + bias[:, None, None] + wide(out), 0)
    given, out = arrange(x, "NCHW", layout), arrange(out, "NCHW", layout)
    options = {"stride": stride, "dilation": dilation, "precision": precision, **options}
    with Conv2d(weight, bias, padding, "relu" if more else None, layout, "cpu", **options) as layer:
        y = layer(given, out if more else None, out=out)
    assert y is out
    return relative_error(wide(arrange(y, layout, "NCHW")), exact)


def only(monkeypatch, kind):
    """Tilings of one kind wherever they are possible."""
    for name, one in PRECISIONS.items():
        slow = [way if way.kind == kind else replace(way, stage=99, column=99) for way in one.ways]
        monkeypatch.setitem(PRECISIONS, name, replace(one, ways=tuple(slow)))


def lint(cubin):
    """Findings but for notes on occupancy, on registers and waits of roles that never meet, and on a single cycle that
    results lose."""
    notes = "occupancy", "uninitialised", "nothing-pending", "unused-name", "shared-conflict"
    found = [str(one) for one in turingas.lint(cubin) if one.kind not in notes or str(one.severity) != "note"]
    return found if len(found) != 1 or ": 1 cycle lost" not in found[0] else []

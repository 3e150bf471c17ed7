"""Textures and surfaces of a card against those of the CPU device.

What is read and what surfaces do must agree bit for bit. TURINGAS_RECORD_TEXTURES names a file for the result; beside
it, with .npz behind the name, goes what the card gave where the guide leaves something open (``textures.probes``,
``textures.questions``), of which tests/emulate/textures_sm90.npz has some.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

import loader
from loader import cuda
from loader.bench import results as kept
from loader.cuda import Buffer, CudaError
from tests.emulate import textures
from tests.gpu.keep import keep

pytestmark = pytest.mark.gpu
SURFACES = 300


class Both:
    """The kernels on the card and on the CPU device."""

    def __init__(self, gpu: cuda.Device) -> None:
        self.place = str(gpu)
        made = textures.cubin(gpu.arch)
        self.gpu, self.cpu = loader.load(made, self.place), loader.load(made, "cpu")

    def read(self, case: textures.Case) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        options = case.options()
        linear = case.kind == "linear"
        whole = Buffer.of(case.array, self.place) if linear else case.array
        there = loader.texture(whole, **options, device=self.place)
        got = case.run(self.gpu, there, lambda a: Buffer.of(a, self.place), lambda b: b.numpy())
        return got, case.run(self.cpu, loader.texture(case.array, **options))


@pytest.fixture(scope="module")
def both(gpu: cuda.Device) -> Both:
    return Both(gpu)


def record(found: dict[str, Any], raw: dict[str, np.ndarray[Any, Any]] | None = None) -> None:
    """Into the file that the environment names, beside what other tests have put there."""
    keep("TURINGAS_RECORD_TEXTURES", lambda: kept.facts("textures", cuda.device(0), []), found, raw)


@pytest.mark.parametrize("filter", ["point", "linear"])
def test_textures(both: Both, filter: str) -> None:
    words = equal = 0
    wrong: list[str] = []
    kinds: collections.Counter[str] = collections.Counter()
    for case in textures.random_cases(filter):
        try:
            got, ours = both.read(case)
        except CudaError as error:  # the others may tell more
            wrong.append(f"{case}: {error}")
            continue
        good = got == ours
        words, equal = words + good.size, equal + int(good.sum())
        if not good.all():
            lane, component = np.argwhere(~good)[0]
            kinds[f"{case.reader} {case.array.dtype} {case.read} normalized={case.normalized}"] += 1
            wrong.append(
                f"{case}: {(~good).sum()} words; place {case.places[:, lane].tolist()}, layer {case.layers[lane]}, "
                f"component {component}: {got[lane, component]:#x}, ours {ours[lane, component]:#x}"
            )
    record({filter: {"cases": textures.RANDOM, "words": words, "equal": equal, "wrong": len(wrong), "first": wrong[:20],
                     "kinds": dict(kinds)}})  # fmt: skip
    assert not wrong, wrong[:3]


def test_surfaces(both: Both) -> None:
    rng = np.random.default_rng(2)
    wrong: list[str] = []
    for _ in range(SURFACES):
        case = textures.random_surface(rng)
        try:
            there = loader.surface(case.array, **case.options(), device=both.place)
        except CudaError as error:
            wrong.append(f"{case}: {error}")
            continue
        here = loader.surface(case.array, **case.options())
        places, data = Buffer.of(case.places, both.place), Buffer.of(case.data, both.place)
        out, ours = Buffer.of(np.zeros_like(case.data), both.place), np.zeros_like(case.data)
        name, size = case.name(), textures.COUNT
        both.gpu.kernel("read_" + name).launch(3, 32, there, places, out, size)
        both.cpu.kernel("read_" + name).launch(3, 32, here, case.places, ours, size)
        both.gpu.kernel("write_" + name).launch(3, 32, there, places, data, size)
        both.cpu.kernel("write_" + name).launch(3, 32, here, case.places, case.data, size)
        read, written = int((out.numpy() != ours).sum()), there.numpy().tobytes() != here.numpy().tobytes()
        if read or written:
            wrong.append(f"{case}: {read} bytes read differ, written: {written}")
    record({"surfaces": {"cases": SURFACES, "wrong": len(wrong), "first": wrong[:20]}})
    assert not wrong, wrong[:3]


def test_open_questions(both: Both) -> None:
    """What the card does where the guide is silent is recorded, and is what the CPU device does."""
    raw: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    for name, case in {**textures.probes(), **textures.questions()}.items():
        try:
            got, ours = both.read(case)
        except CudaError as error:
            counts[name] = {"error": str(error)}
            continue
        raw |= {f"{name}.card": got, f"{name}.ours": ours, f"{name}.places": case.places, f"{name}.array": case.array}
        counts[name] = {"words": got.size, "equal": int((got == ours).sum())}
        assert got.shape == ours.shape and got.any(), name
    record({"open": counts}, raw)
    assert all(one.get("words") == one.get("equal") for one in counts.values()), counts

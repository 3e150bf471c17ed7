"""For the day a Blackwell card is there: what its driver wants of a cubin, and the test kernels. None of this has run.

On any other card all of it is skipped, and the reason says so.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import loader
from kernels_sass.learn import measure
from loader import capsules, cuda
from loader.cuda import Buffer
from tests.emulate import test_tmem, test_utcmma, test_work
from tests.kernels.cases import CASES, Case, difference
from turingas.emulate import launch

pytestmark = pytest.mark.gpu
ARCHS = ("sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
HERE = [case for case in CASES if "sm_100" in case.archs or "sm_90" in case.archs]


def run(cubin: object, kernel: str | None, grid: object, block: object, args: list[object], shared: int = 0) -> None:
    """Launch on copies of the arrays, which come back in place."""
    sent = [Buffer.of(x) if isinstance(x, np.ndarray) else x for x in args]
    with loader.load(cubin, "cuda:0") as module:  # type: ignore[call-overload]
        module.kernel(kernel).launch(grid, block, *sent, shared=shared)
        module.synchronize()
        for here, there in zip(args, sent):
            if isinstance(here, np.ndarray):
                there.copy_to(here)
                there.free()


def test_sections_that_the_driver_wants(gpu: cuda.Device, tmp_path: Path) -> None:
    """Cubins without a capsule run, with the code that they have; docs/cubin.md says that nobody knows."""
    assert capsules.main(["--device", "cuda:0", "-o", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())["without"]
    assert found["nothing"] == "runs" and found.get(capsules.OWN, "runs") == "runs", found
    assert found[capsules.BARE] == "runs the changed code", found


def test_a_cubin_of_ours(gpu: cuda.Device) -> None:
    x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    run(measure.built("01_copy", gpu.arch, {}), None, 8, 128, [x, y])
    assert (x == y).all()


@pytest.mark.parametrize("case", HERE, ids=lambda case: case.name)
def test_agreement(case: Case, gpu: cuda.Device) -> None:
    """numpy, the card and the CPU device."""
    cubin = case.cubin(gpu.arch)
    on_gpu, truth = case.build()
    run(cubin, case.kernel, case.grid, case.block, on_gpu, case.shared)
    for found, expected in zip(on_gpu, truth):
        if expected is not None:
            assert not (problem := difference(found, expected, case.near)), f"the GPU and numpy: {problem}"
    on_cpu, _ = case.build()
    launch(cubin, case.kernel, case.grid, case.block, on_cpu, shared=case.shared)
    for there, here in zip(on_gpu, on_cpu):
        if isinstance(there, np.ndarray):
            assert not (problem := difference(here, there, case.devices, one_nan=False)), f"the CPU device: {problem}"


def test_work_is_taken_over(gpu: cuda.Device) -> None:
    """Each block's work is done once, and with many more blocks than there is room for, some by another."""
    blocks = 20_000
    for kernel, cluster in (("alone", 1), ("pairs", 2)):
        count, by = np.zeros(blocks, np.uint32), np.zeros(blocks, np.uint32)
        run(test_work.cubin(f"{gpu.arch}a"), kernel, blocks, 64, [count, by])
        assert (count == 1).all() and (by // cluster != np.arange(blocks) // cluster).any()


def test_zeros(gpu: cuda.Device) -> None:
    out, wanted = np.zeros(512, np.uint32), np.arange(512) + 1
    run(test_work.cubin(f"{gpu.arch}a"), "zeros", 1, 96, [out, np.uint64(264), np.uint32(40)])
    wanted[10:76] = 0
    assert (out == wanted).all()


@pytest.fixture
def on_card(gpu: cuda.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests would launch on the CPU device runs on the card."""
    if gpu.arch != "sm_100":
        pytest.skip(f"these are compiled for sm_100a; {gpu} is {gpu.arch}")

    def launched(cubin: bytes, kernel: str, grid: object, block: object, args: list[object], **options: object) -> None:
        run(cubin, kernel, grid, block, args)

    for module in (test_tmem, test_utcmma):
        monkeypatch.setattr(module, "launch", launched)


def test_loads_and_stores_of_tensor_memory(on_card: None) -> None:
    test_tmem.test_loads()
    test_tmem.test_stores()


def test_copies_to_tensor_memory(on_card: None) -> None:
    test_tmem.test_copies(False)


@pytest.mark.parametrize("pair", [False, True])
def test_which_way_rows_shift(pair: bool, on_card: None) -> None:
    """The CPU device does as the PTX ISA reads (docs/emulator.md)."""
    test_tmem.test_shifts(pair)


@pytest.mark.parametrize("product", test_utcmma.PRODUCTS, ids=test_utcmma.named)
def test_products_in_tensor_memory(product: test_utcmma.Product, on_card: None) -> None:
    test_utcmma.test_products(product)

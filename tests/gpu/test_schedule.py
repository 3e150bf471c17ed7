"""Control codes that nobody wrote, on a GPU: the bits that NVIDIA's own codes give."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import turingas
from kernels_sass.learn.measure import FOLDER
from tests.bench.schedule import OWN, WRITTEN, sgemm_of
from tests.gpu.cuda import Gpu
from tests.kernels.cases import CASES, Case
from turingas.assembler.schedule import again, listing
from turingas.cubin.cubin import Cubin

pytestmark = pytest.mark.gpu
_AGAIN: dict[tuple[bytes, bool], bytes] = {}


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    found = Gpu()
    yield found
    found.call("cuDevicePrimaryCtxRelease", found.device)


def left(gpu: Gpu, cubin: bytes, case: Case) -> list[bytes]:
    args, _ = case.build()
    gpu.run(cubin, case.kernel, case.grid, case.block, args, case.shared)
    return [arg.tobytes() for arg in args if isinstance(arg, np.ndarray)]


@pytest.mark.parametrize("moves", [False, True], ids=["codes", "order"])
@pytest.mark.parametrize("case", [case for case in CASES if "sm_90" in case.archs], ids=lambda case: case.name)
def test_same_bits(case: Case, moves: bool, gpu: Gpu) -> None:
    """With the codes made anew, and with instructions and registers in other places, too."""
    data = case.cubin("sm_90")
    if (data, moves) not in _AGAIN:
        _AGAIN[data, moves] = again(Cubin.from_bytes(data), reorder=moves, rename=moves)[0].to_bytes()
    if case.devices is None:  # elsewhere the order of threads shows
        assert left(gpu, _AGAIN[data, moves], case) == left(gpu, data, case)


PIPELINED = ("classics.cu", "matrices.cu", "memory.cu")  # of which loops are, on sm_90
_PIPELINED: dict[bytes, bytes] = {}


@pytest.mark.parametrize(
    "case", [case for case in CASES if "sm_90" in case.archs and case.source in PIPELINED], ids=lambda case: case.name
)
def test_pipelined_loops_leave_the_same_bits(case: Case, gpu: Gpu) -> None:
    """Of compiled kernels, taken apart, with rounds of their loops that overlap."""
    data = case.cubin("sm_90")
    if data not in _PIPELINED:
        text, notes = listing(turingas.disassemble(data), "sm_90", keep=False, pipeline=True)
        assert any(": pipelined: " in note for note in notes)
        _PIPELINED[data] = turingas.assemble(text, "sm_90").to_bytes()
    if case.devices is None:
        assert left(gpu, _PIPELINED[data], case) == left(gpu, data, case)


def test_a_pipelined_loop_of_any_number_of_rounds(gpu: Gpu) -> None:
    """Step 3: sums of n words by 256 threads."""
    source = (FOLDER / "03_sum.sass").read_text()
    text, notes = listing(source, "sm_90", keep=False, pipeline=True)
    assert any(": pipelined: 3 rounds under way" in note for note in notes)
    for n in (1, 255, 256, 257, 511, 768, 1024, 3000, 100000):
        x, found = np.random.default_rng(n).standard_normal(n).astype(np.float32), []
        for made in (source, text):
            sums = np.zeros(2, np.float32)
            gpu.run(turingas.assemble(made, "sm_90").to_bytes(), "sum", (2,), (128,), [x, sums, np.uint32(n)], 0)
            found.append(sums.tobytes())
        assert found[0] == found[1] and any(found[0]), n


def test_straightforward_sgemm(gpu: Gpu) -> None:
    """Step 8 written straightforwardly leaves the bits of the file that is scheduled by hand."""
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((512, 512)).astype(np.float32) for _ in range(2))
    found = []
    for variant in (OWN, *WRITTEN):
        c = np.zeros((512, 512), np.float32)
        size = [np.uint32(512)] * 3
        gpu.run(sgemm_of("sm_90", variant).to_bytes(), "sgemm", (4, 4), (256,), [a, b, c, *size], 0)
        found.append(c.tobytes())
    assert any(found[0]) and found == found[:1] * len(found)

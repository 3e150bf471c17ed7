"""Walks of moves that the linter lets pass, from the order and codes of NVIDIA: strictly run, they leave the truth."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.cases import ARCHS, CASES, Case, difference
from tests.tools import nvrtc
from turingas.check.lint import lint_kernel
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code, Kernel
from turingas.emulate import launch
from turingas.isa import control
from turingas.scheduler.moves import EVICTION, HINTED, PREFETCH, Moves, hinted, pins, with_hint
from turingas.scheduler.order import OPCODE

STEPS = 12
REFUSED = 0.25  # of all steps: most that the linter may refuse
FILES = ("memory.cu", "classics.cu", "async.cu", "matrices.cu", "control.cu", "groups.cu")


def found(kernel: Kernel) -> set[str]:
    return {f.kind for f in lint_kernel(kernel) if f.severity != "note"}


def bare(kernel: Kernel, words: Sequence[int], places: Iterable[int]) -> list[int]:
    """Without control codes and hints for the caches, of which the latter change no result."""
    kernel = replace(kernel, code=Code(words=list(words)))
    for base in HINTED:
        for kind in (EVICTION, PREFETCH):
            words = with_hint(kernel, words, hinted(kernel, base), kind[0])
    return [words[n] & ~control.MASK for n in places]


def walked(data: bytes, name: str) -> tuple[bytes, int, int]:
    """The cubin with a kernel as a walk has left it; how many steps were made, and how many refused."""
    cubin = Cubin.from_bytes(data)
    kernel = cubin.kernel(name)
    random = np.random.default_rng(list(hashlib.sha256(data).digest()))
    pinned, known, first = pins(kernel), found(kernel), list(kernel.words)
    made = refused = 0
    for _ in range(STEPS):
        move = Moves(kernel, pinned).any(random)
        if move is None:
            break
        if found(replace(kernel, code=Code(words=move[0]))) - known:
            refused += 1
            continue
        kernel.words, made = move[0], made + 1
    assert sorted(word & OPCODE for word in kernel.words) == sorted(word & OPCODE for word in first)  # some are renamed
    assert bare(kernel, kernel.words, sorted(pinned)) == bare(kernel, first, sorted(pinned))
    return cubin.to_bytes(), made, refused


def check(case: Case, arch: str) -> tuple[int, int]:
    """How many steps were made, and how many refused."""
    data, *counts = walked(case.cubin(arch), case.kernel)
    args, truth = case.build()
    report = launch(data, case.kernel, case.grid, case.block, args, shared=case.shared, strict=True)
    assert not report.hazards, (case.name, arch, report.hazards[0])
    for arg, wanted in zip(args, truth):
        if wanted is not None:
            assert not difference(arg, wanted, case.near), (case.name, arch)
    return counts[0], counts[1]


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch, source", list(zip(ARCHS, FILES)))
def test_walks_run_as_before(arch: str, source: str) -> None:
    """A kernel of a file on each architecture; the rest with ``make test-slow``."""
    chosen = [case for case in CASES if arch in case.archs and case.source == source]
    case = min(chosen, key=lambda case: hashlib.sha256(f"{case.name} {arch}".encode()).digest())
    check(case, arch)


@pytest.mark.slow
@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ARCHS)
def test_walks_of_every_kernel(arch: str) -> None:
    """And few steps are refused: what moves makes, the scheduler has made right."""
    counts = [check(case, arch) for case in CASES if arch in case.archs]
    made, refused = (sum(column) for column in zip(*counts))
    assert refused < REFUSED * (made + refused), (made, refused)

"""Compiled code with an instruction more or less computes what it computed before: every address follows.

A NOP is put in before one instruction, the listing is assembled, and the CPU device runs it. ``editing.cu`` has what
holds addresses of code: jump tables, calls, recursion, pointers to functions, the slow paths of division, square roots
and sinf, printf. The default suite takes a few places, chosen by a hash; ``make test-slow`` takes all of them, in these
kernels and in every test kernel. TURINGAS_EDIT_SHARE=20 takes one place in 20 of them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import turingas
from tests.kernels.cases import ARCHS, CASES, FOLDER, Case, difference
from tests.tools import nvrtc
from turingas.emulate import launch

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")

NOP = "--:-:-:-:5  NOP;"
INSTRUCTION = re.compile(r"# ([0-9a-f]{4,})$")
SHARE = int(os.environ.get("TURINGAS_EDIT_SHARE", "1"))


def floats(kind: type) -> np.ndarray:
    """32 numbers, those too for which arithmetic has slow paths."""
    info = np.finfo(kind)
    odd = [0, -0.0, np.inf, -np.inf, np.nan, info.tiny, info.tiny / 8, info.max, -info.max, 1e-42, 1e6, 1e30, -1, 3, 9]
    return np.concatenate([np.array(odd, np.float64), np.linspace(0.1, 50, 17)]).astype(kind)


LONGS = np.array([3, -7, 1 << 40, -(1 << 50), 12345678901234, 5, 1 << 62, -1] * 4 + [2, 3, 1 << 33, 77777777777] * 8)
INTS = np.arange(32, dtype=np.int32)
KERNELS: dict[str, Callable[[], list[np.ndarray]]] = {
    **dict.fromkeys(
        ("sw", "big", "calls", "recursion", "pointers", "prints"), lambda: [np.zeros(32, np.int32), INTS.copy()]
    ),
    "slow32": lambda: [*np.zeros((4, 32), np.float32), floats(np.float32)],
    "slow64": lambda: [*np.zeros((3, 32)), floats(np.float64)],
    "slowll": lambda: [*np.zeros((2, 32), np.int64), LONGS.astype(np.int64)],
}


@functools.cache
def compiled(arch: str, *options: str) -> bytes:
    return nvrtc.compile_source((FOLDER / "editing.cu").read_text(), arch, options, name="editing.cu")


@functools.cache
def listing(cubin: bytes) -> tuple[str, ...]:
    return tuple(turingas.disassemble(cubin).splitlines())


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize("kernel", ["calls", "slow64", "slowll"])
def test_relocatable_code_has_the_registers_of_what_it_calls(kernel: str, arch: str) -> None:
    linked, relocatable = KERNELS[kernel](), KERNELS[kernel]()
    launch(compiled(arch), kernel, 1, 32, linked)
    launch(compiled(arch, "-rdc=true"), kernel, 1, 32, relocatable)
    assert [one.tobytes() for one in relocatable] == [one.tobytes() for one in linked]


def places(lines: tuple[str, ...], kernel: str) -> list[int]:
    """The lines before which an instruction can be put in: behind the labels of the next one, before its .reloc."""
    begin = next(n for n, line in enumerate(lines) if line.split()[:2] == [".kernel", kernel])
    found = []
    for n in range(begin + 1, len(lines)):
        if lines[n].startswith((".kernel", ".function", "# What else")):
            break
        if INSTRUCTION.search(lines[n]):
            at = n
            while lines[at - 1].startswith(".reloc"):
                at -= 1
            found.append(at)
    while "NOP;" in lines[found[-1]] and "Y:0" in lines[found[-1]]:
        found.pop()
    return found


def edited(lines: tuple[str, ...], at: int) -> bytes:
    """The cubin of ``lines`` with a NOP before one. No address may be left behind: no warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return turingas.assemble("\n".join([*lines[:at], NOP, *lines[at:]]), allow_python=False).to_bytes()


def chosen(name: str, found: list[int], count: int) -> list[int]:
    """``count`` of the places, by a hash."""
    return sorted(found, key=lambda at: hashlib.sha256(f"{name} {at}".encode()).digest())[:count]


def left(cubin: bytes, kernel: str) -> list[bytes]:
    args = KERNELS[kernel]()
    launch(cubin, kernel, 1, 32, args, budget=200_000)
    return [arg.tobytes() for arg in args]


@functools.cache
def truth(arch: str, kernel: str) -> list[bytes]:
    return left(compiled(arch), kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_few_places(arch: str, kernel: str) -> None:
    lines = listing(compiled(arch))
    for at in chosen(arch + kernel, places(lines, kernel), 1):
        assert left(edited(lines, at), kernel) == truth(arch, kernel), lines[at]


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_before_a_return_address(arch: str) -> None:
    """The case that was reported: a first instruction more, and a slow path that returned to the wrong place."""
    lines = listing(compiled(arch))
    for kernel in ("slow32", "calls", "sw", "pointers"):
        at = places(lines, kernel)[0]
        assert left(edited(lines, at), kernel) == truth(arch, kernel)


@pytest.mark.parametrize("arch", ARCHS)
def test_taken_out_again(arch: str) -> None:
    """What was put in is taken out of the listing of the new cubin: the code is the old one."""
    lines = listing(compiled(arch))
    for kernel in ("slow32", "recursion", "sw"):
        at = chosen(arch, places(lines, kernel), 1)[0]
        nth = places(lines, kernel).index(at)
        cubin = edited(lines, at)
        more = listing(cubin)
        out = places(more, kernel)[nth]
        assert turingas.Cubin.from_bytes(cubin).kernel(kernel).words[nth] == turingas.encode(NOP, arch=arch)[0]
        again = turingas.assemble("\n".join([*more[:out], *more[out + 1 :]]))
        old = turingas.Cubin.from_bytes(compiled(arch)).kernel(kernel).words
        assert again.kernel(kernel).words[: len(places(lines, kernel))] == old[: len(places(lines, kernel))]


# -- all places


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_place(arch: str, kernel: str) -> None:
    lines = listing(compiled(arch))
    found = places(lines, kernel)
    for at in chosen(arch + kernel, found, -(-len(found) // SHARE)):
        assert left(edited(lines, at), kernel) == truth(arch, kernel), lines[at]


def case_holds(case: Case, arch: str, count: int) -> None:
    lines = listing(case.cubin(arch))
    found = places(lines, case.kernel)
    for at in chosen(arch + case.name, found, count or -(-len(found) // SHARE)):
        args, expected = case.build()
        launch(edited(lines, at), case.kernel, case.grid, case.block, args, shared=case.shared)
        for found_array, wanted in zip(args, expected):
            if wanted is not None:
                assert not (problem := difference(found_array, wanted, case.near)), f"{lines[at]}: {problem}"


def some() -> Iterator[tuple[Case, str]]:
    """A third of the test kernels, each for one architecture."""
    for number, case in enumerate(CASES):
        digest = hashlib.sha256(case.name.encode()).digest()
        if digest[0] % 3 == 0:
            yield case, case.archs[number % len(case.archs)]


@pytest.mark.parametrize(("case", "arch"), list(some()), ids=lambda value: getattr(value, "name", value))
def test_a_place_of_a_test_kernel(case: Case, arch: str) -> None:
    case_holds(case, arch, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "arch"), [(c, a) for c in CASES for a in c.archs], ids=lambda value: getattr(value, "name", value)
)
def test_every_place_of_a_test_kernel(case: Case, arch: str) -> None:
    case_holds(case, arch, 0)

"""Compiled code with an instruction more or less computes what it computed before: every address follows.

``editing.py`` puts a NOP in before an instruction, assembles the listing, and runs it on the CPU device. ``editing.cu``
has what holds addresses of code: jump tables, calls, recursion, pointers to functions, the slow paths of division,
square roots and sinf, printf. The default suite takes one place in three of these kernels and of every test kernel,
``make test-slow`` all of them; TURINGAS_EDIT_SHARE=20 takes one in twenty. The places are drawn anew each time:
TURINGAS_EDIT_SEED takes those that a failure names again.
"""

from __future__ import annotations

import os
import random
import re
import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import turingas
from tests.emulate.editing import (
    BUDGET,
    NOP,
    SUBJECTS,
    WHOLE,
    Subject,
    alone,
    arguments,
    edited,
    failures,
    listing,
    places,
    truth,
    wrong,
)
from tests.emulate.remembered import Memory, remembering
from tests.kernels.cases import ARCHS, FOLDER, cubin
from tests.tools import nvrtc
from turingas.emulate import device, launch
from turingas.emulate.cohort import Cohort
from turingas.emulate.report import Report
from turingas.isa.instruction import Instruction

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")

SHARE = os.environ.get("TURINGAS_EDIT_SHARE")
SOME = int(SHARE or 3)
#: drawn anew for every run; what fails names it
SEED = int(os.environ.get("TURINGAS_EDIT_SEED") or secrets.randbelow(1 << 32))
BY_NAME = {subject.name: subject for subject in SUBJECTS}
SOURCES = sorted({(subject.source, arch) for subject in SUBJECTS for arch in subject.archs})


@pytest.mark.parametrize(("source", "arch"), SOURCES)
def test_some_places(source: str, arch: str) -> None:
    """Of all kernels of one source."""
    found = [failures(s, arch, SOME, SEED) for s in SUBJECTS if s.source == source and arch in s.archs]
    assert not [problem for _, problems in found for problem in problems]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_every_place(subject: Subject, arch: str) -> None:
    if arch not in subject.archs:
        pytest.skip(f"{subject.name} needs a later architecture")
    count, problems = failures(subject, arch, int(SHARE or 1), SEED)
    assert count and not problems


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize("kernel", ["slow32", "calls", "sw", "pointers"])
def test_before_a_return_address(kernel: str, arch: str) -> None:
    """The case that was reported: a first instruction more, and a slow path that returned to the wrong place."""
    lines = listing("editing.cu", arch)
    assert not wrong(BY_NAME[f"editing.{kernel}"], arch, lines, places(lines, kernel)[0])


VPRINTF = """
.function vprintf
.registers 24
--:-:-:-:5  MOV R4, RZ;
--:-:-:-:5  RET.ABS.NODEC R20 0x0;
"""  # what the driver has in its place is called, and returns, in the same way


def after_printf(arch: str, before_lepc: bool) -> list[str]:
    """The places of a kernel that calls the driver's vprintf where a NOP makes it wrong, of those before an LEPC or of
    all others. The call goes to a function of that name in the file."""
    text = "\n".join(alone(listing("editing.cu", arch), "prints"))
    assert ".symbol vprintf type=func" in text
    text = text.replace("# What else", VPRINTF + "# What else", 1)
    text = text.replace(".symbol vprintf type=func", ".symbol vprintf section=.text.vprintf size=auto type=func")
    lines = tuple(text.splitlines())
    numbers = np.arange(32, dtype=np.int32)
    numbers[5:9] = 12345
    found = []
    for at in places(lines, "prints"):
        if ("LEPC" in lines[at]) == before_lepc:
            data, out = edited(lines, at), np.zeros(32, np.int32)
            report = launch(data, "prints", 1, 32, [out, numbers], counters=True, budget=1000)
            assert report.counters is not None
            function = len(turingas.Cubin.from_bytes(data).kernel("prints").words)
            if (out != numbers + 1).any() or report.counters.lanes[function] != 4:
                found.append(lines[at])
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_the_return_address_of_printf(arch: str) -> None:
    assert after_printf(arch, before_lepc=False) == []


@pytest.mark.parametrize("arch", ARCHS)
def test_the_return_address_of_printf_counts_from_lepc(arch: str) -> None:
    assert after_printf(arch, before_lepc=True) == []


def test_an_address_left_behind_is_found() -> None:
    lines = listing("editing.cu", "sm_75")
    fixed = tuple(re.sub(r"32@lo\(L_([0-9a-f]+)\)", r"0x\1", line) for line in lines)
    assert fixed != lines
    with remembering(Memory()):  # runs that were right
        assert not any(wrong(BY_NAME["editing.calls"], "sm_75", lines, at) for at in places(lines, "calls")[:9])
        assert "DeviceError" in wrong(BY_NAME["editing.calls"], "sm_75", fixed, places(fixed, "calls")[0])


def test_a_branch_stays_with_what_is_said_of_it() -> None:
    """.nv.info names an indirect branch by a label: the branch counts, not what is put in behind the label."""
    lines = listing("editing.cu", "sm_90")
    at = next(n for n in places(lines, "sw") if "BRX" in lines[n])
    assert lines[at - 1].endswith(":")
    kernel = turingas.Cubin.from_bytes(edited(lines, at)).kernel("sw")
    (info,) = [info for info in kernel.attributes if info.name == "INDIRECT_BRANCH_TARGETS"]
    assert "BRX" in turingas.decode([kernel.words[info.words[0] // 16]], "sm_90")[0]


ATTRIBUTES = [
    ("INDIRECT_BRANCH_TARGETS", "editing.sw", "sm_75"), ("SYSCALL_OFFSETS", "editing.prints", "sm_86"),
    ("INT_WARP_WIDE_INSTR_OFFSETS", "editing.sw", "sm_70"), ("COOP_GROUP_INSTR_OFFSETS", "reduction", "sm_75"),
    ("UNUSED_LOAD_BYTE_OFFSET", "nbody", "sm_75"), ("INSTR_REG_MAP", "mbarrier", "sm_80"),
    ("MBARRIER_INSTR_OFFSETS", "mbarrier", "sm_90"), ("EXIT_INSTR_OFFSETS", "early_exit", "sm_90"),
]  # fmt: skip


@pytest.mark.parametrize(("attribute", "name", "arch"), ATTRIBUTES, ids=[row[0] for row in ATTRIBUTES])
def test_attributes_name_the_same_instructions(attribute: str, name: str, arch: str) -> None:
    """What .nv.info says of an instruction follows it; what it says besides stays."""
    subject = BY_NAME[name]
    lines = listing(subject.source, arch)
    at = places(lines, subject.kernel)[0]
    told = []
    for data in (cubin(subject.source, arch), edited(lines, at)):
        kernel = turingas.Cubin.from_bytes(data).kernel(subject.kernel)
        (info,) = (info for info in kernel.attributes if info.name == attribute)
        told.append(info.marked)
    before, after = told
    assert any(is_address for _, is_address in before)
    assert after == [(word + 16 if is_address else word, is_address) for word, is_address in before]


def test_a_barrier_in_shared_memory_is_no_address_of_code() -> None:
    """Its record: an instruction, a register, where in shared memory the barrier lies, what is done with it."""
    words = (16, 0xFF, 16, 0x3F0100)
    text = f".kernel k\n.info MBARRIER_INSTR_OFFSETS {' '.join(map(hex, words))}\n" + f"{NOP}\n--:-:-:-:5  EXIT;\n"
    lines = turingas.disassemble(turingas.assemble(text, "sm_80").to_bytes()).splitlines()
    assert any(line == ".info MBARRIER_INSTR_OFFSETS L_0010 0xff 0x10 0x3f0100" for line in lines)


@pytest.mark.parametrize("arch", ARCHS)
def test_taken_out_again(arch: str) -> None:
    """What was put in is taken out of the listing of the new cubin: the code is the old one."""
    lines = listing("editing.cu", arch)
    for kernel in ("slow32", "recursion", "sw"):
        found = places(lines, kernel)
        nth = len(found) // 2
        data = edited(lines, found[nth])
        more = tuple(turingas.disassemble(data).splitlines())
        out = places(more, kernel)[nth]
        assert turingas.Cubin.from_bytes(data).kernel(kernel).words[nth] == turingas.encode(NOP, arch=arch)[0]
        again = turingas.assemble("\n".join([*more[:out], *more[out + 1 :]])).kernel(kernel).words[: len(found)]
        assert (
            again[: len(found)]
            == turingas.Cubin.from_bytes(cubin("editing.cu", arch)).kernel(kernel).words[: len(found)]
        )


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kernel", ["calls", "pointers", "slow64", "slowll"])
def test_relocatable_code_runs_as_linked_code_does(kernel: str, arch: str) -> None:
    """It has the registers of what it calls, and pointers in its tables lead to functions."""
    subject = BY_NAME[f"editing.{kernel}"]
    data = nvrtc.compile_source((FOLDER / "editing.cu").read_text(), arch, ("-rdc=true",), name="editing.cu")
    for found, expected in zip(subject.run(data), truth(subject, arch)):
        assert found is not None and expected is not None and found.tobytes() == expected.tobytes()


# -- what the places are tried with


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_cubin_of_the_whole_text(subject: Subject) -> None:
    """What is assembled from lines that were taken apart once is, byte for byte, what their text gives."""
    rng = random.Random(f"{SEED} {subject.name}")
    arch = rng.choice(subject.archs)
    lines = alone(listing(subject.source, arch), subject.kernel)
    for at in rng.sample(places(lines, subject.kernel), 3):
        text = "\n".join([*lines[:at], NOP, *lines[at:]])
        assert edited(lines, at) == turingas.assemble(text, allow_python=False).to_bytes(), f"TURINGAS_EDIT_SEED={SEED}"


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_what_is_looked_up_is_what_would_be_computed(subject: Subject) -> None:
    """Behind some neighbours, in whose states it runs: the same bytes are left by as many instructions."""
    rng = random.Random(f"{SEED} {subject.name}")
    arch = rng.choice(subject.archs)
    lines, memory = alone(listing(subject.source, arch), subject.kernel), Memory()
    *others, last = rng.sample(places(lines, subject.kernel), 5)
    with remembering(memory):
        for at in sorted(others):
            subject.run(edited(lines, at))
        first, _ = subject.launched(edited(lines, last))
        args, report = subject.launched(edited(lines, last))
    plain, counted = subject.launched(edited(lines, last))
    assert memory.found or subject.name in ("registers", "cp_async")  # which reads the time, begins copies at once
    left = [[arg.tobytes() if isinstance(arg, np.ndarray) else arg for arg in run] for run in (first, args, plain)]
    assert left[0] == left[1] == left[2], f"TURINGAS_EDIT_SEED={SEED}"
    assert report.instructions == counted.instructions and report.lane_instructions == counted.lane_instructions
    assert report.printed == counted.printed


def test_another_register_is_computed_anew() -> None:
    text = ".kernel k\n.param 8\n--:-:-:-:5  MOV R0, c[0x0][0x160];\n--:-:-:-:5  MOV R1, c[0x0][0x164];\n"
    text += "--:-:-:-:5  MOV R2, {};\n--:-:-:-:5  FADD R2, R2, 1;\n--:-:-:-:5  STG.E.SYS [R0], R2;\n--:-:-:-:5  EXIT;\n"
    memory, found = Memory(), []
    with remembering(memory):
        for number in ("0x3f800000", "0x40000000", "0x3f800000"):
            out = np.zeros(1, np.float32)
            launch(turingas.assemble(text.format(number), "sm_75"), "k", 1, 1, [out], workers=1)
            found.append(float(out[0]))
    assert found == [2, 3, 2] and (memory.made, memory.found) == (2, 1)


@pytest.mark.parametrize("subject", SUBJECTS[::7], ids=lambda subject: subject.name)
def test_a_kernel_alone_is_the_same_code(subject: Subject) -> None:
    arch = subject.archs[-1]
    lines = alone(listing(subject.source, arch), subject.kernel)
    assert sum(line.startswith(".kernel ") for line in lines) == 1
    words = turingas.assemble("\n".join(lines)).kernel(subject.kernel).words
    assert words == turingas.Cubin.from_bytes(cubin(subject.source, arch)).kernel(subject.kernel).words


class Ways(device.Counting):
    """Counts, besides, the lanes that a guard kept out."""

    def __init__(self, size: int, traffic: bool) -> None:
        super().__init__(size, traffic)
        self.came = np.zeros(size, np.int64)

    def guard(self, k: Cohort, i: Instruction, n: int) -> None:
        self.came[n] += k.threads

    def tell(self, report: Report) -> None:
        super().tell(report)
        report.kept_out = getattr(report, "kept_out", 0) + self.came - self.counters.lanes  # type: ignore[attr-defined]


def ways(subject: Subject, arch: str) -> set[tuple[str, int]]:
    """The instructions that some lane executed, and those that some lane came to and its guard kept it from."""
    args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in arguments(subject)]
    report: Any = launch(
        cubin(subject.source, arch), subject.kernel, subject.grid, subject.block, args,
        shared=subject.shared, counters=True, traffic=False, budget=BUDGET,
    )  # fmt: skip
    counts = {"executed": report.counters.lanes, "kept out": report.kept_out}
    return {(what, int(n)) for what, lanes in counts.items() for n in np.flatnonzero(lanes)}


SMALLER = [pair for pair in zip(WHOLE, SUBJECTS) if pair[0] != pair[1]]


@pytest.mark.parametrize(("whole", "small"), SMALLER, ids=[whole.name for whole, _ in SMALLER])
def test_smaller_launches_take_the_same_ways(whole: Subject, small: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an architecture that the seed draws."""
    monkeypatch.setattr(device, "Counting", Ways)
    arch = whole.archs[SEED % len(whole.archs)]
    assert ways(whole, arch) <= ways(small, arch), f"TURINGAS_EDIT_SEED={SEED}"


def test_a_launch_that_is_too_small_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "Counting", Ways)
    whole = next(subject for subject in WHOLE if subject.name == "divergence")
    assert not ways(whole, "sm_75") <= ways(replace(whole, grid=(1,), block=(1,)), "sm_75")

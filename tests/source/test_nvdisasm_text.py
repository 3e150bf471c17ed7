"""What nvdisasm prints of a cubin without -hex assembles, its control codes are filled in, and it runs."""

from __future__ import annotations

import functools
import re
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import turingas
from tests.kernels import cases
from tests.kernels.cases import CASES, Case, difference
from tests.tools import nvrtc
from tests.tools.nvdisasm import program_path
from turingas.assembler import schedule
from turingas.assembler.assembler import assemble, expanded
from turingas.cubin.model import Kernel
from turingas.emulate import launch
from turingas.errors import AsmError
from turingas.isa import control
from turingas.isa.isa import instruction_set

needs_tools = pytest.mark.skipif(
    nvrtc.library_path() is None or program_path("sm_80") is None, reason="NVRTC or nvdisasm is not installed"
)
ARCHS = ("sm_75", "sm_80", "sm_90")  # nvdisasm 13 does not know sm_70
CODE = ~(control.MASK | 15 << 122)
FACTS = ("registers", "shared_bytes", "barriers", "frame_bytes", "stack_bytes", "max_stack_bytes", "entry", "bind")
NAN = "does not say which NaN is meant"
HEAD = """	.headerflags	@"EF_CUDA_SM75 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM75)"
	.elftype	@"ET_EXEC"
	.section	.text.k,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=12"
.text.k:
"""


def listing(cubin: bytes, folder: Path, *options: str) -> str:
    program = program_path("sm_80")
    assert program is not None
    program.chmod(0o755)
    path = folder / "listed.cubin"
    path.write_bytes(cubin)
    return subprocess.run([program, *options, path], capture_output=True, text=True, timeout=60).stdout


def resources(kernel: Kernel) -> dict[str, object]:
    found: dict[str, object] = {name: getattr(kernel, name) for name in FACTS}
    found["params"] = [(param.offset, param.size) for param in kernel.params]
    return found | {f"bank {n}": bytes(data) for n, data in kernel.constants.items()}


def with_nans(text: str, cubin: turingas.Cubin) -> tuple[str, int]:
    """The listing with the bits of the NaN that nvdisasm does not tell, and in how many lines that matters."""
    lines = text.splitlines()
    kernel: Kernel | None = None
    count = 0
    for n, line in enumerate(lines):
        if match := re.match(r"\s*\.section\s+\.text\.(\S+),\"", line):
            kernel = cubin.kernel(match[1])
        if kernel is not None and "QNAN" in line and (match := re.match(r"\s*/\*([0-9a-f]+)\*/", line)):
            word = kernel.words[int(match[1], 16) // 16]
            lines[n] = f"{match[0]}  {instruction_set(cubin.arch).decode(word)};"
            count += "FSEL" in line
    return "\n".join(lines) + "\n", count


def sources() -> Iterator[tuple[str, str]]:
    for arch in ARCHS:
        names = {case.source for case in CASES if arch in case.archs and case.source.endswith(".cu")}
        yield from ((name, arch) for name in sorted(names))


@needs_tools
@pytest.mark.parametrize(("source", "arch"), list(sources()))
def test_the_text_is_the_cubin_and_runs(source: str, arch: str, tmp_path: Path) -> None:
    before = turingas.Cubin.from_bytes(cases.cubin(source, arch))
    text = listing(cases.cubin(source, arch), tmp_path)
    if source == "numbers.cu":
        with pytest.raises(AsmError, match=NAN) as refused:
            assemble(text)
        text, count = with_nans(text, before)
        assert len(refused.value.errors) == count > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it tells everything
        after = assemble(text, "sm_75")
    assert after.arch == before.arch
    known = {kernel.name: kernel for kernel in after.texts}
    assert known.keys() == {kernel.name for kernel in before.texts}
    for kernel in before.texts:
        assert resources(known[kernel.name]) == resources(kernel)
        if arch != "sm_80":  # where the descriptor is not printed, the access is written without
            words = [word & CODE for word in known[kernel.name].words]
            assert words == [word & CODE for word in kernel.words], kernel.name
    assert [finding for finding in turingas.lint(after.to_bytes()) if finding.severity == "error"] == []
    for case in [case for case in CASES if case.source == source and arch in case.archs]:
        run(case, after.to_bytes())


def run(case: Case, cubin: bytes) -> None:
    args, truth = case.build()
    launch(cubin, case.kernel, case.grid, case.block, args, shared=case.shared)
    for n, (found, expected) in enumerate(zip(args, truth)):
        if expected is not None:
            assert not (problem := difference(found, expected, case.near)), f"{case.name}, buffer {n}: {problem}"


@needs_tools
@pytest.mark.parametrize("source", ["memory.cu", "control.cu"])
def test_with_words_all_of_it_comes_back(source: str, tmp_path: Path) -> None:
    """-hex: the codes too, and what the sections say besides."""
    before = turingas.Cubin.from_bytes(cases.cubin(source, "sm_90"))
    after = assemble(listing(cases.cubin(source, "sm_90"), tmp_path, "-hex"))
    for kernel in before.texts:
        again = next(one for one in after.texts if one.name == kernel.name)
        assert again.words == kernel.words and resources(again) == resources(kernel)


@needs_tools
def test_schedule_makes_a_source_of_it(tmp_path: Path) -> None:
    """With the codes in it, and all that the listing tells of the kernels."""
    text = listing(cases.cubin("control.cu", "sm_75"), tmp_path)
    source, _ = schedule.listing(text, "sm_75")
    assert ".headerflags" not in source and re.search(r"^01:.*;$", source, re.MULTILINE)
    assert assemble(source).to_bytes() == assemble(text).to_bytes()


@needs_tools
def test_code_alone_says_what_is_missing(tmp_path: Path) -> None:
    """-c: no sections of data. Parameters are added to what -E prints."""
    text = listing(cases.cubin("warps.cu", "sm_75"), tmp_path, "-c")
    with pytest.warns(match="neither parameters nor shared memory"):
        found = assemble(text)
    assert all(not kernel.params for kernel in found.kernels)
    assert ".kernel votes" in expanded(text)


@functools.cache
def printf(arch: str) -> bytes:
    code = """extern "C" __device__ int printf(const char*, ...);
    __device__ int seen = 5;
    extern "C" __global__ void k(int *p) { printf("%d %d", p[0], seen); seen = p[1]; }"""
    return nvrtc.compile_source(code, arch)


@needs_tools
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_variables_and_functions_of_the_driver(arch: str, tmp_path: Path) -> None:
    found = assemble(listing(printf(arch), tmp_path))
    names = {symbol.name: symbol for symbol in found.symbols or ()}
    assert names["seen"].size == 4 and names["seen"].section == ".nv.global.init" and not names["vprintf"].section
    data = next(section for section in found.sections if section.name == ".nv.global.init").data
    assert bytes(data).startswith((5).to_bytes(4, "little")) or b"%d %d" in bytes(data)
    assert turingas.disassemble(found.to_bytes()).count(" vprintf") >= 2  # the symbol, and a place that holds it


def test_braces_remarks_and_life_ranges() -> None:
    text = (
        HEAD
        + """
        /*0000*/                   S2R R0, SR_TID.X ;                        // |  1 ^  |
        { /*0010*/                 IADD3 R2, R0.reuse, 0x1, RZ ;
        /*0020*/              @!P0 BRA `(.L_x_1) ;                           (*"TARGETS .L_x_1"*) }
.L_x_1:
        //## File "k.cu", line 3
        /*0030*/                   EXIT ;
"""
    )
    with pytest.warns(match="neither parameters nor shared memory"):
        found = assemble(text)
    assert found.arch == "sm_75" and found.kernels[0].registers == 12
    isa = instruction_set("sm_75")
    texts = [isa.decode(word, 16 * n) for n, word in enumerate(found.kernels[0].words)]
    assert texts == ["S2R R0, SR_TID.X", "IADD3 R2, R0, 0x1, RZ", "@!P0 BRA 0x30", "EXIT"]
    assert [line for _, line in found.kernels[0].lines] == [7, 8, 9, 12]


def test_any_nan_will_do_in_arithmetic() -> None:
    """The slow path of a square root has it in each kernel that needs one."""
    lines = ["@P0 MUFU.RSQ R2, -QNAN  ;", "FADD R3, R2, +QNAN ;", "EXIT ;"]
    code = "\n".join(f"        /*{16 * n:04x}*/  {line}" for n, line in enumerate(lines))
    with pytest.warns(match="neither parameters nor shared memory"):
        words = assemble(HEAD + code).kernels[0].words
    isa = instruction_set("sm_75")
    assert [isa.decode(word) for word in words[:2]] == ["@P0 MUFU.RSQ R2, 0xffc00000", "FADD R3, R2, 0x7fc00000"]


def test_cuobjdump_without_words() -> None:
    text = "\tcode for sm_80\n\t\tFunction : k\n        /*0000*/   MOV R1, c[0x0][0x28] ;\n        /*0010*/   EXIT ;\n"
    with pytest.warns(match="neither parameters nor shared memory"):
        found = assemble(text)
    assert found.arch == "sm_80" and found.kernels[0].name == "k" and len(found.kernels[0].words) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("MOV R2, `(offset) ;", "relocatable code"),
        ("FSEL R2, R3, QNAN , P0 ;", NAN),
        ("LDG.E R2, [R2.64] ;", "[R2.64] does not"),
    ],
)
def test_what_the_text_does_not_tell(line: str, said: str) -> None:
    with pytest.raises(AsmError) as wrong, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assemble(HEAD + f"        /*0000*/                   {line}\n        /*0010*/    EXIT ;\n")
    if said.startswith("["):  # no architecture without descriptors prints it
        assert wrong.value.line == 6
    else:
        assert said in wrong.value.message and wrong.value.line == 6

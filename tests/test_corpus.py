"""Everything that NVRTC and ptxas make of tests/corpus round-trips, and reads as nvdisasm prints it.

The sources provoke as many different instructions as possible. Needs nvidia-cuda-nvrtc-cu12, nvidia-cuda-nvcc-cu12,
nvidia-cuda-runtime-cu12, nvidia-cuda-cccl-cu12 (12.9) and nvidia-cuda-nvdisasm 13.5.37; what is missing is skipped.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import turingas
from tests.tools import nvdisasm, nvrtc, ptx_forms, ptxas
from turingas.isa.arch import ARCHS as KNOWN
from turingas.isa.arch import NAMES

HOPPER = tuple(name for name in NAMES if "sm_100" not in KNOWN[name].line)
ARCHS = (*HOPPER, "sm_100", "sm_120")
CORPUS = Path(__file__).parent / "corpus"
SAME_TEXT = 0.999  # what share of the words must read as nvdisasm's text; docs/ lists the exceptions

needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
needs_ptxas = pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")


def cuda_words(arch: str) -> list[int]:
    """Compile every CUDA C++ source for arch."""
    words: list[int] = []
    for path in sorted(CORPUS.glob("*.cu")):
        for _, part in nvrtc_code(path, arch):
            words += part
    return words


def nvrtc_code(path: Path, arch: str) -> list[tuple[str, list[int]]]:
    return list(nvdisasm.code(nvrtc.compile_source(path.read_text(), arch, name=path.name)))


def ptx_words(arch: str) -> list[int]:
    """Assemble the PTX sources that arch has, and a part of the table of PTX forms."""
    words: list[int] = []
    for path in sorted(CORPUS.glob("*.ptx")):
        text = path.read_text()
        target = re.search(r"^\.target (\w+)", text, re.M)
        assert target, path
        if ptx_forms.order(target[1]) <= ptx_forms.order(arch):
            text = text.replace(target[0], f".target {arch}")
            for _, part in nvdisasm.code(ptxas.assemble_ptx(text, arch)):
                words += part
    cubin = ptx_forms.assemble_forms(ptx_forms.forms_for(arch)[::30], arch, (), ptx_forms.Count())
    assert cubin
    for _, part in nvdisasm.code(cubin):
        words += part
    return words


def check_round_trip(words: list[int], arch: str) -> None:
    lines = turingas.decode(words, arch=arch)
    opaque = sorted({f"{word:032x}" for word, line in zip(words, lines, strict=True) if ".word" in line})
    assert opaque == [], f"{len(opaque)} distinct words of {len(words)} are not explained"
    again = turingas.encode("\n".join(lines), arch=arch)
    wrong = [(f"{a:032x}", line, f"{b:032x}") for a, line, b in zip(words, lines, again, strict=True) if a != b]
    assert not wrong, f"{len(wrong)} of {len(words)} words come back different: {wrong[:3]}"


def check_text(words: list[int], arch: str) -> None:
    if nvdisasm.program_path(arch) is None:
        return  # sm_70 without the wheel of triton: the round trip alone is checked
    ours = turingas.decode(words, arch=arch, control=False)
    wrong: Counter[tuple[str, str]] = Counter()
    for mine, theirs in zip(ours, nvdisasm.texts(words, arch), strict=True):
        if squeeze(mine) != squeeze(theirs):
            wrong[mine, theirs] += 1
    share = wrong.total() / len(words)
    assert share <= 1 - SAME_TEXT, f"{wrong.total()} of {len(words)} differ: {wrong.most_common(10)}"


def squeeze(text: str) -> str:
    return re.sub(r"\s+", "", text).rstrip(";")


@pytest.mark.sample(2)
@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
def test_cuda(arch: str) -> None:
    words = cuda_words(arch)
    check_round_trip(words, arch)
    check_text(words, arch)


@pytest.mark.sample(2)
@needs_ptxas
@pytest.mark.parametrize("arch", HOPPER)  # the sources are of a PTX that is older than Blackwell
def test_ptx(arch: str) -> None:
    words = ptx_words(arch)
    check_round_trip(words, arch)
    check_text(words, arch)

"""Listings of cuobjdump and nvdisasm as sources, and `assemble -E`."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import turingas
from tests.cubin import cubins
from tests.tools.nvdisasm import program_path
from turingas.assembler.assembler import assemble, expanded
from turingas.cli import main
from turingas.errors import AsmError

LISTING = """
	code for sm_80
		Function : k
	.headerflags	@"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS EF_CUDA_SM80 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM80)"
        /*0000*/                   MOV R1, c[0x0][0x28] ;                             /* 0x00000a0000017a02 */
                                                                                      /* 0x000fe40000000f00 */
        /*0010*/                   EXIT ;                                             /* 0x000000000000794d */
                                                                                      /* 0x000fea0003800000 */
        /*0020*/                   BRA 0x20;                                          /* 0xfffffff000007947 */
                                                                                      /* 0x000fc0000383ffff */
"""
PROGRAMS = {"cuobjdump": ["-sass"], "nvdisasm": ["-hex"]}


def quietly(text, arch="sm_75", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return assemble(text, arch, **options)


def listed(program, path):
    nvdisasm = program_path("sm_80")
    if nvdisasm is None:
        pytest.skip("NVIDIA's tools are not installed")
    tool = nvdisasm.parent / program
    tool.chmod(0o755)
    return subprocess.run([tool, *PROGRAMS[program], path], capture_output=True, text=True, timeout=60).stdout


@pytest.mark.sample(4)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("path", [p for p in cubins.STORED if "sm70" not in p.name][::4], ids=lambda path: path.stem)
def test_words_come_back(program, path):
    text = listed(program, path)
    cubin = turingas.Cubin.from_file(path)
    if not text:
        pytest.skip(f"this {program} does not read {path.name}")
    found = quietly(text)
    assert found.arch[:5] == cubin.arch[:5]
    assert {kernel.name: kernel.words for kernel in found.texts} == {one.name: one.words for one in cubin.texts}


def test_labels_and_lines():
    found = quietly(LISTING).kernels[0]
    assert found.name == "k" and [line for _, line in found.lines] == [5, 7, 9]
    assert "BRA L_0020" in expanded(LISTING) and ".arch sm_80" in expanded(LISTING)
    with pytest.warns(match="neither parameters nor shared memory"):
        assemble(LISTING)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("                   /* 0x000fea0003800000 */\n", "\n", "7: error: the second half of this word is missing"),
        ("/*0010*/", "/*0020*/", "the instruction at 0x10 is missing"),
    ],
)
def test_what_is_missing(old, new, said):
    with pytest.raises(AsmError, match="missing") as wrong:
        quietly(LISTING.replace(old, new), filename="l.txt")
    assert said in str(wrong.value.show()).replace("l.txt:", "")


def test_several_architectures():
    both = LISTING + LISTING.replace("80", "86")
    assert quietly(both, "sm_86").arch == "sm_86"
    with pytest.raises(AsmError, match="sm_80, sm_86"):
        quietly(both, "sm_75")


def test_commands(tmp_path):
    (tmp_path / "l.txt").write_text(LISTING)
    found = CliRunner().invoke(main, ["assemble", str(tmp_path / "l.txt"), "-o", str(tmp_path / "l.cubin")])
    assert found.exit_code == 0 and "l.txt: warning: this listing tells" in found.output
    assert turingas.Cubin.from_file(tmp_path / "l.cubin").kernels[0].words == quietly(LISTING).kernels[0].words


SOURCES = sorted((Path(__file__).parents[2] / "kernels_sass" / "learn").glob("*.sass"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_is_expanded_assembles_to_the_same(path):
    options = {"include": (str(path.parent),)}
    text = expanded(path.read_text(), "sm_75", filename=str(path), **options)
    assert "<code>" not in text and "#" not in text
    assert assemble(text).to_bytes() == assemble(path.read_text(), "sm_75", filename=str(path), **options).to_bytes()


def test_expand_prints(tmp_path):
    (tmp_path / "x.sass").write_text("<code>\nout_ = 'EXIT;'\n</code>\n# nothing\n")
    found = CliRunner().invoke(main, ["assemble", "-E", str(tmp_path / "x.sass")])
    assert (found.exit_code, found.output) == (0, ".arch sm_75\nEXIT;\n")
    assert [path.name for path in tmp_path.iterdir()] == ["x.sass"]
    (tmp_path / "y.sass").write_text("<code>\nboom\n</code>\n")
    assert CliRunner().invoke(main, ["assemble", "-E", str(tmp_path / "y.sass")]).exit_code == 1

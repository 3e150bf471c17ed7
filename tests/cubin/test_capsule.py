"""What ptxas leaves of its code in cubins for Blackwell: kept while nothing changes, left out when code does."""

from __future__ import annotations

import functools
import json
import warnings

import pytest
from click.testing import CliRunner

from loader import capsules
from tests.tools import ptxas
from turingas.assembler import assemble
from turingas.assembler.schedule import again
from turingas.cli import main
from turingas.cubin import capsule, nvinfo
from turingas.cubin import elf as e
from turingas.cubin.cubin import Cubin
from turingas.cubin.elf import Elf
from turingas.cubin.split import differences, without_capsule
from turingas.disassembler import check, disassemble
from turingas.errors import AsmWarning

PTX = """.version 8.7
.target {arch}
.address_size 64
.visible .entry k(.param .u64 p) {{ {code} ret; }}
"""
CODE = ".reg .u64 %a; ld.param.u64 %a, [p]; cvta.to.global.u64 %a, %a; st.global.u32 [%a], 7;"
needs_ptxas = pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")
pytestmark = needs_ptxas


@functools.cache
def compiled(arch: str = "sm_100", code: str = CODE) -> bytes:
    return ptxas.assemble_ptx(PTX.format(arch=arch, code=code), arch)


def sections(data: bytes) -> dict[str, bytes]:
    return {section.name: bytes(section.data) for section in Elf.from_bytes(data).sections}


def capsule_of(data: bytes) -> dict[str, bytes]:
    elf = Elf.from_bytes(data)
    return {section.name: bytes(section.data) for section in elf.sections if section.flags & e.SHF_CAPSULE}


ASSERT = """
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e) .noreturn;
.global .align 4 .b8 table[8] = {1, 2, 3, 4};
"""
ASSERTS = """.reg .u64 %a, %b; ld.param.u64 %a, [p]; mov.u64 %b, table; st.global.u64 [%a], %b;
{ .param .b64 a, b; .param .b32 c; .param .b64 d, e; st.param.b64 [a], %b; st.param.b64 [b], %b; st.param.b32 [c], 1;
st.param.b64 [d], %b; st.param.b64 [e], 1; call __assertfail, (a, b, c, d, e); }"""


@pytest.mark.parametrize("arch", ["sm_100", "sm_120a"])
def test_what_a_capsule_shares(arch):
    """Constants and variables that it names for a second time have no bytes of its own in the file."""
    ptx = PTX.format(arch=arch, code="CODE").replace(".visible", ASSERT + ".visible").replace("CODE", ASSERTS)
    data = ptxas.assemble_ptx(ptx, arch)
    for made in (data, assemble(disassemble(data)).to_bytes()):
        places = {section.name: section.offset for section in Elf.from_bytes(made).sections}
        assert places[".nv.merc.nv.constant.pic"] == places[".nv.constant4"]
        assert places[".nv.merc.nv.global.init"] == places[".nv.global.init"]
    assert check(data) == []


@pytest.mark.parametrize("arch", ["sm_100", "sm_120"])
def test_nothing_changed(arch):
    """What a capsule numbers stays as well: sections, and places of names."""
    data = compiled(arch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = assemble(disassemble(data)).to_bytes()
    assert check(data) == [] and capsule_of(again) == capsule_of(data) != {}
    before, after = Elf.from_bytes(data), Elf.from_bytes(again)
    assert [s.name for s in before.sections] == [s.name for s in after.sections]
    assert capsule.symbols(after) == capsule.symbols(before)
    assert ("k", ".nv.capmerc.text.k") in capsule.symbols(before)


def test_check_sees_a_capsule_whose_numbers_are_wrong():
    before, after = Elf.from_bytes(compiled()), Elf.from_bytes(compiled())
    assert differences(before, after) == []
    after.sections[after.sections.index(after.section(".nv.merc.symtab"))].link = 1
    assert any("symbols of the capsule" in text for text in differences(before, after))


def test_an_order_of_another_linker_stays():
    """Sections that stand elsewhere than ptxas has them."""
    elf = Elf.from_bytes(compiled())
    source = "\n".join(line for line in disassemble(compiled()).splitlines() if not line.startswith(".order"))
    names = [s.name for s in elf.sections[1:]]
    names.remove(".nv.compat")
    mixed = assemble(source + "\n.order " + " ".join([*names, ".nv.compat"])).to_bytes()
    found = [s.name for s in Elf.from_bytes(mixed).sections[1:]]
    assert found == [*names, ".nv.compat"] and ".order" in disassemble(mixed)
    assert [s.name for s in Elf.from_bytes(assemble(disassemble(mixed)).to_bytes()).sections[1:]] == found


def test_changed_source():
    source = disassemble(compiled())
    changed = source.replace("[R2.64], R5;", "[R2.64], R4;")
    assert changed != source
    with pytest.warns(AsmWarning, match="(?s)capsule sections.*--keep-capsule"):
        made = assemble(changed).to_bytes()
    assert not capsule_of(made) and ".nv.compat" in sections(made) and check(made) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = assemble(changed, keep_capsule=True).to_bytes()
    assert capsule_of(kept) == capsule_of(compiled())
    with pytest.warns(AsmWarning, match="capsule"):  # resources are in a capsule, too
        assert not capsule_of(assemble(source.replace(".registers", ".registers 40 #", 1)).to_bytes())


@pytest.mark.parametrize("keep", [False, True])
def test_a_changed_cubin(keep):
    cubin = Cubin.from_bytes(compiled())
    kernel = cubin.kernels[0]
    cubin.keep_capsule = keep
    kernel.words = kernel.words[:1] + kernel.words
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made = cubin.to_bytes()
    assert bool(capsule_of(made)) == keep != any("capsule" in str(one.message) for one in seen)
    listing = disassemble(cubin)  # of what was not written yet: the digest is that of the code in the file
    if not keep:
        with pytest.warns(AsmWarning, match="capsule"):
            assert not capsule_of(assemble(listing).to_bytes())


@pytest.mark.parametrize("reorder", [False, True])
def test_the_scheduler(reorder):
    cubin = Cubin.from_bytes(compiled())
    with pytest.warns(AsmWarning, match="capsule"):
        made, _ = again(cubin, "every:1", reorder=reorder)
        assert not capsule_of(made.to_bytes())
    cubin.keep_capsule = True
    assert capsule_of(again(cubin, "every:1", reorder=reorder)[0].to_bytes())


def test_what_a_search_begins_with():
    with pytest.warns(AsmWarning, match="capsule"):
        bare = without_capsule(Cubin.from_bytes(compiled()))
    assert not capsule_of(bare) and check(bare) == []
    assert Cubin.from_bytes(bare).kernels[0].words == Cubin.from_bytes(compiled()).kernels[0].words


def test_commands(tmp_path):
    source = tmp_path / "k.sass"
    source.write_text(disassemble(compiled()).replace("[R2.64], R5;", "[R2.64], R4;"))
    for options, there in (([], False), (["--keep-capsule"], True)):
        found = CliRunner().invoke(main, ["assemble", str(source), "-o", str(tmp_path / "k.cubin"), *options])
        assert found.exit_code == 0, found.output
        assert bool(capsule_of((tmp_path / "k.cubin").read_bytes())) == there != ("capsule sections" in found.output)
    given = tmp_path / "given.cubin"
    given.write_bytes(compiled())
    for options, there in (([], False), (["--keep-capsule"], True)):
        asked = ["schedule", str(given), "--all", "--yield", "every:1", "-o", str(tmp_path / "made.cubin"), *options]
        assert CliRunner().invoke(main, asked).exit_code == 0
        assert bool(capsule_of((tmp_path / "made.cubin").read_bytes())) == there


@pytest.mark.parametrize("arch", ["sm_100", "sm_120"])
def test_a_cubin_from_nothing_has_what_the_smallest_of_ptxas_has(arch):
    """Section by section; ptxas 12.9 names a note otherwise, and says less in .nv.compat than 13.0 does."""
    theirs = Elf.from_bytes(compiled(arch, ""))
    words = Cubin.from_bytes(compiled(arch, "")).kernels[0]
    lines = [line for line in disassemble(compiled(arch, "")).splitlines() if line.startswith("--")]
    source = "\n".join([f".arch {arch}", ".kernel k", f".registers {words.registers}", ".param 8", *lines])
    own = Elf.from_bytes(assemble(source.replace("BRA L_0020", "BRA 0x20")).to_bytes())
    newer = {".note.nv.cuver": ".note.nv.cuinfo"}
    capsules_own = {s.name for s in theirs.sections if s.flags & e.SHF_CAPSULE}
    left_out = capsules_own | {".debug_frame", ".rela.debug_frame"}
    assert sorted(s.name for s in own.sections) == sorted(
        newer.get(s.name, s.name) for s in theirs.sections if s.name not in left_out
    )
    heads = [(elf.abi, elf.abi_version, elf.flags, elf.type) for elf in (own, theirs)]
    assert heads[0] == heads[1]
    names = {".shstrtab", ".strtab", ".symtab", ".nv.info", ".nv.info.k"}
    versions = {".note.nv.tkinfo", ".note.nv.cuver", ".nv.compat", *names}
    for section in theirs.sections:
        if section.name in left_out:
            continue
        mine = own.section(newer.get(section.name, section.name))
        assert (mine.type, mine.flags, mine.align, mine.entry_size) == (
            section.type, section.flags, section.align, section.entry_size), section.name  # fmt: skip
        if section.name not in versions:
            assert mine.size == section.size and bytes(mine.data) == bytes(section.data), section.name
    of_13 = {"CUDA_API_VERSION", "0x5f"}  # 12.9 says 129, and nothing
    attributes, known = (
        {one.name: one.value for one in nvinfo.parse(elf.section(".nv.info.k").data) if one.name not in of_13}
        for elf in (own, theirs)
    )
    attributes["PARAM_CBANK"] = known["PARAM_CBANK"] = attributes["PARAM_CBANK"][4:]  # behind the symbol's number
    assert attributes == known
    for_all = [
        [(one.name, one.words[1:]) for one in nvinfo.parse(elf.section(".nv.info").data)] for elf in (own, theirs)
    ]
    assert for_all[0] == for_all[1]
    assert [(s.memory_size, s.flags) for s in own.segments] == [(s.memory_size, s.flags) for s in theirs.segments]


def test_the_experiment_on_the_cpu_device(tmp_path, capsys):
    """Its variants are what they are called; on a card their outcome is the question."""
    cubin = compiled()
    whole = sections(cubin)
    for name, data in capsules.variants(cubin_of_store()):
        here = sections(data)
        if name.startswith("."):
            assert name not in here and ".text.store" in here, name
    assert ".nv.capmerc.text.k" in whole
    assert capsules.main(["--device", "cpu", "-o", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())["without"]
    assert {found[capsules.STALE], found[capsules.BARE]} == {"runs the changed code"}
    assert {text for name, text in found.items() if "code changed" not in name} == {"runs"}
    assert "Error: " in capsules.run(b"no cubin", "cpu")


def cubin_of_store() -> bytes:
    from loader import nvrtc

    return nvrtc.compile(capsules.SOURCE, "sm_100")

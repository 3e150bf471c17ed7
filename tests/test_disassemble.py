"""Taking apart and putting together again: nothing in a cubin gets lost or changes."""

from __future__ import annotations

import io
import tracemalloc

import pytest

from tests.cubin import cubins
from tests.tools import nvrtc
from turingas.assembler import assemble
from turingas.cubin.cubin import Cubin
from turingas.disassembler import check, disassemble, write_source


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_stored_cubins_come_back(path):
    assert check(path.read_bytes()) == []


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_code_and_resources_come_back(path):
    before = Cubin.from_file(path)
    after = Cubin.from_bytes(assemble(disassemble(before)).to_bytes())
    assert after.arch == before.arch and len(after.texts) == len(before.texts)
    for one, two in zip(before.texts, after.texts):
        assert one == two


@pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
def test_what_nvrtc_makes_comes_back():
    count = 0
    for name, data in cubins.compiled():
        assert check(data) == [], name
        count += 1
    assert count >= 10 * len(cubins.SOURCES)


def test_the_source_is_readable():
    text = disassemble(cubins.named("flow_cuda12_sm75"))
    assert ".arch sm_75" in text and ".kernel jump" in text and ".param 8 offset=0x0" in text
    assert ".info INDIRECT_BRANCH_TARGETS L_" in text and ".long L_" in text
    assert ".reloc" in disassemble(cubins.named("flow_cuda12_sm80_rdc"))
    assert max(len(line) for line in text.splitlines()) < 1000


def test_labels_can_move():
    """An instruction put in front of everything moves the jump table and the attributes along."""
    text = disassemble(cubins.named("flow_cuda12_sm75"))
    head, tail = text.split(".kernel jump\n", 1)
    lines = tail.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(("--:", "0")) or ".word" in line)
    lines.insert(first, "--:-:-:Y:5  NOP;")
    moved = Cubin.from_bytes(assemble(head + ".kernel jump\n" + "\n".join(lines)).to_bytes()).kernel("jump")
    before = Cubin.from_bytes(cubins.named("flow_cuda12_sm75")).kernel("jump")
    table = [int.from_bytes(bytes(k.constants[2])[:4], "little") for k in (before, moved)]
    assert table[1] == table[0] + 16
    exits = [next(i.words for i in k.attributes if i.name == "EXIT_INSTR_OFFSETS") for k in (before, moved)]
    assert exits[1] == tuple(at + 16 for at in exits[0])


def test_differences_are_reported():
    cubin = Cubin.from_bytes(cubins.named("plain_cuda12_sm75"))
    changed = disassemble(cubin).replace(".param 4 offset=0x8", ".param 8 offset=0x8")
    from turingas.cubin.elf import Elf
    from turingas.cubin.split import differences

    found = differences(cubin.elf, Elf.from_bytes(assemble(changed).to_bytes()))
    assert any(line.startswith(".nv.constant0.fill: 364 bytes became 368") for line in found)
    assert any(line.startswith(".nv.info.fill") for line in found)


def test_memory_of_a_large_file_is_bounded():
    """Code is not kept as numbers while it is written: text and file are what a large cubin costs."""
    source = ".kernel large\n" + ".word 0x000fc000000000000000000000007918\n" * 20000
    data = assemble(source).to_bytes()

    class Sink(io.TextIOBase):
        def write(self, text: str) -> int:
            return len(text)

    tracemalloc.start()
    write_source(Cubin.from_bytes(data), Sink())  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * len(data) + 5_000_000

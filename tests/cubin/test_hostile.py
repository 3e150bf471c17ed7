"""Any bytes give a Cubin or a CubinError, in little time and memory."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cubin import cubins
from tests.cubin.test_elf import header
from turingas.cubin import elf
from turingas.cubin.cubin import Cubin
from turingas.cubin.elf import Elf
from turingas.errors import AsmError, CubinError

NAMES = ("plain_cuda12_sm75", "plain_cuda13_sm90a", "memory_cuda12_sm80", "plain_cuda11_sm90")
SAMPLES = [cubins.named(name) for name in NAMES]


def read_or_refuse(data: bytes) -> None:
    try:
        cubin = Cubin.from_bytes(data)
        for kernel in cubin.texts:
            assert len(kernel.words) * 16 == len(kernel.code)
        assert cubin.to_bytes() == data
    except CubinError as error:
        assert 0 <= error.offset and error.message


@given(st.binary(max_size=300))
def test_any_bytes(data):
    read_or_refuse(data)


@given(st.integers(0, len(SAMPLES) - 1), st.integers(0, 20000))
def test_cut_off(sample, length):
    read_or_refuse(SAMPLES[sample][:length])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(SAMPLES) - 1), st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8))
def test_changed_bytes(sample, changes):
    data = bytearray(SAMPLES[sample])
    for at, value in changes:
        data[at % len(data)] = value
    read_or_refuse(bytes(data))


@pytest.mark.parametrize("seed", range(4))
def test_changed_headers(seed):
    """Changes where they hurt: in the file header, section headers and tables."""
    generator = random.Random(seed)
    for _ in range(150):
        data = bytearray(generator.choice(SAMPLES))
        start = struct.unpack_from("<Q", data, 40)[0]
        for _ in range(generator.randint(1, 3)):
            at = generator.choice([generator.randrange(64), generator.randrange(start, len(data) - 8)])
            value = generator.choice([0, 1, 0xFF, 0xFFFF, 0xFFFFFFFF, 1 << 31, 1 << 62, generator.getrandbits(32)])
            struct.pack_into("<Q", data, at, value)
        read_or_refuse(bytes(data))


@pytest.mark.parametrize("seed", range(2))
def test_what_reads_also_disassembles_or_says_why(seed):
    from turingas.disassembler import disassemble

    generator = random.Random(seed)
    for _ in range(40):
        data = bytearray(generator.choice(SAMPLES))
        for _ in range(generator.randint(1, 6)):
            data[generator.randrange(64, len(data))] = generator.randrange(256)
        try:
            disassemble(Cubin.from_bytes(bytes(data)))
        except (CubinError, AsmError):
            pass


def section_bomb(count: int) -> bytes:
    """Many sections of code, symbols and tables that all refer to one another."""
    names = b"\0.shstrtab\0.strtab\0.symtab\0.text.k\0.nv.info.k\0"
    rows = elf.SYMBOL.pack(0, 0, 0, 0, 0, 0) + elf.SYMBOL.pack(0, 0x12, 0, 4, 0, 0) * count
    body = names + rows
    headers = [bytes(64), elf.SECTION.pack(1, 3, 0, 0, 64, len(names), 0, 0, 1, 0)]
    headers.append(elf.SECTION.pack(11, 3, 0, 0, 64, len(names), 0, 0, 1, 0))
    headers.append(elf.SECTION.pack(19, 2, 0, 0, 64 + len(names), len(rows), 2, 1, 8, 24))
    headers += [elf.SECTION.pack(27, 1, 6, 0, 64, 0, 3, 0xFFFFFF, 1, 0)] * count
    headers += [elf.SECTION.pack(35, 0x70000000, 64, 0, 64, 0, 3, 4, 1, 0)] * count
    return header(64 + len(body), len(headers), 1) + body + b"".join(headers)


def test_time_and_memory_stay_in_proportion():
    data = section_bomb(4000)
    tracemalloc.start()
    start = time.perf_counter()
    read_or_refuse(data)
    seconds = time.perf_counter() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 20 and peak < 60 * len(data)


def test_names_that_overlap_are_refused():
    blob = b"x" * 100000 + b"\0"
    count = 3000
    headers = bytes(64) + elf.SECTION.pack(0, 3, 0, 0, 64, len(blob), 0, 0, 1, 0)
    headers += b"".join(elf.SECTION.pack(at, 8, 0, 0, 64, 0, 0, 0, 1, 0) for at in range(count))
    with pytest.raises(CubinError, match="overlap"):
        Elf.from_bytes(header(64 + len(blob), count + 2, 1) + blob + headers)

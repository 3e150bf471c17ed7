"""Attributes of .nv.info, both ways."""

from __future__ import annotations

import pytest

from tests.cubin import cubins
from turingas.cubin import elf, nvinfo
from turingas.cubin.nvinfo import BVAL, HVAL, NVAL, SVAL, Info
from turingas.errors import CubinError


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_every_section_comes_back(path):
    for section in elf.Elf.from_bytes(path.read_bytes()).sections:
        if section.type == elf.SHT_CUDA_INFO:
            infos = nvinfo.parse(section.data)
            assert infos and nvinfo.pack(infos) == section.data


def test_formats():
    infos = [Info(NVAL, 4, 0), Info(BVAL, 0x4C, 3), Info(HVAL, 0x1B, 255), Info(SVAL, 0x1C, b"\x10\0\0\0abc")]
    assert nvinfo.parse(nvinfo.pack(infos)) == infos
    assert [info.name for info in infos] == ["CTAIDZ_USED", "NUM_BARRIERS", "MAXREG_COUNT", "EXIT_INSTR_OFFSETS"]
    assert infos[3].words == (16,) and infos[2].words == (255,)
    assert Info(NVAL, 0xEE, 0).name == "0xee"
    assert nvinfo.sval("MAX_THREADS", 64, 1, 1).value == b"\x40\0\0\0\1\0\0\0\1\0\0\0"


@pytest.mark.parametrize(
    "data, offset, text",
    [
        (b"\4", 100, "1 bytes are left"),
        (b"\x09\x01\0\0", 100, "unknown format 9"),
        (b"\1\4\0\0\4\x1c\xff\xff", 104, "longer than its section"),
    ],
)
def test_broken(data, offset, text):
    with pytest.raises(CubinError, match=text) as caught:
        nvinfo.parse(data, 100)
    assert caught.value.offset == offset

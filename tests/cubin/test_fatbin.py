"""Cubins in fat binaries: data/plain_cuda13*.fatbin is what `nvcc 13.0 -fatbin` makes of plain.cu for sm_75 and sm_80,
with -compress-mode=none and size."""

from __future__ import annotations

import random
import subprocess

import pytest
from click.testing import CliRunner

from tests.cubin.cubins import DATA, named
from tests.tools.nvrtc import package_folders
from turingas.cli import main
from turingas.cubin import fatbin
from turingas.cubin.cubin import Cubin
from turingas.errors import CubinError

PLAIN, ZSTD = DATA / "plain_cuda13.fatbin", DATA / "plain_cuda13_zstd.fatbin"


def packed(cubin, flags, data, target=80):
    """A fat binary of one cubin."""
    space = -len(data) % 8
    entry = fatbin.ENTRY.pack(
        fatbin.CUBIN, 0x101, 64, len(data) + space, len(data), 0, 0, 8, target, 0, 0, flags, 0, len(cubin)
    )
    entry += bytes(64 - len(entry)) + data + bytes(space)
    return fatbin.HEADER.pack(fatbin.MAGIC, 1, 16, len(entry)) + entry


def test_cubins_as_nvcc_put_them():
    found = list(fatbin.cubins(PLAIN))
    assert [arch for _, arch, _ in found] == ["sm_75", "sm_80"]
    for _, arch, data in found:
        assert Cubin.from_bytes(data).arch == arch
    assert [arch for _, arch, _ in fatbin.cubins(PLAIN, ["sm_80"])] == ["sm_80"]
    assert not list(fatbin.cubins(PLAIN, ["sm_90"]))


def test_zstd():
    pytest.importorskip("zstandard", reason="zstandard is not installed")
    assert list(fatbin.cubins(ZSTD)) == list(fatbin.cubins(PLAIN))
    damaged = bytearray(ZSTD.read_bytes())
    [entry, _] = fatbin.entries(bytes(damaged))
    damaged[entry.offset] ^= 1
    with pytest.raises(CubinError, match="a compressed cubin is damaged"):
        fatbin.unpack(bytes(damaged), entry)


def test_lz4():
    block = pytest.importorskip("lz4.block", reason="lz4 is not installed")
    cubin = named("plain_cuda12_sm80")
    data = packed(cubin, fatbin.LZ4 | 0x11, block.compress(cubin, store_size=False))
    [entry] = fatbin.entries(data)
    assert fatbin.unpack(data, entry) == cubin
    wrong = fatbin.Entry(entry.target, entry.flags, entry.offset, entry.size, entry.unpacked + 8)
    with pytest.raises(CubinError, match=f"offset {entry.offset:#x}: a"):
        fatbin.unpack(data, wrong)


def test_found_wherever_they_lie(tmp_path):
    """Behind anything, the magic number included, at any place."""
    one = packed(named("plain_cuda12_sm75"), 0x11, named("plain_cuda12_sm75"), 75)
    other = packed(named("plain_cuda12_sm90a"), 0x11, named("plain_cuda12_sm90a"), 90)
    library = tmp_path / "library"
    library.write_bytes(b"abc" + fatbin.MAGIC + one + fatbin.MAGIC * 3 + bytes(7) + other + one[: len(one) // 2])
    found = list(fatbin.cubins(library))
    assert found == [(1, "sm_75", named("plain_cuda12_sm75")), (2, "sm_90a", named("plain_cuda12_sm90a"))]
    assert [arch for _, arch, _ in fatbin.cubins(library, ["sm_90a"])] == ["sm_90a"]
    assert not list(fatbin.cubins(library, ["sm_90"]))


def test_any_bytes():
    """Damaged ones give a CubinError, or cubins, and no other exception."""
    dice, data = random.Random(0), PLAIN.read_bytes()
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(4):
            broken[dice.randrange(200)] = dice.randrange(256)
        for entry in fatbin.entries(bytes(broken)):
            try:
                fatbin.unpack(bytes(broken), entry)
            except (CubinError, ModuleNotFoundError):
                pass


def test_cuobjdump_lists_the_same(tmp_path):
    tool = next((f / "bin" / "cuobjdump" for f in package_folders("cu13") if (f / "bin" / "cuobjdump").is_file()), None)
    if tool is None:
        pytest.skip("cuobjdump is not installed")
    subprocess.run([tool, "-xelf", "all", PLAIN], cwd=tmp_path, check=True, capture_output=True)
    theirs = sorted(path.read_bytes() for path in tmp_path.glob("*.cubin"))
    assert theirs == sorted(data for _, _, data in fatbin.cubins(PLAIN))


def test_extract(tmp_path):
    run = CliRunner().invoke
    result = run(main, ["extract", str(PLAIN), "-o", str(tmp_path / "new"), "--arch", "80"])
    assert result.exit_code == 0 and result.output.endswith("plain_cuda13.fatbin.0002.sm_80.cubin\n")
    [path] = (tmp_path / "new").iterdir()
    assert Cubin.from_file(path).arch == "sm_80"
    assert run(main, ["check", str(path)]).output == f"{path}: identical\n"
    for words, said in (([str(PLAIN), "--arch", "sm_90"], "no cubin for sm_90 in this file"),
                        ([str(DATA / "plain.cu")], "no cubin in this file")):  # fmt: skip
        result = run(main, ["extract", *words, "-o", str(tmp_path)])
        assert result.exit_code == 1 and said in result.output and "hint:" in result.output
    assert run(main, ["extract", str(PLAIN), "--arch", "sm_10"]).exit_code == 2


def test_without_what_unpacks(monkeypatch):
    """ImportError says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    result = CliRunner().invoke(main, ["extract", str(ZSTD)])
    assert result.exit_code == 1 and "pip install lz4 zstandard" in result.output

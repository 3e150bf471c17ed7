"""What the code tells of descriptors: their table, and the values that reach a product."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tools import ptxas
from turingas import assemble, disassemble, tensor_map
from turingas.cli import main
from turingas.flow.graph import Graph
from turingas.flow.known import Known, add, told
from turingas.info import describe
from turingas.isa import descriptors
from turingas.listing import Shown

ALL = descriptors.ALL
PAGE = Path(__file__).parents[2] / "docs" / "descriptors.md"


def graph(body: str, arch: str = "sm_100a") -> Graph:
    return Graph(assemble(f".arch {arch}\n.kernel k\n" + body).kernels[0])


@pytest.mark.parametrize("kind", descriptors.KINDS)
def test_the_table(kind):
    """No two fields share a bit; what is put in comes out; the page has the same table."""
    taken = 0
    for field in descriptors.KINDS[kind]:
        bits = (1 << field.width) - 1 << field.low
        assert not taken & bits and bits < 1 << descriptors.BITS[kind], field
        taken |= bits
        for code, name in field.values.items():
            assert (field, name) in descriptors.parts(kind, code << field.low), field
            assert (field, name) not in descriptors.parts(kind, code << field.low, ALL & ~(1 << field.low))
    rows = [f"| {bits} | {name} | {values} |" for bits, name, values in descriptors.table(kind)]
    assert f"| `{kind}` bits | field | values |\n|---|---|---|\n" + "\n".join(rows) + "\n" in PAGE.read_text()


def test_a_value_of_cutlass():
    """M 128, N 128, F16 x F16 -> F32: the number that tests of tcgen05 everywhere have."""
    assert descriptors.text("UTCHMMA", 0x08200010) == "D F32, A F16, B F16, N 128, M 128"
    assert "A 7?" in descriptors.text("UTCHMMA", 0x08200010 | 7 << 7)


def test_sums_of_bits_that_are_not_known():
    """Whatever the unknown bits are, the known ones of a sum are right."""
    rng = random.Random(5)
    for _ in range(300):
        pairs = [(rng.getrandbits(64) | rng.getrandbits(64), rng.getrandbits(64)) for _ in range(2)]
        x, y = ((known, bits & known) for known, bits in pairs)
        known, bits = add(x, y)
        for _ in range(4):
            total = (x[1] | rng.getrandbits(64) & ~x[0]) + (y[1] | rng.getrandbits(64) & ~y[0]) & ALL
            assert total & known == bits
    assert add((ALL, 5), (ALL, 7)) == (ALL, 12)


@pytest.mark.parametrize("body, known", [
    ("UMOV UR4, 0x12345678;", 0x12345678),
    ("UMOV UR5, 0x100;\nUIADD3 UR4, UPT, UPT, UR5, 0x23, URZ;", 0x123),
    ("UMOV UR5, 0x1234;\nUSHF.R.U32.HI UR4, URZ, 0x4, UR5;", 0x123),
    ("UMOV UR5, 0x12;\nULEA UR4, UR5, UR5, 0x8;", 0x1212),
    ("MOV R5, 0x77;\nR2UR UR4, R5;", 0x77),
    ("UMOV UR4, 0x7;\n@UP0 UMOV UR4, 0x7;", 7),  # the same on both ways
    ("UMOV UR4, 0x7;\n@UP0 UMOV UR4, 0x8;", None),
    ("UMOV UR4, 0x7;\nL:\nUIADD3 UR4, UPT, UPT, UR4, 0x1, URZ;\n@P0 BRA L;", None),
    ("UMOV UR4, 0x7;\nL:\nUIADD3 UR6, UPT, UPT, UR4, 0x1, URZ;\n@P0 BRA L;", 7),  # around a loop
    ("UMOV UR4, 0x7;\nS2UR UR4, SR_CTAID.X;", None),
    ("NOP;", None),
])  # fmt: skip
def test_values(body, known):
    lines = [line if line.endswith(":") else f"--:-:-:-:1 {line}" for line in body.splitlines()]
    end = ["--:-:-:-:1 UMOV UR63, UR4;", "--:-:-:Y:5 EXIT;"]
    found = graph("\n".join(lines + end))
    at = next(n for n in range(len(found.instructions)) if "UR63" in found.text(n))
    mask, bits = Known(found).value(at, "UR", 4)
    assert (bits if mask == 0xFFFFFFFF else None) == known


def test_single_bits():
    """Of `x & 0x3fff | 0x10000` the upper bits are known, whatever x is."""
    body = """--:-:-:-:1 ULOP3.LUT UR4, UR4, 0x3fff, URZ, 0xc0, !UPT;
--:-:-:-:1 ULOP3.LUT UR4, UR4, 0x10000, URZ, 0xfc, !UPT;
--:-:-:-:1 UMOV UR63, UR4;\n--:-:-:Y:5 EXIT;"""
    assert Known(graph(body)).value(2, "UR", 4) == (0xFFFFC000, 0x10000)


PTX = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u32 p) {
.reg .b64 %a, %b; .reg .b32 %d, %s; .reg .pred %q; .shared .align 128 .b8 sm[16384];
mov.u32 %s, sm; shr.u32 %s, %s, 4; cvt.u64.u32 %a, %s; and.b64 %a, %a, 0x3fff; or.b64 %a, %a, 0x4000404000010000;
add.u64 %b, %a, 512; ld.param.u32 %d, [p]; setp.ne.u32 %q, %d, 0;
tcgen05.mma.cta_group::1.kind::f16 [%d], %a, %b, 0x08200010, %q;
tcgen05.mma.cta_group::1.kind::i8 [%d], %a, %b, 0x084004a0, %q;
tcgen05.mma.cta_group::1.kind::f8f6f4 [%d], %a, %b, 0x08200090, %q;
ret; }
"""


@pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")
def test_products_of_ptxas(tmp_path):
    """The fields that went into the PTX, behind ptxas' moves and sums, in every command that shows them."""
    cubin = ptxas.assemble_ptx(PTX, "sm_100a")
    listing = disassemble(cubin, Shown(descriptors=True))
    assert listing.count("swizzle 128") == 6 and "leading offset 16, stride 1024" in listing
    for text in ("D F32, A F16, B F16, N 128", "D S32, A S8, B S8, N 256", "D F32, A E5M2, B E4M3, N 128"):
        assert f"# idesc: {text}, M 128" in listing
    path = tmp_path / "product.cubin"
    path.write_bytes(cubin)
    assert assemble(listing).to_bytes() == assemble(disassemble(cubin)).to_bytes()  # comments
    shown = CliRunner().invoke(main, ["disassemble", str(path), "--descriptors"]).output
    assert shown == listing
    told_of = json.loads(CliRunner().invoke(main, ["info", str(path), "--json"]).output)["kernels"][0]["descriptors"]
    assert {"UTCHMMA", "UTCIMMA", "UTCQMMA"} == {one["instruction"] for one in told_of}
    assert "1  UTCHMMA idesc: D F32" in CliRunner().invoke(main, ["info", str(path)]).output


def test_products_of_a_warp_group():
    """A in registers: the descriptor is B's."""
    head = "--:-:-:-:1 UMOV UR5, 0x40000040;\n--:-:-:-:1 UMOV UR4, 0x10040;\n--:-:-:-:1 UMOV UR7, 0x40000080;\n"
    both = graph(head + "--:-:-:-:1 HGMMA.64x16x16.F32 R24, gdesc[UR4], R24, gsb0;\n--:-:-:Y:5 EXIT;", "sm_90a")
    assert told(both)[3] == [("A", "address 1024, leading offset 16, stride 1024, swizzle 128"),
                             ("B", "stride 2048, swizzle 128")]  # fmt: skip
    one = graph(head + "--:-:-:-:1 HGMMA.64x16x16.F32 R24, R4, gdesc[UR4], R24, gsb0;\n--:-:-:Y:5 EXIT;", "sm_90a")
    assert [of for of, _ in told(one)[3]] == ["B"]
    assert not any("descriptors" in line for line in describe(assemble("--:-:-:Y:5 EXIT;")))


def test_the_command():
    def run(*words: str) -> str:
        return CliRunner().invoke(main, ["isa", *words]).output

    assert re.search(r"^M +128$", run("--descriptor", "UTCHMMA", "0x08200010"), re.M)
    assert "22:17  N" in run("UTCHMMA", "--arch", "sm_100")
    assert json.loads(run("--descriptor", "shared-wgmma", "0x4000004000010040", "--json"))["fields"]["swizzle"] == "128"
    layout = tensor_map.Layout("float16", (64, 32), (128,), (64, 8), (1, 1), swizzle=128)
    assert re.search(r"^swizzle +128$", run("--descriptor", "tensor-map", layout.pack(0x1000).hex()), re.M)
    assert "no descriptor is called 'X'" in run("--descriptor", "X", "1")
    assert "does not fit the 32 bits" in run("--descriptor", "UTCHMMA", "0x108200010")
    assert "has 128 bytes, not 2" in run("--descriptor", "tensor-map", "0011")
    assert "is no number" in run("--descriptor", "UTCHMMA", "wide")

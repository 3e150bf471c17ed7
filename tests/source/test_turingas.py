"""The files of TuringAs's users: the same text, the same words."""

from pathlib import Path
from random import Random

import pytest

from turingas.assembler import assemble
from turingas.isa import control
from turingas.isa.isa import instruction_set
from turingas.source import read

ROWS = [
    line.split("  ", 1)
    for line in Path(__file__).with_name("turingas_words.txt").read_text().splitlines()
    if not line.startswith("#")
]

# What published kernels do: blocks in either case, comments behind ';', ranges, indices, decimal wait masks, <code>.
KERNEL = """<params>
input, 8 # parameter_name, size
clock, 8
run_warp, 4
</params>

<REGS>
0: input_lo
1:  input_hi
2, 3 : clock_lo, clock_hi
6-9: c<1-4>
10-15: vA, vB, track<0-1>, vC, vD
20-150 ~ v<0-128>
</REGS>

<consts>
const_a, 8
</consts>

--:-:0:-:2      S2R vD, SR_TID.X;
--:-:-:-:2      MOV input_lo, input[0];         // low word
--:-:-:-:4      MOV input_hi, input[1];
##########################################
--:-:-:-:2      CS2R c1, SR_CLOCKLO;
01:-:3:-:2      LDG.E.32.STRONG.CTA vA, [input_lo + 0x10]; # warm up
--:-:1:-:2      LDC.E vB, const_a[0];
15:-:-:-:4      MOV vC, const_a[1];
--:-:-:-:4      ISETP.NE.AND P0, PT, vD, run_warp, PT;
--:-:-:-:5      @!P0 EXIT;

LOOP:
<CODE>
out = []
for i in range({ROUNDS}):
    out.append(f'--:-:-:-:1    FFMA v{i}, v{i+1}.reuse, v{i+2}, v{i};')
out_ = "\\n" + "\\n".join(out) + "\\n"
</CODE>
--:-:-:-:5     MOV track0, {2**32-2};
--:-:-:-:2  @P0  BRA LOOP;
--:-:-:-:8      IMAD.WIDE clock_lo, vD, 0x6, clock_lo;
--:-:-:-:4      STG.E.SYS [clock_lo+0x1c], c1;
--:-:-:-:2      EXIT;
""".replace("{ROUNDS}", "4")

# TuringAs's words of it, its tail included.
EXPECTED = """
000e24000000210000000000000f7919
000fe40000000f000000580000007a02
000fe80000000f000000590000017a02
000fe400000050000000000000067805
001ee400001f090000001000000a7381
000e64000000080000c00000ff0b7b82
00ffe80000000f0000c00100000e7a02
000fe80003f0527000005c000f007a0c
000fea0003800000000000000000894d
040fe200000000140000001615147223
040fe200000000150000001716157223
040fe200000000160000001817167223
040fe200000000170000001918177223
000fea0000000f00fffffffe000c7802
000fe4000383ffffffffffa000000947
000ff000078e0202000000060f027825
000fe8000010e90000001c0602007386
000fe40003800000000000000000794d
000fc0000383fffffffffff000007947
000fc000000000000000000000007918
000fc000000000000000000000007918
000fc000000000000000000000007918
000fc000000000000000000000007918
000fc000000000000000000000007918
""".split()


@pytest.mark.parametrize("word, text", ROWS, ids=[row[1] for row in ROWS])
def test_same_words(word, text):
    [item] = read(f"<regs>\n</regs>\n04:0:1:Y:5 {text}").items
    assert f"{instruction_set('sm_75').encode(item.body) | control.parse(item.control):032x}" == word


def test_kernel():
    cubin = assemble(KERNEL, filename="kernel.sass")
    words = [f"{word:032x}" for word in cubin.kernels[0].words]
    assert words == EXPECTED
    assert [(param.name, param.offset, param.size) for param in cubin.kernels[0].params] == [
        ("input", 0, 8),
        ("clock", 8, 8),
        ("run_warp", 16, 4),
    ]


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_kernel_on_every_architecture(arch):
    assert len(assemble(KERNEL, arch).kernels[0].words) % 8 == 0


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_90"])
def test_what_decode_prints_is_not_rewritten(arch):
    """Every form with random operands and modifiers: reading its text as source gives the same instruction."""
    isa = instruction_set(arch)
    random = Random(75)
    texts = set()
    for form in isa.all_forms():
        for _ in range(6):
            texts.add(isa.decode(form.value | random.getrandbits(128) & form.known | 7 << 12))
    lines = [text for text in sorted(texts) if not text.startswith(".word")]
    parsed = read("\n".join(f"--:-:-:Y:4 {text};" for text in lines), arch=arch)
    assert not parsed.errors and len(lines) > 1000
    for text, item in zip(lines, parsed.items, strict=True):
        assert item.body.replace(" ", "") == text.replace(" ", "")

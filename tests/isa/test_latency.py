"""Latencies: classes, the rows of latency.csv, and both against code of ptxas and against measurements on an H200."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

import turingas
from tests.cubin import cubins
from tests.isa.words import Draw, words_of
from tests.tools.mine_behind import Mine, neighbours
from tests.tools.mine_latency import CHIPS, HMMA, SHORTER, Miner, measured, products
from tests.tools.mine_latency import table as mined
from tests.tools.ptxas import assemble_ptx, program_path
from turingas.cubin.cubin import Cubin
from turingas.errors import AsmError
from turingas.isa import latency, table
from turingas.isa.instruction import Access, Instruction, instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import EARLY, SOURCES, latencies, rate, rows

MEASURED = Path(__file__).parents[2] / "kernels_sass" / "results" / "latency_sm90.json"
ARCHS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90")


def decoded(text: str, arch: str, control: str = "--:-:-:Y:1") -> Instruction:
    target = "\nOTHER:" if "OTHER" in text else ""
    (word,) = turingas.encode(f"{control}  {text};{target}", arch=arch)
    found = instruction(instruction_set(arch), word)
    assert found is not None
    return found


def access(of: tuple[Access, ...], register: str) -> Access:
    """The one that names ``register``, such as R4."""
    file, index = register.rstrip("0123456789"), int(register.lstrip("URPB"))
    return next(a for a in of if a.file == file and a.first <= index < a.first + a.count)


def need(arch: str, first: str, second: str, register: str) -> int:
    """Cycles between a writer and a reader of a register."""
    i, j = decoded(first, arch), decoded(second, arch)
    return latencies(arch).raw(i, access(i.writes, register), j, access(j.reads, register))


def test_rows() -> None:
    seen = set()
    for row in rows():
        key = (row["arch"], row["hazard"], row["file"], row["first"], row["second"])
        assert key not in seen, key
        seen.add(key)
        assert row["arch"] in (*ARCHS, "sm_100", "sm_120", *CHIPS) and row["source"]
        assert 1 <= int(row["cycles"]) <= (512 if row["hazard"] == "issue" else 64)
        assert row["hazard"] in ("raw", "waw", "war", "issue", "behind")
        assert row["file"] in ("R", "P", "UR", "UP", "BAR", "")
    assert {key[0] for key in seen} == {*ARCHS, "sm_100", "sm_120", *CHIPS}


def test_chips_have_rows_of_their_own() -> None:
    """FP64 of sm_103 and sm_110 is that of sm_120; all else is sm_100's."""
    rate = {arch: latencies(arch).issue(decoded("DFMA R4, R8, R12, R4", arch))
            for arch in ("sm_100", "sm_100a", "sm_103", "sm_103a", "sm_103f", "sm_110", "sm_120")}  # fmt: skip
    assert rate == {arch: 2 if arch.startswith("sm_100") else 64 for arch in rate}
    ours, line = latencies("sm_103").cycles, latencies("sm_100").cycles
    assert [key for key in line if line[key] != ours[key]] == [("issue", "", "fp64", "")] and line.keys() == ours.keys()
    kept = [",".join(row.values()) for row in rows() if row["arch"] in CHIPS]
    assert kept == list(CHIPS.values())  # as the miner writes them


@pytest.mark.parametrize(
    "first, second, register, volta, ampere, hopper",
    [
        ("FFMA R4, R1, R2, R3", "FFMA R5, R4, R2, R3", "R4", 4, 4, 4),
        ("IADD3 R4, R1, R2, R3", "LOP3.LUT R5, R4, R2, R3, 0x96, !PT", "R4", 4, 4, 4),
        ("IADD3 R4, R1, R2, R3", "FFMA R5, R4, R2, R3", "R4", 5, 5, 5),
        ("FFMA R4, R1, R2, R3", "IADD3 R5, R4, R2, R3", "R4", 5, 5, 5),
        ("IADD3 R4, R1, R2, R3", "STS [R6], R4", "R4", 6, 4, 4),
        ("IADD3 R4, R1, R2, R3", "LDS R5, [R4]", "R4", 8, 5, 5),
        ("IADD3 R4, R1, R2, R3", "MUFU.RCP R5, R4", "R4", 6, 4, 4),
        ("HADD2 R4, R1, R2", "IADD3 R5, R4, R2, R3", "R4", 8, 5, 5),
        ("ISETP.EQ.AND P0, PT, R1, R2, PT", "@P0 MOV R3, R4", "P0", 12, 13, 13),
        ("ISETP.EQ.AND P0, PT, R1, R2, PT", "@!P0 BRA OTHER", "P0", 12, 13, 13),
        ("ISETP.EQ.AND P0, PT, R1, R2, PT", "SEL R3, R4, R5, P0", "P0", 4, 4, 4),
        ("IADD3 R4, P0, R1, R2, RZ", "IADD3.X R5, R1, R2, RZ, P0, !PT", "P0", 4, 4, 4),
    ],
)
def test_what_an_engineer_knows(first: str, second: str, register: str, volta: int, ampere: int, hopper: int) -> None:
    """The well-known latencies of the pipes: four cycles within FP32 and within the ALU, five between them (Jia et al.,
    2018 and 2019, for Volta and Turing), and so on."""
    found = [need(arch, first, second, register) for arch in ARCHS]
    assert found == [volta, volta, ampere, ampere, ampere, hopper]


@pytest.mark.parametrize("arch", [*ARCHS, "sm_100", "sm_120"])
def test_stalls_behind_calls(arch: str) -> None:
    """ptxas stalls for 5 behind each, but for 1 behind those with a guard on sm_80, sm_86 and sm_89."""
    rules = latencies(arch)
    assert rules.behind(decoded("CALL.REL.NOINC OTHER", arch)) == 5
    assert rules.behind(decoded("@P0 CALL.REL.NOINC OTHER", arch)) == (1 if arch.startswith("sm_8") else 5)
    assert rules.behind(decoded("@P0 EXIT", arch)) == rules.behind(decoded("BSYNC B0", arch)) == 5


def test_a_shift_of_tensor_memory_stalls() -> None:
    assert latencies("sm_100").behind(decoded("UTCSHIFT.DOWN tmem[UR4]", "sm_100a")) == 12


def test_what_is_mined_behind_branches() -> None:
    """A stall that is shorter than the row says is told, with its place."""
    mine = Mine()
    lines = ["--:-:-:-:5 @P0 EXIT;", "--:-:-:-:2 @P1 EXIT;", "--:-:-:Y:5 EXIT;", "end:", "--:-:-:Y:0 BRA end;"]
    mine.add(turingas.assemble("\n".join(lines), "sm_90").texts[0])
    assert mine.seen["sm_90", "EXIT"] == {5: 2, 2: 1} and mine.guarded["sm_90", "EXIT"] == 1
    assert mine.example["sm_90", "EXIT", 2].split("+")[1].startswith("0x10: @P1 EXIT")
    assert set(mine.example) == {("sm_90", "EXIT", 2)}, "of the branch to itself, which ends the code, nothing is told"


HALVES = """.version 8.8
.target {0}
.address_size 64
.visible .entry k(.param .u64 p)
{{
.reg .b32 %a<16>, %b;
.reg .b64 %p;
ld.param.u64 %p, [p];
{1}
ret;
}}"""


@pytest.mark.skipif(program_path() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_89", "sm_100", "sm_120"])
def test_the_pace_of_halves_is_that_of_ptxas(arch: str) -> None:
    """Products that do not wait for each other begin as far apart as the row says. (On sm_80 and sm_90 ptxas takes
    turns with HFMA2.MMA, which has a pipe of its own.)"""
    lines = [f"ld.global.b32 %a{n}, [%p+{4 * n}];" for n in range(16)] + ["ld.global.b32 %b, [%p+80];"]
    lines += [f"fma.rn.f16x2 %a{n}, %a{n}, %b, %b;" for _ in range(3) for n in range(16)]
    lines += [f"st.global.b32 [%p+{4 * n}], %a{n};" for n in range(16)]
    kernel = turingas.Cubin.from_bytes(assemble_ptx(HALVES.format(arch, "\n".join(lines)), arch)).texts[0]
    seen: Counter[tuple[str, str, int]] = Counter()
    neighbours(kernel, ["HFMA2"], seen)
    stalls = Counter(cycles for (_, _, cycles), count in seen.items() for _ in range(count))
    row = latencies(arch).issue(decoded("HFMA2 R4, R1, R2, R3", arch))
    assert min(stalls) == row == stalls.most_common(1)[0][0] == 2


def test_branches_wait_for_uniform_predicates() -> None:
    """What an H200 told by hanging: BRA.U 4 cycles behind UISETP takes the old predicate."""
    pair = "UISETP.NE.AND UP0, UPT, UR4, UR5, UPT", "BRA.U UP0, OTHER"
    assert [need(arch, *pair, "UP0") for arch in ARCHS[2:]] == [11, 11, 11, 8]


def test_words_of_a_pair_differ() -> None:
    """The low word of IMAD.WIDE is there before the high one, and a source c is read in two steps."""
    wide = "IMAD.WIDE.U32 R4, R1, R2, RZ"
    assert need("sm_90", wide, "IADD3 R8, R4, R2, R3", "R4") < need("sm_90", wide, "IADD3 R8, R5, R2, R3", "R5")
    c = "IMAD.WIDE.U32 R8, R1, R2, R4"
    assert need("sm_90", "MOV R5, R1", c, "R5") < need("sm_90", "MOV R4, R1", c, "R4")
    i, j = decoded(wide, "sm_90"), decoded("IADD3 R8, R6, R2, R3", "sm_90")
    assert latencies("sm_90").raw(i, i.writes[0], j, j.reads[0]) == 0  # R4 and R5 are not R6


def test_other_files_do_not_meet() -> None:
    i, j = decoded("UMOV UR4, UR5", "sm_75"), decoded("MOV R8, R4", "sm_75")
    assert latencies("sm_75").raw(i, i.writes[0], j, j.reads[0]) == 0


VARIABLE = [  # instruction, on which architectures its result needs a scoreboard
    ("FFMA R4, R1, R2, R3", ""),
    ("LDS R4, [R2]", "70 75 80 86 89 90"),
    ("MUFU.RCP R4, R2", "70 75 80 86 89 90"),
    ("LDC R4, c[0x0][R2]", "70 75 80 86 89 90"),
    ("S2R R4, SR_TID.X", "70 75 80 86 89 90"),
    ("DADD R4, R2, R6", "70 75 80 86 89"),
    ("HADD2 R4, R2, R6", ""),
    ("R2UR UR4, R2", "75 80 86 89"),
    ("ULDC UR4, c[0x0][0x28]", ""),
]


@pytest.mark.parametrize("text, archs", VARIABLE)
def test_variable(text: str, archs: str) -> None:
    for arch in ARCHS:
        if arch == "sm_70" and "UR" in text:
            continue
        i = decoded(text, arch)
        assert latencies(arch).variable(i, i.writes[0]) == (arch[3:] in archs.split()), arch


def test_tensor_cores() -> None:
    """Turing waits for scoreboards; from Ampere on ptxas uses either, and for DMMA always scoreboards."""
    old = decoded("HMMA.1688.F32 R4, R8, R10, R12", "sm_75")
    assert latencies("sm_75").variable(old, old.writes[0])
    text = "HMMA.16816.F32 R4, R8, R12, R16"
    for control, variable in (("--:-:-:Y:1", False), ("--:-:0:Y:1", True)):
        i = decoded(text, "sm_80", control)
        assert latencies("sm_80").variable(i, i.writes[0]) == variable
        assert latencies("sm_80").late(i, i.reads[0]) == variable
    dmma = decoded("DMMA.884 R4, R8, R10, R12", "sm_80")
    assert latencies("sm_80").variable(dmma, dmma.writes[0])


def test_late() -> None:
    rules = latencies("sm_90")
    store = decoded("@P1 STG.E desc[UR4][R2.64], R6", "sm_90")
    assert [a.file for a in store.reads if rules.late(store, a)] == ["R", "R"]  # neither the guard nor UR4
    copy = decoded("UTMASTG.2D [UR8], [UR4]", "sm_90")
    assert all(rules.late(copy, a) for a in copy.reads)
    for text in ("FFMA R4, R1, R2, R3", "BAR.SYNC R2, R3", "WARPSYNC R2"):
        i = decoded(text, "sm_90") if "BAR" not in text else decoded("BAR.SYNC R2", "sm_90")
        assert not any(rules.late(i, a) for a in i.reads), text


def test_queues_and_scoreboards() -> None:
    for arch in ("sm_75", "sm_90"):
        rules = latencies(arch)
        load, store, special = (decoded(t, arch) for t in ("LDS R4, [R2]", "STS [R2], R4", "MUFU.RCP R4, R2"))
        assert rules.queue(load) == rules.queue(store) == "lsu"
        assert rules.queue(special) not in ("", "lsu")
        assert rules.queue(decoded("FADD R1, R2, R3", arch)) == ""
        assert rules.releases(load) == (True, True)
        assert rules.releases(store) == (True, False)
        assert rules.releases(decoded("EXIT", arch)) == (False, False)
        assert rules.releases(decoded("FADD R1, R2, R3", arch)) == (False, False)


def test_predicate_of_atom() -> None:
    text = "ATOM.E.ADD.64.STRONG.GPU P0, RZ, {}[R4.64], R6"
    new, old = decoded(text.format("desc[UR4]"), "sm_90"), decoded(text.format("desc[UR4]"), "sm_80")
    assert latencies("sm_90").with_read(new, new.writes[0]) and not latencies("sm_80").with_read(old, old.writes[0])


def test_issue() -> None:
    text = "FFMA R4, R1, R2, R3"
    assert [latencies(arch).issue(decoded(text, arch)) for arch in ("sm_70", "sm_75", "sm_86", "sm_90")] == [2, 2, 1, 1]
    moves = ("MOV R4, R1", "PRMT R4, R1, 0x5410, R2")
    assert [latencies("sm_120").issue(decoded(text, "sm_120")) for text in moves] == [1, 2]
    assert [latencies("sm_100").issue(decoded(text, "sm_100")) for text in moves] == [2, 2]


@pytest.mark.parametrize("arch", ARCHS)
def test_every_product_has_a_rate(arch: str) -> None:
    """Each form of a matrix product has a row, and no row is of none."""
    rules, seen, isa = latencies(arch), set(), instruction_set(arch)
    for base in (name for name, op in table.OPS.items() if op.pipe in ("tensor", "wgmma")):
        for form in isa.forms.named(base):
            for word in words_of(isa, form, 12, Draw(base)):
                i = instruction(isa, word)
                assert i is not None and ("issue", "", rate(i), "") in rules.cycles, i
                seen.add(rate(i))
    rows_of = {first for hazard, _, first, _ in rules.cycles if hazard == "issue"}
    assert seen == {name for name in rows_of if "MMA" in name or name == "wgmma"}


def test_rates_are_those_of_their_sources() -> None:
    """As the miner writes them, from what is published and from `bench hmma`."""
    for arch in ARCHS:
        there = [row for row in rows() if (row["arch"], row["hazard"]) == (arch, "issue")]
        kept = [",".join(row.values()) for row in there if "MMA" in row["first"] or row["first"] == "wgmma"]
        assert kept == list(products(arch, HMMA))


def test_rates_of_products() -> None:
    """By shape, twice as fast if sparse; of a warp group by the columns. On sm_90 as `bench hmma` measured them."""

    def cycles(arch: str, text: str) -> int:
        return latencies(arch).issue(decoded(text, arch))

    hmma, sparse = "HMMA.16816.F32 R4, R8, R12, R4", "HMMA.SP.16832.F32 R4, R8, R12, R4, R16, 0x0"
    assert [cycles(arch, hmma) for arch in ("sm_80", "sm_86", "sm_89", "sm_90")] == [8, 16, 16, 6]
    assert [cycles(arch, sparse) for arch in ("sm_80", "sm_86", "sm_90")] == [8, 16, 8]
    assert cycles("sm_75", "HMMA.1688.F32 R4, R8, R10, R4") == 8
    assert cycles("sm_70", "HMMA.884.F32.F32.STEP0 R4, R8.ROW, R10.COL, R4") == 2
    assert cycles("sm_80", "IMMA.16832.S4.S4 R4, R8.ROW, R10.COL, R4") == 4
    for n, wanted in ((8, 4), (64, 32), (256, 128)):
        assert cycles("sm_90", f"HGMMA.64x{n}x16.F32 R24, gdesc[UR4], R24") == wanted
    # those of tensor memory are issued, and done elsewhere; what they take stands in a register
    assert cycles("sm_100a", "UTCHMMA gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UPT") == 1
    found = json.loads((MEASURED.parent / "hmma_sm90.json").read_text())["settings"]
    for name, row in found.items():  # never more than was measured, and close to it but for the narrowest
        if (name.startswith("HGMMA.64x") or name.startswith("HMMA.16816")) and " a scheduler" in name:
            sources = "gdesc[UR4], R24" if "GMMA" in name else "R8, R12, R24"
            one = cycles("sm_90", f"{row['op']} R24, {sources}")
            assert one <= row["cpi"] and ("64x8x" in name or row["cpi"] < 1.11 * one), name


def test_strangers() -> None:
    with pytest.raises(AsmError, match="unknown architecture"):
        latencies("sm_12")


def test_barriers() -> None:
    """A barrier is kept like a register: BAR writes it, and what touches anything outside of the warp reads it."""
    for arch, cycles in zip(ARCHS, (5, 5, 6, 6, 6, 6), strict=True):
        rules = latencies(arch)
        barrier, load = decoded("BAR.SYNC 0x0", arch), decoded("LDS R4, [R2]", arch)
        (wrote,), read = rules.writes(barrier), rules.reads(load)[-1]
        assert wrote.file == read.file == "BAR" and rules.raw(barrier, wrote, load, read) == cycles
        assert not rules.variable(barrier, wrote) and not rules.late(load, read)
        for text in ("FADD R1, R2, R3", "NOP"):
            other = decoded(text, arch)
            assert rules.reads(other) == other.reads and rules.writes(other) == other.writes
        waits = decoded("DEPBAR.LE SB0, 0x0", arch)
        (wrote,) = rules.writes(waits)
        assert rules.reads(waits) == () and rules.raw(waits, wrote, load, read) == 4
        arrives = decoded("BAR.ARV 0x0, 0x40", arch)
        assert rules.writes(arrives) == arrives.writes and rules.reads(arrives) != arrives.reads


def test_sources_of_the_uniform_datapath() -> None:
    """They are kept like registers beside UR: who reads late writes them, who may overtake that reads them."""
    assert {row["file"] for row in rows() if row["hazard"] == "war"} == {"UR"}  # SOURCES has no others
    for arch in ARCHS[1:]:
        rules = latencies(arch)
        wide, move = decoded("UIMAD.WIDE UR8, UR9, 0x4, UR32", arch), decoded("UMOV UR33, UR4", arch)
        late, (over,) = rules.writes(wide)[len(wide.writes) :], rules.reads(move)[len(move.reads) :]
        assert {register for a in late for register in range(a.first, a.first + a.count)} == {9, 32, 33}
        assert {a.file for a in (*late, over)} == {SOURCES} and (over.first, over.count) == (33, 1)
        assert [rules.raw(wide, a, move, over) for a in late if a.first == 32] == [3]
        assert [rules.raw(wide, a, move, over) for a in late if a.first == 9] == [0]
        assert rules.war(wide, access(wide.reads, "UR32"), move, move.writes[0]) == 3
        for text in ("IADD3 R1, R2, UR32, RZ", "FADD R1, R2, R3"):
            other = decoded(text, arch)
            assert rules.reads(other) == other.reads and rules.writes(other) == other.writes
        assert rules.reads(wide) == wide.reads and rules.writes(move) == move.writes


MINED = """
--:-:-:-:2  MOV R4, R1;
--:-:-:-:3  @P0 BRA NEAR;
--:-:-:-:6  NOP;
NEAR:
--:-:-:-:1  FADD R5, R4, R2;
--:-:-:-:1  @P1 MOV R6, R1;
--:-:-:-:1  @!P1 FADD R7, R6, R2;
--:-:-:-:4  MOV R8, R1;
--:-:0:-:2  LDS R9, [R2];
01:-:-:-:1  FADD R10, R9, R8;
--:-:-:-:2  BAR.SYNC 0x0;
--:-:-:-:4  MOV R8, R1;
--:-:-:-:2  STS [R2], R8;
"""


def test_what_the_miner_finds() -> None:
    """The shorter of two ways, nothing between guards that exclude each other, nothing behind a variable result."""
    words = turingas.encode(MINED, arch="sm_75")
    miner = Miner("sm_75")
    miner.add("mined", "sm_75", words)
    assert miner.found["raw", "R", "alu", "fma"] == {5: 1, 11: 1, 6: 1}  # R4 by both ways, R8
    assert {key for key in miner.found if key[0] == "raw" and key[1] == "R"} == {
        ("raw", "R", "alu", "fma"),
        ("raw", "R", "alu", "data"),
    }
    assert miner.found["raw", "BAR", "BAR", "lsu"] == {6: 1}


@pytest.mark.parametrize("row", SHORTER, ids=lambda row: " ".join(row))
def test_a_new_run_of_the_miner_keeps_what_libraries_have_shown(row: tuple[str, ...]) -> None:
    """The row of latency.csv is what the miner makes of ptxas's distance, which the row names."""
    lines = Path(latency.__file__).with_suffix(".csv").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(",".join(row) + ",")]
    source = line.split(",")[-1].strip('"')
    _, was, *measured_too = source.split("; ")
    before, _, cycles = was.rpartition(" is ")
    miner = SimpleNamespace(rows=lambda: [(*row[1:], int(cycles), "; ".join([before, *measured_too]))], found={})
    assert list(mined(row[0], miner, {})) == [line.replace('"', "")]  # type: ignore[arg-type]


def test_no_row_asks_for_more_than_ptxas_leaves() -> None:
    """The stored cubins, of three compilers: nowhere does an instruction stand closer than the table wants it."""
    miners: dict[str, Miner] = {}
    for path in cubins.STORED:
        cubin = Cubin.from_file(path)
        miner = miners.setdefault(latencies(cubin.arch).arch.latency, Miner(cubin.arch))
        for text in cubin.texts:
            miner.add(path.name, cubin.arch, text.words)
    checked = 0
    for name, miner in miners.items():
        cycles = latencies(name).cycles
        for (hazard, file, first, second), cases in miner.found.items():
            wanted = cycles.get((hazard, file, first, second))
            if wanted is None and second not in EARLY:
                wanted = cycles.get((hazard, file, first, "any"))
            assert min(cases) >= (wanted or 1), (name, hazard, file, first, second, miner.where)
            checked += 1
    assert checked > 100


def test_rows_tell_what_an_h200_needs() -> None:
    """The table was made with the measurements that are kept."""
    told = 0
    sources = {tuple(row[x] for x in ("hazard", "file", "first", "second")): row["source"]
               for row in rows() if row["arch"] == "sm_90"}  # fmt: skip
    for key, there in measured(MEASURED).items():
        if key in sources:
            span = f"{min(there)} to {max(there)}" if min(there) < max(there) else f"{min(there)}"
            assert sources[key].endswith(f"H200: {span}"), key
            told += 1
    assert told > 50


def test_no_row_asks_for_less_than_an_h200_needs() -> None:
    results = json.loads(MEASURED.read_text())["results"]
    checked = 0
    for row in results:
        if row["cycles"] is not None:
            i, j = (decoded(row[of].split(";")[0], "sm_90") for of in ("producer", "consumer"))
            need = getattr(latencies("sm_90"), row["hazard"])
            found = [
                need(i, write, j, other)
                for write in i.writes
                for other in (j.reads if row["hazard"] == "raw" else j.writes)
                if write.file == other.file == row["file"]
            ]
            assert max(found) >= row["cycles"], row
            checked += 1
    assert checked > 300


@pytest.mark.parametrize("arch", ARCHS)
def test_the_place_that_comes_first_needs_the_most(arch: str) -> None:
    """An instruction may read one register in two places; Effects.reads keeps the first of them: guard before others,
    the address before the data, a before c. No other place may ask for more cycles, or lint would miss that."""
    later = {"wide.ab": ("wide.c.low", "wide.c.high"), "address": ("data",), "tensor": ("tensor.c",)}
    cycles, compared = latencies(arch).cycles, 0
    for (hazard, file, first, second), need in cycles.items():
        others = later.get(second, ())
        if hazard == "raw" and second == "guard":
            others = tuple(place for h, f, w, place in cycles if (h, f, w) == (hazard, file, first))
        for other in others if hazard == "raw" else ():
            if (wanted := cycles.get((hazard, file, first, other))) is not None:
                assert wanted <= need, (file, first, second, other)
                compared += 1
    assert compared


#: What Mesa's compiler NAK (MIT) has for sm_100, in src/nouveau/compiler/latencies/sm100: file, writer, readers.
PUBLISHED = """
R alu alu:4 fma:5 half:5 fp64:6 wide.ab:5 wide.c.low:5 wide.c.high:3 tensor:7 address:5 data:4
R fma alu:5 fma:4 half:5 fp64:6 wide.ab:4 wide.c.low:4 wide.c.high:2 address:5 data:4
R half alu:5 fma:5 half:4 fp64:6 wide.ab:5 wide.c.low:5 wide.c.high:3 address:5 data:4
R fp64 alu:10 fma:10 fp64:8 address:7 data:6
R wide.low alu:3 fma:2 wide.c.low:2 address:5 data:4
R wide.high alu:5 fma:4 wide.c.high:2 address:5 data:4
P alu alu:4 fma:5 guard:13
P fma alu:5 fma:4 guard:13
P fp64 alu:6 fp64:6 guard:14
UR uniform uniform:4 umove:7 vector:6 queue:9 constant:12
UR umove uniform:2 umove:2 vector:2 queue:2 branch:3 constant:5
UR r2ur uniform:13 umove:13 vector:13 queue:13 branch:13 constant:15
UP uniform alu:6 uniform:4 guard:11 branch:9
"""


def test_blackwell_is_no_shorter_than_published() -> None:
    rules, less = latencies("sm_100"), set()
    for line in PUBLISHED.split("\n")[1:-1]:
        file, first, *readers = line.split()
        for second, cycles in (one.split(":") for one in readers):
            ours = rules.cycles.get(("raw", file, first, second)) or rules.cycles["raw", file, first, "any"]
            if ours < int(cycles):
                less.add((file, first, second, ours))
    assert not less

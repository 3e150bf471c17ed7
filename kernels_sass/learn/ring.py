"""What 09_hgemm.sass and ../gemm.sass include: the ring of stages with its mbarriers, and which tile of C a block
computes. Registers have the names that the sources give them."""

from typing import Any


def lines(*those: str) -> str:
    return "\n".join(those)


def given(name: str, default: Any, *allowed: Any) -> Any:
    """What -D says of a parameter; 0 and 1 are allowed if nothing else is."""
    value = globals().get(name, default)
    if value not in (allowed or (0, 1)):
        raise ValueError(f"{name}={value}: there are {', '.join(map(str, allowed or (0, 1)))}")
    return value


# ---- stages: the parity of a phase, bit 31 of ``phase``, tells a round of the ring from the next -------------------


def pending(count: int) -> tuple[int, int]:
    """The two words of an mbarrier for so many arrivals."""
    return (0x100000 - count) << 1, (0x100000 - count) << 11 & 0xFFFFFFFF


def mbarriers(stages: int, full: int, empty: int, readers: int) -> str:
    """One thread makes those of all stages: FULL, for the lane that loads, and its bytes; EMPTY, for ``readers``."""
    words = (f"UMOV UR{8 + n}, {word};" for n, word in enumerate((*pending(1), *pending(readers))))
    return lines(*words, *(f"--:0:1:-:2 SYNCS.EXCH.64 URZ, [here+{at + 8 * n}], UR{register};"
                           for n in range(stages) for at, register in ((full, 8), (empty, 10))),
                 "03:-:0:-:9 FENCE.VIEW.ASYNC.S;", "01:-:-:Y:d NOP;")  # fmt: skip


def wait(name: str, mbarrier: str) -> str:
    return lines(f"{name}:", f"SYNCS.PHASECHK.TRANS64.TRYWAIT ready, {mbarrier}, phase;", f"@!ready BRA {name};")


def advance(stages: int) -> str:
    """On to the next stage; behind the last one the phase changes."""
    return f"""
        UIADD3 stage, stage, 0x1, URZ;
        UISETP.NE.AND UP1, UPT, stage, {stages}, UPT;
        USEL stage, stage, URZ, UP1;
        USEL UR15, URZ, 0x80000000, UP1;
        LOP3.LUT phase, phase, UR15, RZ, 0x3c, !PT;"""


# ---- the lane that loads, and tensor maps ---------------------------------------------------------------------------


def one_lane(registers: int) -> str:
    """The warp group that loads gives all registers but these away; all lanes but one go to ``finish``, and that one if
    there is no tile for it."""
    return f"""
        --:-:0:Y:0 USETMAXREG.DEALLOC.CTAPOOL {registers};
        01:-:-:Y:d NOP;
        ISETP.GT.U32.AND P0, PT, tid, 0x1f, PT;
        @P0 BRA finish;
        WARPSYNC.ALL;
        ELECT P0, URZ, PT;
        @!P0 BRA finish;
        ISETP.GE.U32.AND P0, PT, tile, tiles, PT;
        @P0 BRA finish;"""


def map_at(register: int, place: int) -> str:
    """The address of a tensor map: so far into the parameters, which lie at UR6."""
    return lines(f"UIADD3 UR{register}, UP2, UR6, {place}, URZ;",
                 f"UIADD3.X UR{register + 1}, URZ, UR7, URZ, UP2, !UPT;")  # fmt: skip


# ---- tiles: in panels of some rows, so that those at work at one time read few rows of A and of B ------------------


def counted(rows: int, columns: int, group: int, slices: str = "") -> str:
    """How many ``tiles`` there are (``slices``: a parameter, how many times), and ``tiles_m`` below each other, of
    ``rows`` (a cluster's); how many a panel of ``group`` rows of them has, and 1 / that."""
    times = f"IMAD tiles, tiles, {slices}, RZ;" if slices else ""
    return f"""
        MOV f, M;
        IADD3 f, f, {rows - 1}, RZ;
        SHF.R.U32.HI tiles_m, RZ, {rows.bit_length() - 1}, f;
        MOV f, N;
        IADD3 f, f, {columns - 1}, RZ;
        IMAD.HI.U32 f, f, {-(-2**32 // columns)}, RZ;
        IMAD tiles, f, tiles_m, RZ;
        {times}
        IMAD per_panel, f, {group}, RZ;
        I2FP.F32.U32 f, per_panel;
        MUFU.RCP per_panel_, f;"""


def quotient(q: str, x: str, reciprocal: str) -> str:
    """Whole, by way of floats: right as long as there are fewer than two million tiles."""
    return f"""
        I2FP.F32.U32 f, {x};
        FADD f, f, 0.5;
        FMUL f, f, {reciprocal};
        F2I.FTZ.U32.TRUNC.NTZ {q}, f;"""


def place(group: int, cluster: int, tile: str = "tile") -> str:
    """Row m and column n, in tiles, of a tile's number: down a panel of ``group`` rows, then the next column of it."""
    return lines(quotient("g", tile, "per_panel_"), f"""
        IMAD n, g, per_panel, RZ;
        IADD3 n, {tile}, -n, RZ;
        IMAD m, g, {group}, RZ;
        IADD3 h, tiles_m, -m, RZ;
        IMNMX.U32 h, h, {group}, PT;                # the last panel may have fewer
        I2FP.F32.U32 g, h;
        MUFU.RCP g, g;""", quotient("g", "n", "g"), f"""
        IADD3 m, m, n, RZ;
        IMAD h, g, h, RZ;
        IADD3 m, m, -h, RZ;
        MOV n, g;
        IMAD m, m, {cluster}, RZ;
        IADD3 m, m, rank, RZ;""")  # fmt: skip

"""What the inline Python of hgmma.sass, hgmma_wide.sass and hgmma_window.sass has in common."""


def lines(*those):
    return "\n".join(those)


def pending(count):
    """The two words of an mbarrier for so many arrivals."""
    return (0x100000 - count) << 1, (0x100000 - count) << 11 & 0xFFFFFFFF


def wait(name, mbarrier, phase="phase"):
    return lines(f"{name}:", f"SYNCS.PHASECHK.TRANS64.TRYWAIT ready, {mbarrier}, {phase};", f"@!ready BRA {name};")


def advance(at, phase, count):
    """On to the next of ``count`` stages, or windows; behind the last one the phase (bit 31) changes."""
    return f"""
        UIADD3 {at}, {at}, 0x1, URZ;
        UISETP.NE.AND UP1, UPT, {at}, {count}, UPT;
        USEL {at}, {at}, URZ, UP1;
        USEL UR15, URZ, 0x80000000, UP1;
        LOP3.LUT {phase}, {phase}, UR15, RZ, 0x3c, !PT;"""


def past(at, phase, count):
    """``at``, a uniform register, becomes stage or window f, which is counted on beyond the ``count`` that there are;
    each time round changes the phase."""
    return lines(f"IMAD.HI.U32 g, f, {-(-2**32 // count)}, RZ;", f"IMAD h, g, {-count}, f;", f"R2UR {at}, h;",
                 "SHF.L.U32 g, g, 0x1f, RZ;", f"LOP3.LUT {phase}, {phase}, g, RZ, 0x3c, !PT;")


def aim(size, full, at_b, base="URZ"):
    """The next stage, of ``size`` bytes: UR13 is its FULL, UR8 and UR10 the low words of the descriptors of A (from
    UR30 on) and B (from ``at_b``); rows of 128 bytes, swizzled. ``base``: of the addresses of mbarriers."""
    return lines(f"ULEA UR13, stage, {base}, 0x3;", f"UIADD3 UR13, UR13, {full}, URZ;",
                 f"UIMAD UR16, stage, {size >> 4}, URZ;", "UIADD3 UR8, UR30, UR16, URZ;",
                 f"UIADD3 UR10, UR16, {at_b >> 4}, URZ;",
                 *(f"ULOP3.LUT UR{n}, UR{n}, 0x10000, URZ, 0xfc, !UPT;" for n in (8, 10)))


def one_lane(few):
    """The warp group that loads: all but one lane go to ``finish``, as does that without a tile. It needs ``few``
    registers, and has UR24, UR26: the maps of x and the filters, and UR28: channels."""
    return f"""
        --:-:0:Y:0 USETMAXREG.DEALLOC.CTAPOOL {few};
        01:-:-:Y:d NOP;
        ISETP.GT.U32.AND P0, PT, tid, 0x1f, PT;
        @P0 BRA finish;
        WARPSYNC.ALL;
        ELECT P0, URZ, PT;
        @!P0 BRA finish;
        ISETP.GE.U32.AND P0, PT, tile, tiles, PT;
        @P0 BRA finish;
        UIADD3 UR24, UP2, UR6, 0x30, URZ;
        UIADD3.X UR25, URZ, UR7, URZ, UP2, !UPT;
        UIADD3 UR26, UP2, UR6, 0xb0, URZ;
        UIADD3.X UR27, URZ, UR7, URZ, UP2, !UPT;
        ULDC UR28, channels;"""


def corner(steps=("stride_h", "stride_w")):
    """UR19 to UR21: column, row, image of what the first place of a filter sees from pixel m on."""
    down, across = ([f"IMAD {at}, {at}, {step}, RZ;"] if step else [] for at, step in zip("fh", steps))
    return lines(divided("f", "g", "m", "PQ", "PQ_inverse"), "R2UR UR21, f;", divided("f", "h", "g", "Q", "Q_inverse"),
                 *down, "IADD3 f, f, -pad_h, RZ;", *across, "IADD3 h, h, -pad_w, RZ;", "R2UR UR20, f;", "R2UR UR19, h;")


def next_chunk(channels):
    """For the lane that loads, behind a stage: on to the next column of the filter (UR37, of UR29), or the next row,
    and behind the last place (UR39) to the next ``channels`` of x (UR18); UR34: the numbers of the filters. UR36: the
    place, as the offsets of a copy, to which these add UR30 and UR31. All places see nearly the same pixels: so memory
    is read a little all the time, and not all at once for each few places."""
    return f"""
        UIADD3 UR37, UR37, 0x1, URZ;
        UIADD3 UR36, UR36, UR30, URZ;
        UIADD3 UR34, UR34, UR28, URZ;
        UISETP.NE.AND UP2, UPT, UR37, UR29, UPT;
        USEL UR37, UR37, URZ, UP2;
        USEL UR38, URZ, UR31, UP2;
        UIADD3 UR36, UR36, UR38, URZ;
        UISETP.NE.AND UP3, UPT, UR36, UR39, UPT;
        USEL UR36, UR36, URZ, UP3;
        USEL UR38, URZ, {channels}, UP3;
        UIADD3 UR18, UR18, UR38, URZ;
        USEL UR34, UR34, UR18, UP3;"""


def next_place(numbers, channels):
    """For the lane that loads, behind a stage: on by so many ``numbers`` of the filters (UR34) and ``channels`` of x
    (UR18, of UR28); behind the last ones to the next column of the filter (UR37, of UR29), or the next row. UR36: the
    place, as the offsets of a copy, to which these add UR30 and UR31."""
    return f"""
        UIADD3 UR34, UR34, {numbers}, URZ;
        UIADD3 UR18, UR18, {channels}, URZ;
        UISETP.NE.AND UP2, UPT, UR18, UR28, UPT;
        USEL UR18, UR18, URZ, UP2;
        USEL UR38, URZ, UR30, UP2;
        UIADD3 UR36, UR36, UR38, URZ;
        USEL UR38, URZ, 0x1, UP2;
        UIADD3 UR37, UR37, UR38, URZ;
        UISETP.NE.AND UP3, UPT, UR37, UR29, UPT;
        USEL UR37, UR37, URZ, UP3;
        USEL UR38, URZ, UR31, UP3;
        UIADD3 UR36, UR36, UR38, URZ;"""


# Two warp groups that take turns: each makes every second tile of a block, and multiplies when the last products of the
# other's are on their way. Not sooner, as a phase's parity tells it from its neighbours alone. They wait for each other
# at barriers 2 and 3.

def first_turn():
    """The first group goes to ``turn``; what follows is for the second one."""
    return lines("IADD3 others, -group, 0x4, RZ;", "IADD3 group, group, 0x1, RZ;",
                 "ISETP.EQ.AND P2, PT, group, 0x2, PT;", "@P2 BRA turn;")


def turn(tiles, end, left):
    """On to ``end`` without a tile; else wait for one's turn, with ``left`` stages or windows to multiply."""
    return lines("turn:", f"ISETP.GE.U32.AND P0, PT, tile, {tiles}, PT;", f"@P0 BRA {end};", f"MOV left, {left};",
                 "ISETP.LT.U32.AND P0, PT, tile, gridDim.x, PT;", "@P0 BRA mine;", "BAR.SYNC group, 0x100;", "mine:")


def hand_over(tiles, always=False):
    """It is the other group's turn, if it has a tile, or ``always``."""
    return lines("IADD3 f, tile, gridDim.x, RZ;", f"ISETP.GE.U32.AND P0, PT, f, {tiles}, PT;",
                 *([] if always else ["@P0 BRA nobody;"]), "BAR.ARV others, 0x100;", "nobody:")


def next_turn(tiles, end):
    """This group's next tile, unless the other's was the last."""
    return lines("MOV g, gridDim.x;", "IADD3 f, tile, g, RZ;", "IADD3 tile, f, g, RZ;",
                 f"ISETP.GE.U32.AND P0, PT, f, {tiles}, PT;", f"@P0 BRA {end};")


def tile_quotient(q, x, reciprocal):
    """Whole, by way of floats: right as long as there are fewer than two million tiles."""
    return f"""
        I2FP.F32.U32 f, {x};
        FADD f, f, 0.5;
        FMUL f, f, {reciprocal};
        F2I.FTZ.U32.TRUNC.NTZ {q}, f;"""


def divided(q, r, a, b, inverse):
    """q, r = divmod(a, b). ``inverse``: 2^32 / b, whole (2^32 - 1 for 1), so q is first too small by 1 at most."""
    return f"""
        MOV {q}, {inverse};
        IMAD.HI.U32 {q}, {a}, {q}, RZ;
        IADD3 {r}, -{q}, RZ, RZ;
        IMAD {r}, {r}, {b}, {a};
        ISETP.GE.U32.AND P0, PT, {r}, {b}, PT;
        @P0 IADD3 {r}, {r}, -{b}, RZ;
        @P0 IADD3 {q}, {q}, 0x1, RZ;"""

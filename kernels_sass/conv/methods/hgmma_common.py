"""What the inline Python of hgmma.sass and hgmma_window.sass has in common."""


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

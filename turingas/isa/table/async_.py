"""Asynchronous copies, mbarriers and clusters (sm_90)."""

import functools

from turingas.isa.arch import AMPERE, B200, BLACKWELL, HOPPER, Arch
from turingas.isa.fields import Alone, Enum, flag
from turingas.isa.grammar import not_zero, register, rows
from turingas.isa.op import Spans, op, wide_address

AMPERE_ONLY = AMPERE - HOPPER
HOPPER_ONLY = HOPPER - BLACKWELL
DESC = {76: 1}  # an L2 cache policy follows

MODES = ("", ".IM2COL", ".W128", ".W", ".GATHER4")  # how a tensor copy walks through the tensor


def modes(arch: Arch) -> dict[int, str]:
    """Those of an architecture, by their numbers."""
    return {n: MODES[n] for n in ((0, 1, 2, 3, 4) if arch in B200 else (0, 1, 3, 4) if arch in BLACKWELL else (0, 1))}


NO_RZ = {"Ra2": not_zero}

# fmt: off
ROWS = rows(
    # text                                                            opcode  fixed       architectures
    # ---- mbarriers. [R+UR+offset]: R is not written when it is RZ, UR always is
    ("SYNCS.EXCH.64 URd2, [URa(off)], URb2",                          0x15B2, {72: 1, "guard": "UP"}, HOPPER),
    ("SYNCS.LD.64 URd2, [URa(off)]",                                  0x19B2, {"guard": "UP"}, HOPPER),
    ("SYNCS.LD.64{watch} Rd2, [(Ra+)URc(off)]",                       0x15B1, {73: 1}, HOPPER),
    ("SYNCS.ARRIVE.TRANS64{arrive}{optout}{count} Rd2, [(Ra+)URc(off)], Rb", 0x19A7, {}, HOPPER),
    ("SYNCS.PHASECHK.TRANS64{trywait} Pu, [(Ra+)URc(off)], Rb",       0x15A7, {70: 1}, HOPPER_ONLY),
    ("SYNCS.PHASECHK.TRANS64{trywait} Pu, [(Ra+)URc(off)], Rb",       0x15A7, {76: 1}, BLACKWELL),
    ("SYNCS.CCTL{ivwb} [(Ra+)URc(off)]",                              0x19B1, {}, HOPPER),
    ("SYNCS.CCTL{ivwb}ALL",                                           0x09B1, {}, HOPPER),
    ("ARRIVES.LDGSTSBAR.64 [(Ra+)URc(off)]",                          0x19B0, {73: 5}, AMPERE_ONLY),
    ("ARRIVES.LDGSTSBAR.64{arvcnt} [(Ra+)URc(off)]",                  0x19B0, {73: 5}, HOPPER),
    ("FENCE.VIEW.ASYNC{view}",                                        0x03C6, {}, HOPPER),

    # ---- into the shared memory of another CTA; Ra2 holds the address and that of the mbarrier
    ("STAS{stsize} [Ra2.64(+URc)(off)], Rbw",                         0x1DBD, {90: 1} | NO_RZ, HOPPER),
    ("STAS{stsize} [Ra.U32+URc(off)], Rbw",                           0x1DBD, {}, HOPPER),
    ("REDAS{redop}{redtype} [Ra2.64(+URc)(off)], Rbw",                0x1DBE, {72: 1} | NO_RZ, HOPPER),
    ("REDAS{redop}{redtype} [Ra.U32+URc(off)], Rbw",                  0x1DBE, {}, HOPPER),

    # ---- bulk copies. G is global, S shared memory; the policy desc[UR] is a pair
    ("UBLKCP{dst}{src}{multicast}{bytemask}{ltc}{seq}{order} [URb], [URa], URc", 0x13BA, {}, HOPPER),
    ("UBLKCP{dst}{src}{multicast}{bytemask}{ltc}{seq}{order} [URb], [URa], URc, desc[URp2]", 0x13BA, DESC, HOPPER),
    ("UBLKRED{dst}.S{redop}{blktype}{order} [URb], [URa], URc",       0x13BB, {74: 1}, HOPPER),
    ("UBLKRED{dst}.S{redop}{blktype}{order} [URb], [URa], URc, desc[URp2]", 0x13BB, {74: 1} | DESC, HOPPER),
    # ---- by a warp, to a global address of 64 bits, with release (st.async.mmio, red.async.mmio)
    ("USTGR.E.NA{l2}{usize}{mmio} [signed], URbw",                    0x1377, {24: 255, "signed": bool}, B200),
    ("USTGR.E.NA{l2}{usize}{mmio} [URa2(off)], URbw",                 0x1377, {}, B200),
    ("UREDGR.E.ADD.NA{l2}{redtype}{mmio} [signed], URbw",             0x1378, {24: 255, "signed": bool}, B200),
    ("UREDGR.E.ADD.NA{l2}{redtype}{mmio} [URa2(off)], URbw",          0x1378, {}, B200),

    ("UBLKPF.L2 [URa], URc",                                          0x13BC, {}, HOPPER),
    ("UBLKPF.L2 [URa], URc, desc[URp2]",                              0x13BC, DESC, HOPPER),

    # ---- tensor copies: [shared address, mbarrier, coordinates ...], [tensor map]
    ("UTMALDG{dim}{tile}{cta2} [URb4], [URa2]",                       0x15B4, {}, HOPPER),
    ("UTMALDG{dim}{tile}{cta2} [URb4], [URa2], desc[URp2]",           0x15B4, DESC, HOPPER),
    ("UTMALDG{dim}{mode}{multicast}{cta2} [URb4], [URa2], URc",       0x13B4, {}, HOPPER),
    ("UTMALDG{dim}{mode}{multicast}{cta2} [URb4], [URa2], URc, desc[URp2]", 0x13B4, DESC, HOPPER),
    ("UTMASTG{dim_s}{to} [URbw], [URa2]",                             0x13B5, {}, HOPPER),
    ("UTMASTG{dim_s}{to} [URbw], [URa2], desc[URp2]",                 0x13B5, DESC, HOPPER),
    ("UTMAREDG{dim_s}{im2col}{redop} [URbw], [URa2]",                 0x13B6, {}, HOPPER),
    ("UTMAREDG{dim_s}{im2col}{redop} [URbw], [URa2], desc[URp2]",     0x13B6, DESC, HOPPER),
    ("UTMAPF.L2{dim_p}{tile} [URbw], [URa2]",                         0x15B8, {}, HOPPER),
    ("UTMAPF.L2{dim_p}{tile} [URbw], [URa2], desc[URp2]",             0x15B8, DESC, HOPPER),
    ("UTMAPF.L2{dim_p}{columns} [URbw], [URa2], URc",                 0x13B8, {}, HOPPER),
    ("UTMAPF.L2{dim_p}{columns} [URbw], [URa2], URc, desc[URp2]",     0x13B8, DESC, HOPPER),
    ("UMEMSETS.64 [at], URZ, URc",                                    0x13CB, {24: "URZ", "at": bool, 32: "URZ"}, BLACKWELL),
    ("UMEMSETS.64 [URa(off)], URZ, URc",                              0x13CB, {32: "URZ"}, BLACKWELL),
    ("UTMACCTL{ivpf} [URa2]",                                         0x19B9, {}, HOPPER),
    ("UTMACCTL.IVALL",                                                0x09B9, {83: 1}, HOPPER),
    ("UTMACMDFLUSH",                                                  0x09B7, {}, HOPPER),
    fields={
        "at": Alone(40, 24, signed=True), "URd2": register("UR", 16, 2), "URa2": register("UR", 24, 2),
        "URb2": register("UR", 32, 2), "URp2": register("UR", 40, 2),
        "URb4": register("UR", 32, 4), "URbw": register("UR", 32, -1),
        # what PTX makes of them (ptxas 12.9): "" arrive.expect_tx, .A1T0 arrive, .ART0 arrive with a count,
        # .A0TR expect_tx, .A0TX complete_tx; .TMASK is .noComplete, .OPTOUT is arrive_drop
        "count": Enum(84, 3, ("", ".A1T0", ".A0T1", ".A0TR", ".A0TX", ".ART0")),
        "arrive": Enum(73, 2, ("", ".TMASK", ".RED")), "optout": flag(75, ".OPTOUT"),
        "watch": flag(74, ".WATCH"), "trywait": flag(72, ".TRYWAIT"), "ivwb": Enum(72, 1, (".IV", ".WB")),
        "arvcnt": lambda arch: Enum(76 if arch in BLACKWELL else 70, 2, ("", ".ARVCNT", ".TRANSCNT")),
        "view": lambda arch: Enum(72, 2, (".S", ".G", ".T") if arch in B200 else (".S", ".G")),
        "stsize": Enum(73, 3, {4: "", 5: ".64", 6: ".128"}, spans={".64": 2, ".128": 4}),
        "redop": Enum(87, 3, (".ADD", ".MIN", ".MAX", ".INC", ".DEC", ".AND", ".OR", ".XOR")),
        "redtype": Enum(73, 3, ("", ".S32", ".64"), spans={".64": 2}),
        "blktype": Enum(81, 4, ("", ".S32", ".U64", ".S64",
                                ".F16.RN", ".F32.RN", ".F32.FTZ.RN", ".F64.RN", ".BF16.RN")),
        "dst": Enum(73, 1, (".G", ".S")), "src": Enum(74, 1, (".G", ".S")),
        "signed": Alone(40, 24, signed=True), "l2": Enum(83, 2, (".EFL2", "", ".ELL2", None)),
        "usize": Enum(73, 3, (".U8", ".S8", ".U16", ".S16", "", ".64"), spans={".64": 2}),
        "mmio": Enum(77, 4, {7: ".STRONG.GPU", 8: ".MMIO.GPU", 10: ".STRONG.SYS", 12: ".MMIO.SYS"}),
        "order": Enum(77, 4, {0: "", 5: ".STRONG.SM", 7: ".STRONG.GPU", 10: ".STRONG.SYS"}),
        "multicast": flag(75, ".MULTICAST"), "seq": flag(83, ".SEQUENCED"),
        "ltc": Enum(81, 2, ("", ".LTC64B", ".LTC128B", ".LTC256B")),
        "bytemask": lambda arch: flag(84, ".DST_G_BYTE_MASK") if arch in BLACKWELL else Enum(84, 1, ("",)),
        "im2col": flag(82, ".IM2COL"), "cta2": lambda arch: flag(85, ".2CTA") if arch in B200 else Enum(85, 1, ("",)),
        "mode": lambda arch: Enum(82, 3, modes(arch)),
        "tile": lambda arch: Enum(82, 3, {0: "", 4: ".GATHER4"} if arch in BLACKWELL else {0: ""}),
        "columns": lambda arch: Enum(82, 3, {n: name for n, name in modes(arch).items() if 0 < n < 4}),
        "to": lambda arch: Enum(82, 2, ("", ".IM2COL", ".SCATTER4") if arch in BLACKWELL else ("", ".IM2COL")), "ivpf": Enum(82, 1, (".IV", ".PF")),
        # the first operand's registers: an address (UTMASTG, UTMAREDG) and the coordinates, rounded up to 2, 4 or 8
        "dim": Enum(79, 3, (".1D", ".2D", ".3D", ".4D", ".5D")),
        "dim_s": Enum(79, 3, (".1D", ".2D", ".3D", ".4D", ".5D"),
                      spans={".1D": 2, ".2D": 4, ".3D": 4, ".4D": 4, ".5D": 4}),
        "dim_p": Enum(79, 3, (".1D", ".2D", ".3D", ".4D", ".5D"), spans={".2D": 2, ".3D": 4, ".4D": 4, ".5D": 4}),
    },
)
# fmt: on


# ---- what they are -----------------------------------------------------------------------------------------------


def bulk(mods: tuple[str, ...], n: int, pattern: str) -> int:
    """Global addresses have 64 bits; to shared memory: its address and that of the mbarrier."""
    return 1 if n and mods[1:2] == ("S",) else 2


def tile(front: int) -> Spans:
    """``front`` registers in front (the address, and the mbarrier of a load), and a coordinate for each dimension: .2D.
    .GATHER4 and .SCATTER4 have one, and four rows."""

    def spans(mods: tuple[str, ...], n: int, pattern: str) -> int:
        if n:
            return wide_address(mods, n, pattern)
        rows = "GATHER4" in mods or "SCATTER4" in mods
        return front + (5 if rows else next(int(mod[0]) for mod in mods if mod[1:] == "D"))

    return spans


lsu, copy = (functools.partial(op, pipe) for pipe in ("lsu", "copy"))

OPS = {
    "SYNCS": lsu("mbarriers in shared memory: init, arrive, test, wait",
                 "mbarrier.init, mbarrier.arrive, mbarrier.arrive.expect_tx, mbarrier.try_wait, cuda::barrier",
                 "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", opaque=True, makes="EXCH CCTL", late="EXCH",
                 traits="shows"),
    "ARRIVES": lsu("arrives at an mbarrier when earlier LDGSTS have landed", "cp.async.mbarrier.arrive",
                   "ARRIVES.LDGSTSBAR.64 [UR4]", traits="arrives shows"),
    "FENCE": lsu("orders generic accesses and asynchronous ones", "fence.proxy.async", "FENCE.VIEW.ASYNC.S", fence="w",
                 kin="MEMBAR", traits="orders"),
    "STAS": lsu("stores to the shared memory of another block of the cluster, and arrives at its mbarrier", "st.async",
                "STAS [R2.64], R0", traits="arrives brings orders"),
    "REDAS": lsu("reduces in the shared memory of another block of the cluster, and arrives at its mbarrier",
                 "red.async", "REDAS.ADD.S32 [R2.64], R0", traits="arrives brings orders"),
    "UBLKCP": copy("bulk copy between global and shared memory", "cp.async.bulk, cuda::memcpy_async",
                   "UBLKCP.S.G [UR8], [UR4], UR6", spans=bulk, kin="LDGSTS", traits="arrives brings shows"),
    "UBLKRED": copy("bulk reduction", "cp.reduce.async.bulk", "UBLKRED.G.S.ADD [UR8], [UR4], UR6", spans=bulk,
                    space="global", traits="atomic arrives brings shows"),
    "UBLKPF": copy("bulk prefetch to L2", "cp.async.bulk.prefetch.L2", "UBLKPF.L2 [UR4], UR6", spans=bulk, kin="CCTL"),
    "UTMALDG": copy("loads a tile through a tensor map (TMA)", "cp.async.bulk.tensor to shared memory",
                    "UTMALDG.2D [UR8], [UR4]", spans=tile(2), traits="arrives brings mapped shows"),
    "UTMASTG": copy("stores a tile through a tensor map (TMA)", "cp.async.bulk.tensor to global memory",
                    "UTMASTG.2D [UR8], [UR4]", spans=tile(1), traits="mapped shows"),
    "UTMAREDG": copy("reduces a tile through a tensor map (TMA)", "cp.reduce.async.bulk.tensor",
                     "UTMAREDG.2D.ADD [UR8], [UR4]", spans=tile(1), space="global",
                     traits="atomic mapped shows"),
    "USTGR": op("lsu", "stores to global memory, for a warp, with release", "st.async.mmio.release",
                "USTGR.E.NA.MMIO.SYS [UR4], UR6", sets="r", kin="STG", space="global", traits="store"),
    "UREDGR": op("lsu", "adds to global memory, for a warp, with release", "red.async.mmio.release",
                 "UREDGR.E.ADD.NA.MMIO.SYS [UR4], UR6", sets="r", kin="REDG", space="global", traits="atomic"),
    "UMEMSETS": copy("sets shared memory to zero", "st.bulk", "UMEMSETS.64 [UR4], URZ, UR6", kin="STS"),
    "UTMAPF": copy("prefetches a tile through a tensor map (TMA)", "cp.async.bulk.prefetch.tensor",
                   "UTMAPF.L2.2D [UR8], [UR4]", spans=tile(0), traits="mapped"),
    "UTMACCTL": copy("cache control of tensor maps", "prefetch.tensormap, fence.proxy.tensormap::generic",
                     "UTMACCTL.PF [UR4]", fence="r"),
    "UTMACMDFLUSH": copy("commits the bulk copies before it", "cp.async.bulk.commit_group", "UTMACMDFLUSH"),
}

"""Branches, convergence, barriers, predicates, warp-wide and special-register instructions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from turingas.isa.arch import ADA, ALL, AMPERE, B200, BLACKWELL, HOPPER, RTX, TURING, Archs
from turingas.isa.fields import BitSet, Enum, Number, Target, flag
from turingas.isa.grammar import OfArch, not_zero, register, rows
from turingas.isa.op import op

# ---- branch targets ----------------------------------------------------------------------------------------------


class Address(Target):
    """A target that is written as an absolute address, without a sign."""

    def __init__(self, places: tuple[tuple[int, int], ...], scale: int) -> None:
        super().__init__(places, 0, scale, relative=False)

    def address(self, word: int, address: int) -> int:
        return self.get(word) * self.scale

    def at(self, target: int, address: int) -> int:
        units, rest = divmod(target, self.scale)
        if rest:
            raise ValueError(f"target {target:#x} is not a multiple of {self.scale}")
        if not 0 <= units < 1 << self.width:
            raise ValueError(f"target {target:#x} is too far away: {self.width} bits hold the address")
        return self.put(units)


def _targets(*low: tuple[int, int]) -> dict[str, OfArch]:
    """Where a branch goes: ``far`` relative to the next instruction, ``abs`` an address, ``dist`` a distance that is
    added to a register. ``low`` is where sm_90 keeps the low bits; all count units of 4 bytes."""
    return {
        "far": Target((*low, (34, 48)), scale=4),
        "abs": Address((*low, (34, 47)), 4),
        "dist": Number((*low, (34, 48)), 0, signed=True, scale=4, default=0),
    }


VOLTA_TO_ADA = ALL - HOPPER
TO_HOPPER = ALL - BLACKWELL
TURING_TO_ADA = TURING - HOPPER
AMPERE_TO_ADA = AMPERE - HOPPER
OLD = _targets()
NEW = _targets((16, 8))  # sm_90: the low 8 bits of the distance / 4 lie where the destination register would be

# A branch on a uniform predicate, or on the threads that a uniform register names
UPRED = {"!UPa": register("UP", 24, inv=27), "~URa": register("UR", 24, inv=30)}


Variants = list[tuple[Archs, dict[str, OfArch]]]


def _each(variants: Variants, *items: tuple[str, int, Mapping[object, object], Archs]) -> list[Any]:
    """Each row once for every set of architectures on which its fields differ."""
    return [
        (text, opcode, fixed, both, fields)
        for text, opcode, fixed, archs in items
        for some, fields in variants
        if (both := archs & some)
    ]


BRANCHES: Variants = [(VOLTA_TO_ADA, OLD | UPRED), (HOPPER, NEW | UPRED)]


# ---- special registers -------------------------------------------------------------------------------------------

# fmt: off
SPECIAL = {
    0: "SR_LANEID", 1: "SR_CLOCK", 2: "SR_VIRTCFG", 3: "SR_VIRTID", 15: "SR_ORDERING_TICKET", 16: "SR_PRIM_TYPE",
    17: "SR_INVOCATION_ID", 18: "SR_Y_DIRECTION", 19: "SR_THREAD_KILL", 20: "SM_SHADER_TYPE",
    21: "SR_DIRECTCBEWRITEADDRESSLOW", 22: "SR_DIRECTCBEWRITEADDRESSHIGH", 23: "SR_DIRECTCBEWRITEENABLED",
    24: "SR_MACHINE_ID_0", 25: "SR_MACHINE_ID_1", 26: "SR_MACHINE_ID_2", 27: "SR_MACHINE_ID_3", 28: "SR_AFFINITY",
    29: "SR_INVOCATION_INFO", 30: "SR_WSCALEFACTOR_XY", 31: "SR_WSCALEFACTOR_Z",
    32: "SR_TID", 33: "SR_TID.X", 34: "SR_TID.Y", 35: "SR_TID.Z",
    37: "SR_CTAID.X", 38: "SR_CTAID.Y", 39: "SR_CTAID.Z", 40: "SR_NTID", 41: "SR_CirQueueIncrMinusOne", 42: "SR_NLATC",
    44: "SR_SM_SPA_VERSION", 45: "SR_MULTIPASSSHADERINFO", 46: "SR_LWINHI", 47: "SR_SWINHI", 48: "SR_SWINLO",
    49: "SR_SWINSZ", 50: "SR_SMEMSZ", 51: "SR_SMEMBANKS", 52: "SR_LWINLO", 53: "SR_LWINSZ", 54: "SR_LMEMLOSZ",
    55: "SR_LMEMHIOFF", 56: "SR_EQMASK", 57: "SR_LTMASK", 58: "SR_LEMASK", 59: "SR_GTMASK", 60: "SR_GEMASK",
    61: "SR_REGALLOC", 62: "SR_BARRIERALLOC", 64: "SR_GLOBALERRORSTATUS", 66: "SR_WARPERRORSTATUS",
    67: "SR_VIRTUALSMID", 68: "SR_VIRTUALENGINEID", 80: "SR_CLOCKLO", 81: "SR_CLOCKHI",
    82: "SR_GLOBALTIMERLO", 83: "SR_GLOBALTIMERHI", 84: "SR_ESR_PC", 85: "SR_ESR_PC_HI", 96: "SR_HWTASKID",
    97: "SR_CIRCULARQUEUEENTRYINDEX", 98: "SR_CIRCULARQUEUEENTRYADDRESSLOW", 99: "SR_CIRCULARQUEUEENTRYADDRESSHIGH",
    **{100 + 2 * n: f"SR_PM{n}" for n in range(8)}, **{101 + 2 * n: f"SR_PM_HI{n}" for n in range(8)},
    **{116 + 2 * n: f"SR_SNAP_PM{n}" for n in range(8)}, **{117 + 2 * n: f"SR_SNAP_PM_HI{n}" for n in range(8)},
    255: "SRZ",
}
SINCE_75 = {132: "SR_VARIABLE_RATE", 133: "__HIR0X000"}
SINCE_80 = {24: "SR_SW_SCRATCH"}
SINCE_90 = {
    65: "SR_CGAERRORSTATUS", 134: "SR_WARPGROUP_INFO", 135: "SR_WARPGROUPID", 136: "SR_CgaCtaId",
    137: "SR_GpcLocalCgaId", 139: "SR_CTARegPoolSz",
}
SINCE_100 = {n: name for n, name in SINCE_90.items() if "WARPGROUP" not in name} | {138: "SR_CgaSize", 141: "SR_TMemSz"}
SINCE_120 = {142: "SR_CONTEXT_SAVE_ADDR_LO", 143: "SR_CONTEXT_SAVE_ADDR_HI"}
# fmt: on


def _special(names: dict[int, str]) -> dict[str, OfArch]:
    """The field ``sr``; a number without a name is written SR4."""
    return {"sr": Enum(72, 8, {n: names.get(n, f"SR{n}") for n in range(256)})}


SPECIALS: Variants = [
    (ALL - TURING, _special(SPECIAL)),
    (TURING - AMPERE, _special(SPECIAL | SINCE_75)),
    (AMPERE - HOPPER, _special(SPECIAL | SINCE_75 | SINCE_80)),
    (HOPPER - BLACKWELL, _special(SPECIAL | SINCE_75 | SINCE_80 | SINCE_90)),
    (BLACKWELL - RTX, _special(SPECIAL | SINCE_75 | SINCE_80 | SINCE_100)),
    (RTX, _special(SPECIAL | SINCE_75 | SINCE_80 | SINCE_100 | SINCE_120)),
]

# ---- convergence barriers and the other things that BMOV moves ---------------------------------------------------

# fmt: off
STATE = {
    **{16 + n: f"THREAD_STATE_ENUM.{n}" for n in range(5)},
    21: "TRAP_RETURN_PC.LO", 22: "TRAP_RETURN_PC.HI", 23: "TRAP_RETURN_MASK", 24: "MEXITED", 25: "MKILL",
    26: "MACTIVE", 27: "MATEXIT", 28: "OPT_STACK", 29: "API_CALL_DEPTH", 30: "ATEXIT_PC.LO", 31: "ATEXIT_PC.HI",
}
BARRIERS = {n: f"B{n}" for n in range(16)}
STATES: Variants = [
    (VOLTA_TO_ADA, {"state": Enum(24, 6, BARRIERS | STATE), "noB": Enum(24, 6, STATE)}),
    (HOPPER, {"state": Enum(24, 6, BARRIERS | STATE | {32: "MCOLLECTIVE"}),
              "noB": Enum(24, 6, STATE | {32: "MCOLLECTIVE"})}),
]

ROWS = rows(
    # ---- branches. The predicate operand decides together with the guard. Where a register is added to a distance the
    # row comes before the one with an address: a label may look like a register.
    # text                                              opcode  fixed             architectures
    *_each(
        BRANCHES,
        ("BRA{count}{conv} !Pp?, far",                  0x0947, {},               ALL),
        ("BRA{count}.U.ANY !Pp?, far",                  0x0947, {32: 1, 84: 1},   HOPPER),
        ("BRA{count}.U !Pp?, !UPa, far",                0x1547, {32: 1},          AMPERE),
        ("BRA{count}.U.ANY !Pp?, !UPa, far",            0x1547, {32: 1, 84: 1},   HOPPER),
        ("BRA{count}{uconv} !Pp?, ~URa, far",           0x1947, {},               AMPERE),
        ("BRX{count} !Pp?, Ra2( dist)",                 0x0949, {},               ALL),
        ("BRXU{count}{conv} !Pp?, URa( dist)",          0x1958, {"guard": "P"},   TURING),
        ("JMP{count}{conv} !Pp?, abs",                  0x094A, {},               ALL),
        ("JMP{count}{conv} !Pp?, cb",                   0x0B4A, {},               ALL),
        ("JMP{count}.U.ANY !Pp?, abs",                  0x094A, {32: 1, 84: 1},   HOPPER),
        ("JMP{count}.U.ANY !Pp?, cb",                   0x0B4A, {32: 1, 84: 1},   HOPPER),
        ("JMP{count}.U !Pp?, !UPa, abs",                0x154A, {32: 1},          AMPERE),
        ("JMP{count}.U.ANY !Pp?, !UPa, abs",            0x154A, {32: 1, 84: 1},   HOPPER),
        ("JMP{count}.U !Pp?, !UPa, cb",                 0x174A, {32: 1},          AMPERE),
        ("JMP{count}.U.ANY !Pp?, !UPa, cb",             0x174A, {32: 1, 84: 1},   HOPPER),
        ("JMP{count}{uconv} !Pp?, ~URa, abs",           0x194A, {},               AMPERE),
        ("JMP{count}{uconv} !Pp?, ~URa, cb",            0x1B4A, {},               AMPERE),
        ("JMX{count} !Pp?, Ra2( dist)",                 0x094C, {},               ALL),
        ("JMXU{count}{conv} !Pp?, URa( dist)",          0x1959, {"guard": "P"},   TURING),
        ("CALL.REL{noinc} !Pp?, far",                   0x0944, {},               ALL),
        ("CALL.REL{noinc} !Pp?, Ra2 far",               0x0344, {},               ALL),
        ("CALL.REL{noinc} !Pp?, URa far",               0x1944, {},               TURING),
        ("CALL.ABS{noinc} !Pp?, Ra2( dist)",            0x0343, {},               ALL),
        ("CALL.ABS{noinc} !Pp?, URa( dist)",            0x1943, {},               TURING),
        ("CALL.ABS{noinc} !Pp?, abs",                   0x0943, {},               ALL),
        ("CALL.ABS{noinc} !Pp?, cb",                    0x0B43, {},               ALL),
        ("RET.REL{nodec} !Pp?, Ra2 far",                0x0950, {},               ALL),
        ("RET.REL{nodec} !Pp?, URa far",                0x1950, {},               TURING),
        ("RET.ABS{nodec} !Pp?, Ra2 dist",               0x0950, {85: 1},          ALL),
        ("RET.ABS{nodec} !Pp?, URa dist",               0x1950, {85: 1},          TURING),
        ("WARPSYNC.COLLECTIVE !Pp?, Ra, far",           0x0348, {86: 1},          HOPPER),
        ("WARPSYNC.COLLECTIVE.ALL !Pp?, far",           0x0948, {86: 1},          HOPPER),
    ),
    ("LEPC Rd2",                                        0x034E, {},               ALL),
    ("LEPC Rd2, here",                                  0x094E, {},               HOPPER),
    ("EXIT{keep}{noatexit} !Pp?",                       0x094D, {},               ALL),
    ("KILL !Pp?",                                       0x095B, {},               ALL),
    ("RTT",                                             0x094F, {},               ALL - TURING),
    ("BPT{bpt} n3?",                                    0x095C, {},               ALL - AMPERE, {"bpt": Enum(84, 3, {
        2: ".PAUSE", 3: ".TRAP", 4: ".INT", 5: ".DRAIN", 6: ".PAUSE_QUIET"})}),
    ("BPT{bpt} n3?",                                    0x095C, {},               AMPERE, {"bpt": Enum(84, 3, {
        3: ".TRAP", 4: ".INT"})}),

    # ---- convergence
    ("BSSY !Pp?, Bd, near",                             0x0945, {},               TO_HOPPER),
    ("BSYNC !Pp?, Bd",                                  0x0941, {},               TO_HOPPER),
    ("BREAK !Pp?, Bd",                                  0x0942, {},               TO_HOPPER),
    ("BSSY{rely} !Pp?, Bd, near",                       0x0945, {},               BLACKWELL),
    ("BSYNC{rely} !Pp?, Bd",                            0x0941, {},               BLACKWELL),
    ("BREAK{reliable} !Pp?, Bd",                        0x0942, {},               BLACKWELL),
    ("YIELD !Pp?",                                      0x0946, {},               ALL),
    ("WARPSYNC !Pp?, Rb",                               0x0348, {},               ALL - AMPERE),
    ("WARPSYNC{excl8} !Pp?, Rb",                        0x0348, {},               AMPERE_TO_ADA),
    ("WARPSYNC !Pp?, imm",                              0x0948, {},               VOLTA_TO_ADA),
    ("WARPSYNC !Pp?, cb",                               0x0B48, {},               VOLTA_TO_ADA),
    ("WARPSYNC !Pp?, cx",                               0x1B48, {},               TURING_TO_ADA),
    ("WARPSYNC !Pp?, URb",                              0x1D48, {},               TURING_TO_ADA),
    ("WARPSYNC{excl} !Pp?, Ra",                         0x0348, {},               HOPPER),
    ("WARPSYNC.ALL !Pp?",                               0x0948, {},               HOPPER),
    ("ENDCOLLECTIVE !Pp?",                              0x091B, {},               HOPPER),
    *_each(
        STATES,
        ("BMOV.32{clear} Rd, state",                    0x0355, {},               ALL),
        ("BMOV.32{pquad} state, Rb",                    0x0356, {},               ALL),
        ("BMOV.32{pquad} state, imm",                   0x0956, {},               ALL),
        ("BMOV.32{pquad} state, cb",                    0x0B56, {},               ALL),
        ("BMOV.32{pquad} state, cx",                    0x1B56, {},               TURING),
        ("BMOV.32{pquad} state, URb",                   0x1D56, {},               TURING),
        ("BMOV.32{pquad} state, Bd",                    0x0F56, {},               ALL),
        # without .CLEAR, nvdisasm has no name for a barrier as the source
        ("BMOV.32.CLEAR Bd, Ba",                        0x0F55, {84: 1},          ALL),
        ("BMOV.32 Bd, noB",                             0x0F55, {},               ALL),
    ),
    ("BMOV.64 atexit, Rb2",                             0x0357, {},               ALL),
    ("BMOV.64 atexit, cb",                              0x0B57, {},               ALL),
    ("BMOV.64 atexit, cx",                              0x1B57, {},               TURING),
    ("BMOV.64 atexit, URb",                             0x1D57, {},               TURING),
    # the return address of a call through a register
    ("RPCMOV.32 rpc, Rb",                               0x0352, {"reuse": True},  ALL),
    ("RPCMOV.32 Rd, rpc",                               0x0353, {},               ALL),
    ("RPCMOV.32 rpc, imm",                              0x0952, {},               ALL),
    ("RPCMOV.32 rpc, cb",                               0x0B52, {},               ALL),
    ("RPCMOV.32 rpc, cx",                               0x1B52, {},               TURING),
    ("RPCMOV.32 rpc, URb",                              0x1D52, {},               TURING),
    ("RPCMOV.64 Rpc, cb",                               0x0B54, {},               ALL),
    ("RPCMOV.64 Rpc, cx",                               0x1B54, {},               TURING),
    ("RPCMOV.64 Rpc, URb",                              0x1D54, {},               TURING),
    *_each(BRANCHES, ("RPCMOV.64 Rpc, abs",                   0x0954, {},               ALL)),
    *_each(BRANCHES, ("BMOV.64 atexit, abs",                  0x0957, {},               ALL)),

    # ---- barriers of the block: barrier and count (0, all threads, is not written except with ARV and SCAN)
    ("BAR.SYNC{defer} bar, some?",                      0x0B1D, {},               ALL),
    ("BAR.ARV bar, all",                                0x0B1D, {77: 1},          ALL),
    ("BAR.RED{red}{defer} bar, some?, !Pp",             0x0B1D, {77: 2},          ALL),
    ("BAR.SCAN bar, all, !Pp",                          0x0B1D, {77: 3},          ALL),
    ("BAR.SYNCALL{defer}",                              0x0B1D, {77: 4},          ALL - ADA),
    ("BAR.SYNC{defer} bar, Rb",                         0x091D, {},               VOLTA_TO_ADA),
    ("BAR.SYNC{defer} bar, Rb",                         0x091D, {"Rb": not_zero},HOPPER),
    ("BAR.ARV bar, Rb",                                 0x091D, {77: 1},          ALL),
    ("BAR.RED{red}{defer} bar, Rb, !Pp",                0x091D, {77: 2},          VOLTA_TO_ADA),
    ("BAR.RED{red}{defer} bar, Rb, !Pp",                0x091D, {77: 2, "Rb": not_zero},HOPPER),
    ("BAR.SCAN bar, Rb, !Pp",                           0x091D, {77: 3},          ALL),
    ("BAR.SYNC{defer} Rb, some?",                       0x051D, {},               ALL),
    ("BAR.ARV Rb, all",                                 0x051D, {77: 1},          ALL),
    ("BAR.RED{red}{defer} Rb, some?, !Pp",              0x051D, {77: 2},          ALL),
    ("BAR.SCAN Rb, all, !Pp",                           0x051D, {77: 3},          ALL),
    # one register holds barrier and count: it is written twice
    ("BAR.SYNC{defer} Rb, Rb",                          0x031D, {},               ALL),
    ("BAR.ARV Rb, Rb",                                  0x031D, {77: 1},          ALL),
    ("BAR.RED{red}{defer} Rb, Rb, !Pp",                 0x031D, {77: 2},          ALL),
    ("BAR.SCAN Rb, Rb, !Pp",                            0x031D, {77: 3},          ALL),
    ("B2R Rd, bar",                                     0x031C, {},               ALL),
    ("B2R.RESULT Rd, Pu?",                              0x031C, {78: 1},          ALL),
    ("B2R.WARP Rd",                                     0x031C, {78: 2},          ALL),
    # R2B and RTT have no public name in nvdisasm 13, which prints them as __HIR0X1F0 and __HIR0X1E0
    ("R2B bar, Rb",                                     0x031E, {},               ALL - TURING),
    ("R2B.WARP bar, Rb",                                0x031E, {78: 2},          ALL - TURING),
    ("CGAERRBAR",                                       0x05AB, {},               HOPPER),
    ("PREEXIT",                                         0x082D, {},               HOPPER),
    ("ACQBULK",                                         0x082E, {},               HOPPER),

    # ---- waiting
    ("DEPBAR set?",                                     0x091A, {},               ALL, {"set": BitSet(32, 6)}),
    ("DEPBAR.LE sb, n6, set?",                          0x091A, {47: 1},          ALL, {"set": BitSet(32, 6)}),
    ("DEPBAR.LE sb, URb, set?",                         0x1D1A, {47: 1},          HOPPER - BLACKWELL, {"set": BitSet(38, 6)}),
    ("DEPBAR.LE sb, URb, set?",                         0x1D1A, {47: 1},          BLACKWELL, {"set": BitSet(48, 6)}),
    ("NANOSLEEP{rand}{warp} !Pp?, imm",                 0x095D, {},               VOLTA_TO_ADA),
    ("NANOSLEEP{rand}{warp} !Pp?, Rb",                  0x035D, {},               VOLTA_TO_ADA),
    ("NANOSLEEP{rand}{warp} !Pp?, cb",                  0x0B5D, {},               VOLTA_TO_ADA),
    ("NANOSLEEP{rand}{warp} !Pp?, cx",                  0x1B5D, {},               TURING_TO_ADA),
    ("NANOSLEEP{rand}{warp} !Pp?, URb",                 0x1D5D, {},               TURING_TO_ADA),
    ("NANOSLEEP{rand}{warp}{syncs} !Pp?, imm",          0x095D, {},               HOPPER),
    ("NANOSLEEP{rand}{warp}{syncs} !Pp?, Rb",           0x035D, {},               HOPPER),
    ("NANOSLEEP{rand}{warp}{syncs} !Pp?, cb",           0x0B5D, {},               HOPPER),
    ("NANOSLEEP{rand}{warp}{syncs} !Pp?, cx",           0x1B5D, {},               HOPPER),
    ("NANOSLEEP{rand}{warp}{syncs} !Pp?, URb",          0x1D5D, {},               HOPPER),
    ("NANOSLEEP.CLEAR !Pp?",                            0x095D, {83: 1},          AMPERE),
    ("NOP",                                             0x0918, {},               ALL),
    ("PMTRIG !Pp?, n16",                                0x0801, {},               ALL),

    # ---- warp-wide
    ("VOTE{vote} Rd?, Pu, !Pp",                         0x0806, {},               ALL),
    ("MATCH.ALL Pu, Rd, Ra",                            0x03A1, {},               ALL),
    ("MATCH.ALL.U64 Pu, Rd, Ra2",                       0x03A1, {73: 1},          ALL),
    ("MATCH.ANY Rd, Ra",                                0x03A1, {79: 1, 81: 7},   ALL),
    ("MATCH.ANY.U64 Rd, Ra2",                           0x03A1, {73: 1, 79: 1, 81: 7},ALL),
    ("SHFL{shfl} Pu, Rd, Ra, Rb, Rc",                   0x0389, {},               ALL),
    ("SHFL{shfl} Pu, Rd, Ra, Rb, clamp",                0x0589, {},               ALL),
    ("SHFL{shfl} Pu, Rd, Ra, lane, Rc",                 0x0989, {},               ALL),
    ("SHFL{shfl} Pu, Rd, Ra, lane, clamp",              0x0F89, {},               ALL),
    ("REDUX{redux}{s32} URd, Ra",                       0x03C4, {},               AMPERE),
    ("CREDUX{least}{of}{nan} URd, Ra",                  0x02CC, {},               B200),
    ("ELECT{ignorekill} Pu, URd, !Pp",                  0x082F, {},               HOPPER),
    ("ELECT{ignorekill} Pu, URd, threads",              0x182F, {},               HOPPER),
    ("WARPGROUP.ARRIVE",                                0x09C5, {},               HOPPER),
    ("WARPGROUP.WAIT",                                  0x09C5, {79: 1},          HOPPER),
    ("WARPGROUP.DEPBAR.LE gsb0, n72",                   0x09C5, {47: 1, 80: 1},   HOPPER),
    ("WARPGROUPSET.AC URb",                             0x1D5E, {},               HOPPER),
    ("WARPGROUPSET.SB URb, gsb0",                       0x1D5E, {79: 1},          HOPPER),

    # ---- special registers, predicates as a register
    *_each(
        SPECIALS,
        ("S2R Rd, sr",                                  0x0919, {},               ALL),
        ("CS2R{cs2r} Rdw, sr",                          0x0805, {},               ALL),
        ("CS2UR{cs2r} URdw, sr",                        0x08CB, {"guard": "UP"},  RTX),
        ("S2UR URd, sr",                                0x09C3, {"guard": "UP"},  TURING),
    ),
    ("P2R{byte} Rd, PR, Ra, Ib",                        0x0003, {},               VOLTA_TO_ADA),
    ("P2R{byte} Rd, PR, Ra, Sb",                        0x0003, {},               HOPPER),
    ("R2P PR, Ra{byte}, Sb",                            0x0004, {"without": 0x800}, ALL),
    ("R2P PR, Ra{byte}, pmask?",                        0x0804, {},               ALL),
    ("R2UR Pu?, URd, Ra",                               0x03C2, {},               TURING_TO_ADA),
    ("R2UR.OR Pu, URd, Ra",                             0x03C2, {84: 1},          TURING_TO_ADA),
    ("R2UR Pu?, URd, Ra",                               0x02CA, {},               HOPPER - BLACKWELL),
    ("R2UR.OR Pu, URd, Ra",                             0x02CA, {84: 1},          HOPPER - BLACKWELL),
    ("R2UR{fill} Pu?, URd, Ra",                         0x02CA, {},               BLACKWELL),
    ("R2UR.OR{fill} Pu, URd, Ra",                       0x02CA, {84: 1},          BLACKWELL),
    ("SETCTAID{dim} Ra",                                0x031F, {},               ALL),
    ("GETLMEMBASE Rd",                                  0x03C0, {},               ALL),
    ("SETLMEMBASE Ra",                                  0x03C1, {},               ALL),
    fields={
        "pmask": Number(32, 32, default=0xFF),  # nvdisasm prints every mask but this one
        "atexit": Enum((), 0, {0: "ATEXIT_PC"}),  # a field without bits
        "rpc": Enum(31, 1, ("Rpc.LO", "Rpc.HI")),
        "near": Target(34, 30, 4),
        "here": Target(24, 58),  # unlike the branches it counts bytes
        "count": Enum(85, 2, ("", ".INC", ".DEC")),  # the call depth
        "conv": Enum(32, 2, ("", ".U", ".DIV", ".CONV")), "uconv": Enum(32, 2, {2: ".DIV", 3: ".CONV"}),
        "noinc": flag(86, ".NOINC"), "nodec": flag(86, ".NODEC"),
        "keep": Enum(84, 2, ("", ".KEEPREFCOUNT", ".PREEMPTED")), "noatexit": flag(86, ".NO_ATEXIT"),
        "n3": Number(34, 3, default=0), "n6": Number(38, 6), "n16": Number(32, 16), "n72": Number(72, 3),
        "Bd": register("B", 16), "Ba": Enum(24, 6, BARRIERS),
        "clear": flag(84, ".CLEAR"), "pquad": flag(84, ".PQUAD"),
        "excl8": flag(86, ".EXCLUSIVE"), "excl": flag(85, ".EXCLUSIVE"),
        "bar": Number(54, 4), "some": Number(42, 12, default=0), "all": Number(42, 12),
        "red": Enum(74, 2, (".POPC", ".AND", ".OR")), "defer": flag(80, ".DEFER_BLOCKING"),
        "sb": Enum(44, 3, [f"SB{n}" for n in range(6)]),
        "rand": flag(86, ".RAND"), "warp": flag(85, ".WARP"), "syncs": flag(84, ".SYNCS"),
        "vote": Enum(72, 2, (".ALL", ".ANY", ".EQ")),
        "shfl": Enum(58, 2, (".IDX", ".UP", ".DOWN", ".BFLY")), "lane": Number(53, 5), "clamp": Number(40, 13),
        "redux": Enum(78, 3, ("", ".OR", ".XOR", ".SUM", ".MIN", ".MAX")), "s32": flag(73, ".S32"),
        "ignorekill": flag(85, ".IGNOREKILL"), "threads": register("UR", 24, inv=72),
        "fill": Enum(86, 2, ("", ".FILL", ".BROADCAST")), "reliable": flag(72, ".RELIABLE"), "rely": Enum(72, 2, ("", ".RELIABLE", ".RECONVERGENT")),
        "least": Enum(78, 2, (".MAX", ".MAXABS", ".MIN", ".MINABS")), "of": Enum(73, 2, ("", ".S32", ".F32")),
        "nan": flag(77, ".NAN"),
        "URdw": register("UR", 16, -1), "cs2r": Enum(80, 1, (".32", ""), spans={"": 2}),
        "byte": Enum(76, 2, ("", ".B1", ".B2", ".B3")),
        "dim": Enum(78, 2, (".X", ".Y", ".Z", "")),
    },
)
# fmt: on


# ---- what they are -----------------------------------------------------------------------------------------------

alu, lsu, special, branch = (functools.partial(op, pipe) for pipe in ("alu", "lsu", "special", "branch"))
goes = functools.partial(branch, sets="")

OPS = {
    "BRA": goes("branches; a predicate or a uniform register may make it conditional besides the guard", "bra",
                "BRA 0x100", flow="jump", traits="stalls"),
    "BRX": goes("branches to an address in a register, relative", "brx.idx", "BRX R2 -0x100", flow="indirect",
                relative=True, traits="stalls"),
    "BRXU": branch("branches to an address in a uniform register, relative", "brx.idx", "BRXU UR4 -0x100",
                   flow="indirect", relative=True, kin="BRX"),
    "JMP": branch("jumps to an absolute address", "", "JMP 0x100", flow="jump"),
    "JMX": branch("jumps to an absolute address in a register", "", "JMX R2 0x10", flow="indirect"),
    "JMXU": branch("jumps to an absolute address in a uniform register", "", "JMXU UR4 0x10", flow="indirect", kin="JMX"),
    "CALL": goes("calls a function; the return address lies in registers that the code set itself", "call",
                 "CALL.REL.NOINC 0x100", flow="call", opaque=True),
    "RET": goes("returns to an address in registers", "ret", "RET.REL.NODEC R2 0x0", flow="end"),
    "WARPSYNC": goes("waits until the lanes of a mask have come together", "bar.warp.sync, __syncwarp", "WARPSYNC R0",
                     traits="meets"),
    "LEPC": alu("d = the address of this instruction", "", "LEPC R2", opaque=True, traits="place"),
    "EXIT": goes("ends the thread", "exit, ret of an entry", "EXIT", flow="end"),
    "KILL": branch("ends the thread of a pixel", "", "KILL", flow="end"),
    "RTT": branch("returns from a trap", "", "RTT", flow="end"),
    "BPT": branch("breakpoint or trap", "trap, brkpt, __trap, __brkpt", "BPT.TRAP 0x1"),
    "BSSY": goes("sets up a barrier register: its lanes meet at the target", "", "BSSY B0, 0x100"),
    "BSYNC": goes("waits for the lanes of a barrier register to meet", "", "BSYNC B0",
                  reads="B16", traits="meets"),
    "BREAK": goes("takes lanes out of a barrier register", "", "BREAK B0", reads="B16", writes="B16"),
    "YIELD": goes("lets other lanes of the warp go on", "", "YIELD", private=True, traits="nothing"),
    "ENDCOLLECTIVE": branch("ends a collective region", "", "ENDCOLLECTIVE"),
    "BMOV": branch("moves between barrier registers, convergence state and registers", "", "BMOV.32 B0, R0",
                   opaque=True),
    "RPCMOV": alu("moves the return address", "", "RPCMOV.32 R0, Rpc.LO", traits="place"),
    "BAR": special("waits or arrives at a named barrier of the block",
                   "bar.sync, barrier.sync, barrier.arrive, barrier.red, __syncthreads", "BAR.SYNC 0x0", sets="r",
                   traits="shows"),
    "B2R": special("reads a barrier or its result", "part of barrier.red, __syncthreads_count", "B2R.RESULT R0",
                   opaque=True),
    "R2B": special("writes a barrier", "", "R2B 0x1, R0"),
    "CGAERRBAR": lsu("waits until errors of the cluster are known", "part of fence.acq_rel.cluster", "CGAERRBAR",
                     kin="ERRBAR", traits="fence stalls"),
    "PREEXIT": branch("lets dependent grids start",
                      "griddepcontrol.launch_dependents, cudaTriggerProgrammaticLaunchCompletion", "PREEXIT"),
    "ACQBULK": branch("waits for the grids that this one depends on",
                      "griddepcontrol.wait, cudaGridDependencySynchronize", "ACQBULK"),
    "DEPBAR": lsu("waits until a scoreboard has at most so many accesses left",
                  "cp.async.wait_group, __pipeline_wait_prior", "DEPBAR.LE SB0, 0x1", sets="", private=True),
    "NANOSLEEP": goes("sleeps for about so many nanoseconds", "nanosleep, __nanosleep", "NANOSLEEP 0x64"),
    "NOP": branch("does nothing", "", "NOP", private=True, traits="nothing"),
    "PMTRIG": branch("triggers a performance monitor", "pmevent, __prof_trigger", "PMTRIG 0x2"),
    "VOTE": alu("asks the warp: all, any, equal; or the mask of lanes whose predicate holds",
                "vote.sync, activemask, __ballot_sync, __all_sync, __any_sync, __activemask", "VOTE.ANY R0, PT, P0",
                opaque=True, traits="lanes"),
    "MATCH": lsu("the lanes that hold the same value", "match.any.sync, match.all.sync, __match_any_sync, __match_all_sync",
                 "MATCH.ANY R0, R1", opaque=True, traits="lanes apart"),
    "SHFL": lsu("warp shuffle: reads a register of another lane", "shfl.sync, __shfl_sync, __shfl_down_sync",
                "SHFL.DOWN PT, R0, R1, 0x10, 0x1f", opaque=True, traits="lanes"),
    "CREDUX": op("r2ur", "the smallest or largest number of the warp", "redux.sync.min, redux.sync.max.abs.NaN.f32",
                  "CREDUX.MIN UR4, R0", kin="REDUX", traits="lanes"),
    "REDUX": lsu("reduces an integer over the warp", "redux.sync, __reduce_add_sync", "REDUX.SUM UR4, R0", kin="SHFL",
                 traits="lanes"),
    "ELECT": alu("picks one lane of the warp", "elect.sync", "ELECT P0, URZ, PT", opaque=True, traits="lanes"),
    "WARPGROUP": branch("arrives at, or waits for, matrix products of the warp group",
                        "wgmma.fence, wgmma.wait_group", "WARPGROUP.ARRIVE"),
    "WARPGROUPSET": branch("sets the state of a warp group", "", "WARPGROUPSET.AC UR4"),
    "S2R": special("reads a special register, such as the thread's number",
                   "mov from %tid, %ctaid, %laneid, threadIdx, blockIdx", "S2R R0, SR_TID.X", opaque=True,
                   ordered=False, traits="special"),
    "CS2R": alu("reads a special register with fixed latency; SRZ is 0", "mov from %clock, %clock64, clock64",
                "CS2R R0, SR_CLOCKLO", opaque=True, traits="special light"),
    "CS2UR": alu("reads a special register into a uniform register with fixed latency", "mov from %clock, %clock64",
                 "CS2UR UR4, SR_CLOCKLO", kin="CS2R", opaque=True, traits="special"),
    "S2UR": special("reads a special register into a uniform register", "mov from %ctaid, blockIdx",
                    "S2UR UR4, SR_CTAID.X", kin="S2R", traits="special"),
    "P2R": alu("packs predicates into a register", "", "P2R R0, PR, RZ, 0x7f", opaque=True),
    "R2P": alu("unpacks a register into predicates", "", "R2P PR, R0, 0x7f", reads="PR", writes="PR"),
    "R2UR": op("r2ur", "moves a register to a uniform register", "", "R2UR UR4, R0", traits="copy"),
    "SETCTAID": special("sets the number of the block", "", "SETCTAID.X R0", traits="place"),
    "GETLMEMBASE": alu("reads the base address of local memory", "", "GETLMEMBASE R0", traits="place"),
    "SETLMEMBASE": lsu("sets the base address of local memory", "", "SETLMEMBASE R0", traits="place"),
}

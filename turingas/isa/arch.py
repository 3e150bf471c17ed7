"""What an architecture is: the only home of what differs from one to the next, outside the rows of the table.

An architecture names its parent and says what is different. It has all of its parent's rows but those that are ``gone``
(or whose set in the table ends before it), and whatever is its own. Rows name sets of architectures: ``AMPERE`` is
sm_80 and all that descend from it, ``AMPERE - HOPPER`` those before Hopper.

Sources: cubins of NVRTC 11.8, 12.9 and 13.5 (constant bank, e_flags, ELF), the CUDA C++ Programming Guide, tables
"Technical Specifications per Compute Capability" (limits, lanes), the CUDA Occupancy Calculator (granularity); fields
of a word by probing nvdisasm. Whatever else is said of a fact stands beside it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from turingas.errors import AsmError

KB = 1024
CUDA_13_0 = 130
WORD_BYTES = 16  # of an instruction, since sm_70
RANK_BIT = 24  # from here on an address of shared memory is the rank of its block in the cluster
SPARE_REGISTERS = 2  # Volta and later need two registers beyond the highest that is named


@dataclass(frozen=True)
class File:
    """A register file: the bits that a register's number takes in a word, and how its last number is written, which is
    no register: "Z" reads as zero (RZ), "T" as true (PT), "" is one like the others."""

    width: int
    zero: str = ""

    @property
    def last(self) -> int:
        """The highest number."""
        return (1 << self.width) - 1

    @property
    def count(self) -> int:
        """Registers that hold something."""
        return self.last + (not self.zero)


class Unit(NamedTuple):
    """How a generation of tensor cores adds up products of floating-point numbers (emulate/semantics/sums.py, with its
    sources). ``kept``: bits of a term below the leading one of the largest; ``kept8``: the same for products of FP8,
    where FP32 results have no more bits, either; ``block``: bytes of A's row that are one sum."""

    kept: int
    kept8: int
    block: int


@dataclass(frozen=True)
class Arch:
    """Facts of one architecture. Sizes are in bytes; what ends in ``_at`` is an address in constant bank 0."""

    name: str
    parent: str = ""  # "": none
    gone: tuple[str, ...] = ()  # regular expressions: rows of the parent (their texts) that this one lacks
    rows: tuple[tuple[Any, ...], ...] = ()  # rows that no module of the table has: (text, opcode, fixed[, fields])
    ops: Mapping[str, Any] = field(default_factory=dict, hash=False)  # ... and their ``Op``

    # -- instructions
    files: Mapping[str, File] = field(
        default_factory=lambda: {
            "R": File(8, "Z"), "UR": File(6, "Z"), "P": File(3, "T"), "UP": File(3, "T"), "B": File(4),
        }, hash=False,
    )  # fmt: skip
    #: kinds of source that arithmetic takes (grammar.SHAPES): register, immediate, constant, constant through a
    #: uniform register, uniform register
    sources: str = "ricxu"
    halves_of_floats: bool = False  # a source of two halves may be one FP32 value for both (.F32)
    orders_by_name: bool = False  # accesses name their order in words of their own: LDG.E.SYS, LDS.U
    products_of_96: bool = False  # UTCOMMA with K = 96, and absolute leading offsets for it
    mbarriers: bool = False  # SYNCS; before, ATOMS and ARRIVES do without transactions
    tensor_sums: Unit = Unit(23, 0, 8)

    # -- time
    latency: str = ""  # whose rows of latency.csv hold; "": none, and nothing that asks for cycles works
    #: pipes whose results come at no fixed time, beside those of every architecture
    queues: frozenset[str] = frozenset()
    tensor_distance: bool = False  # HMMA and IMMA work with enough distance, too, without scoreboards
    atom_predicate_early: bool = False  # the predicate of ATOM is there with its read scoreboard
    given: tuple[int, ...] = ()  # uniform registers that compiled kernels read first: they hold something at the start
    releases: frozenset[str] = frozenset()  # pipes of fixed latency whose instructions may set scoreboards all the same
    bmov_reads_early: bool = False  # BMOV of a barrier into a register releases no read scoreboard
    fp32_lanes: int = 128  # FFMA that an SM begins in a cycle; with 64 a warp takes its pipe for two

    # -- constant bank 0 and launches
    param_base: int = 0x160  # first kernel parameter
    wide_param_base: int = 0x1A80  # first parameter of a kernel that takes more than 4096 bytes of them
    max_params: int = 32764  # bytes of parameters
    global_descriptor: int | None = None  # 64-bit descriptor of global memory; None: instructions take none
    block_dim: int = 0x0  # blockDim.x, .y, .z
    grid_dim: int = 0xC  # gridDim.x, .y, .z
    shared_window_at: int | None = 0x18  # where generic addresses of shared memory begin, 64 bits; None: not there
    local_window_at: int = 0x20  # ... and of local memory
    stack_pointer: int = 0x28  # initial value of R1
    #: the next three as ptxas' code for %dynamic_smem_size, %nsmid and %total_smem_size reads them
    dynamic_at: int = 0x2C  # bytes of dynamic shared memory
    # generic addresses, as NVRTC 12.9's code reads them: of bank 0, for parameters through pointers, and of bank 3,
    # for __constant__ variables through pointers (-G)
    bank_at: int = 0x40
    bank_at_params: bool = False  # what is found there is where the parameters begin: code adds an offset among them
    constants_at: int = 0x50
    sms_at: int = 0x10C  # how many SMs there are
    kept_at: int = 0x114  # bytes of SR_SMEMSZ that the system keeps
    #: %envreg1 and %envreg2, the upper and the lower half of the address of what cooperative launches synchronise with
    workspace_at: int = 0x8C
    #: as ptxas' code for %is_explicit_cluster reads it; for %cluster_nctaid, %clusterid (1 / %cluster_nctaid, FP32) and
    #: %nclusterid, twelve bytes each; for %cluster_nctarank; and for %aggr_smem_size, which it does not exceed
    explicit_cluster_at: int = 0x140
    cluster_at: tuple[int, int, int] = (0x144, 0x150, 0x15C)
    cluster_size_at: int = 0x188
    all_shared_at: int = 0x13C

    # -- limits
    shared_optin: int = 0  # most shared memory of a block, asked for at launch
    shared_per_sm: int = 0
    shared_static: int = 48 * KB  # most shared memory that a cubin may declare
    shared_reserved: int = 0  # what the system takes of every block's shared memory
    shared_declared: bool = False  # compilers count that in, and put the kernel's variables behind it
    shared_unit: int = 128  # shared memory is allocated in these
    max_warps: int = 64  # resident on one SM
    max_blocks: int = 32  # resident on one SM
    max_registers: int = 255  # a thread
    registers_per_sm: int = 65536
    max_barriers: int = 16
    max_cluster: int = 0  # blocks; more than 8 are not portable, and have to be asked for
    early_launches: bool = False  # a kernel may begin before the one before it has ended, where its launch says so

    # -- cubins
    abi: int = 0x33  # of the ELF header, whose version is 8 from 0x41 on
    compat: int = 0  # what .nv.compat of ptxas 13.0's smallest cubin says under 11; its meaning is not known
    newer_elf: bool = False  # as ptxas writes them since sm_90: order of sections, symbols, attributes and segments,
    #                          shared memory that is reserved, registers in .nv.info alone
    shared_kept: int = 0  # bytes of .nv.shared.reserved.0
    code_padding: int = 0  # bytes of NOP after the code, beyond its alignment (instructions are fetched ahead)
    sw_war: int | None = None  # value of EIATTR_SW_WAR, where ptxas 12.9 writes one
    sw2861232_war: bool = False  # whether it writes EIATTR_SW2861232_WAR

    @property
    def sm(self) -> int:
        """90 of "sm_90a"."""
        return int(re.sub(r"\D", "", self.name))

    @property
    def variant(self) -> str:
        """ "a" of "sm_90a": what runs on that chip alone; "" of one whose code newer chips of its generation run."""
        return self.name.lstrip("sm_0123456789")

    @property
    def e_flags(self) -> int:
        """The ELF header's, in the style of CUDA 11 and 12 (ABI version 7); of Blackwell, CUDA 13's."""
        if self.abi >= 0x41:
            return 0x6000002 | self.sm << 8
        return self.sm << 16 | (0x800 if self.variant == "a" else 0) | 0x500 | self.sm

    @property
    def chip_and_cuda(self) -> tuple[int, int]:
        """What .note.nv.cuinfo of ptxas 13.0 says of it."""
        return self.sm, CUDA_13_0

    @property
    def line(self) -> tuple[str, ...]:
        """Its name, its parent's, and so on."""
        return (self.name, *(ARCHS[self.parent].line if self.parent else ()))

    @property
    def shared_counted(self) -> int:
        """What a kernel's declared shared memory has of the reserved bytes in it."""
        return self.shared_reserved if self.shared_declared else 0

    def params_at(self, size: int) -> int:
        """Address of the first of ``size`` bytes of parameters."""
        return self.param_base if size <= 4096 else self.wide_param_base

    def kept(self, texts: Iterable[str]) -> list[bool]:
        """Of the texts of rows, which are not gone, here or on an architecture that this one descends from."""
        gone = [re.compile(gone) for name in self.line for gone in ARCHS[name].gone]
        return [not any(one.search(text) for one in gone) for text in texts]


#: all architectures by name: what has a table
ARCHS: dict[str, Arch] = {}


def add(made: Arch) -> Arch:
    """Make an architecture known."""
    ARCHS[made.name] = made
    return made


def child(name: str, parent: Arch, **differs: Any) -> Arch:
    """Make an architecture known that is like ``parent`` but for what ``differs``."""
    own: dict[str, Any] = {"name": name, "parent": parent.name, "gone": (), "rows": (), "ops": {}}
    return add(dataclasses.replace(parent, **{**own, **differs}))


# Limits: shared memory a block (opt-in) and an SM, warps and blocks of an SM.
_sm_70 = add(Arch(
    "sm_70", sources="ric", halves_of_floats=True, orders_by_name=True,
    latency="sm_70", queues=frozenset({"fp64", "r2ur", "tensor"}), bmov_reads_early=True, fp32_lanes=64,
    releases=frozenset({"half"}),
    shared_optin=96 * KB, shared_per_sm=96 * KB, shared_unit=256, max_warps=64, max_blocks=32, sw_war=1,
))  # fmt: skip
# The next two are found by probing nvdisasm with words of every form (tests/isa/test_relatives.py), and by what NVRTC
# 12.9 makes of tests/corpus. sm_72 has IMAD.HI, IMNMX, I2I, I2IP and IMMA, which sm_75 has too; its code keeps no
# distance shorter than sm_70's.
child("sm_72", _sm_70)
_sm_75 = child(
    "sm_75", _sm_70, sources="ricxu", latency="sm_75", tensor_sums=Unit(24, 0, 16), shared_optin=64 * KB,
    shared_per_sm=64 * KB, max_warps=32, max_blocks=16,
)  # fmt: skip
_sm_80 = child(
    "sm_80", _sm_75, halves_of_floats=False, orders_by_name=False, latency="sm_80", queues=frozenset({"fp64", "r2ur"}),
    tensor_distance=True, tensor_sums=Unit(24, 13, 16), releases=frozenset(), bmov_reads_early=False,
    global_descriptor=0x118, shared_optin=163 * KB,
    shared_per_sm=164 * KB, shared_reserved=KB, shared_unit=128, max_warps=64, max_blocks=32, sw_war=None,
    sw2861232_war=True,
)  # fmt: skip
_sm_86 = child(
    "sm_86", _sm_80, latency="sm_86", fp32_lanes=128, shared_optin=99 * KB, shared_per_sm=100 * KB, max_warps=48,
    max_blocks=16,
)  # fmt: skip
# sm_87 has sm_86's words. ptxas begins its kernels with 20 instructions that clear the convergence barriers unless UR2
# says that they are clear.
child("sm_87", _sm_86, sw_war=2, given=(2,), shared_optin=163 * KB, shared_per_sm=164 * KB)
_sm_89 = child("sm_89", _sm_86, latency="sm_89", max_blocks=24, sw2861232_war=False)
_sm_90 = child(
    "sm_90", _sm_89, mbarriers=True, early_launches=True, tensor_sums=Unit(25, 13, 32), latency="sm_90",
    queues=frozenset(), atom_predicate_early=True, param_base=0x210,
    wide_param_base=0x210, bank_at=0x198, bank_at_params=True, constants_at=0xD0, global_descriptor=0x208,
    shared_optin=227 * KB, shared_per_sm=228 * KB, shared_declared=True,
    max_warps=64, max_blocks=32, max_cluster=16, workspace_at=0x44, newer_elf=True,
    code_padding=128, sw_war=8,
)  # fmt: skip
child("sm_90a", _sm_90)
# Blackwell: found by probing nvdisasm 13.5 with words of libraries (CUDA 13), and with what ptxas 13.0 makes of
# sources. Arithmetic takes no constants any more: LDC and LDCU load them into registers. No card was at hand: what a
# GPU does with such code has not been seen.
_sm_100 = child(
    "sm_100", _sm_90, files={**_sm_90.files, "UR": File(8, "Z")}, sources="riu", latency="sm_100",
    tensor_sums=Unit(25, 25, 32), abi=0x41, compat=9, shared_kept=64,
    releases=frozenset({"fp64"}),  # of code that is to run on sm_103 as well, where FP64 is slow
    gone=(
        r"^[HIQB]GMMA", r"^BMMA", r"^WARPGROUP", r"^ULDC", r"^HFMA2\.MMA", r"^IMMA\.8816", r"^DMMA\.16",
        r"^CCTLT\.IVTH tbank",
        r"(?<!\w)(c[bx]h?|half_[cx])(?!\w|\[)",
    ),
    param_base=0x380, wide_param_base=0x380, global_descriptor=0x358, block_dim=0x360, grid_dim=0x370,
    stack_pointer=0x37C, shared_window_at=None, local_window_at=0x2F8, bank_at=0x348, constants_at=0x120, sms_at=0x2D0,
    kept_at=0x16C,
    # Code reads these 0xa0 bytes times SR_CgaSize before the places that stand here. Two such tables have room: it is
    # no size, but may tell which of two sizes a cluster has (preferred ones). Here it is 0, where %nsmid is, too.
    dynamic_at=0x2AC, explicit_cluster_at=0x36C, cluster_at=(0x2A0, 0x2B0, 0x2C0), cluster_size_at=0x2CC,
    all_shared_at=0x2BC, workspace_at=0x254,
)  # fmt: skip
# the chips beside them, as nvdisasm reads their words (tests/isa)
_sm_103 = child(
    "sm_103", _sm_100, gone=(r"^UTCIMMA",), queues=frozenset({"fp64"}), releases=frozenset(), compat=0,
    products_of_96=True,
)  # fmt: skip
_sm_110 = child(
    "sm_110", _sm_100, gone=(r"^F(ADD|MUL|FMA)2", r"^VHMNMX", r"^VI(MNMX|ADD)", r"\.RS ", r"^CREDUX"),
    queues=frozenset({"fp64"}), releases=frozenset(), max_warps=48, max_blocks=24, compat=0,
)  # fmt: skip
# GeForce's has neither tensor memory nor its products, and integers of 64 bits and FP32 in uniform registers instead
_sm_120 = child(
    "sm_120", _sm_100, latency="sm_120", queues=frozenset({"fp64"}), releases=frozenset(),
    gone=(r"^VHMNMX", r"^VIMNMX3", r"^VIADDMNMX", r"^VABSDIFF", r"^IMNMX\{u32\}", r"^UF2FP\.(PACK|MERGE)"),
    shared_optin=99 * KB, shared_per_sm=100 * KB, max_warps=48, max_blocks=24, compat=0x50, sw_war=0,
)  # fmt: skip
_sm_121 = child("sm_121", _sm_120, compat=0)
# code that runs on that chip alone (a), or on those of its family (f): the same words
for _chip in (_sm_100, _sm_103, _sm_110, _sm_120, _sm_121):
    for _variant in "af":
        child(_chip.name + _variant, _chip)

NAMES = tuple(ARCHS)
#: those that differ in words: sm_100a and sm_100f have what sm_100 has (tests/isa/test_table.py), and so their like
DISTINCT = tuple(name for name, of in ARCHS.items() if not (name[-1] in "af" and "sm_100" in of.line))
SPAN = f"{NAMES[0]} to {NAMES[-1]}"  # for help texts

@dataclass(frozen=True)
class Archs:
    """A set of architectures, by descent: of each part, those whose line has all of the first names and none of the
    second. ``a in archs`` asks; ``|``, ``&`` and ``-`` combine."""

    parts: tuple[tuple[frozenset[str], frozenset[str]], ...]

    def __contains__(self, arch: Arch) -> bool:
        line = set(arch.line)
        return any(has <= line and not lacks & line for has, lacks in self.parts)

    def __bool__(self) -> bool:
        return any(arch in self for arch in ARCHS.values())

    def __or__(self, other: Archs) -> Archs:
        return Archs(self.parts + other.parts)

    def __and__(self, other: Archs) -> Archs:
        return Archs(tuple((has | more, lacks | less) for has, lacks in self.parts for more, less in other.parts))

    def __sub__(self, other: Archs) -> Archs:
        for has, lacks in other.parts:
            rest = [(frozenset[str](), frozenset({name})) for name in has]
            rest += [(frozenset({name}), frozenset[str]()) for name in lacks]
            self = self & Archs(tuple(rest))
        return self


@functools.cache
def since(name: str) -> Archs:
    """An architecture and all that descend from it."""
    return Archs(((frozenset({name}), frozenset()),))


ALL, XAVIER, TURING = since("sm_70"), since("sm_72"), since("sm_75")
AMPERE, GA10X, ADA, HOPPER = since("sm_80"), since("sm_86"), since("sm_89"), since("sm_90")
BLACKWELL, RTX = since("sm_100"), since("sm_120")  # all of Blackwell, and the chips of GeForce
THOR = since("sm_110")
B200 = BLACKWELL - RTX  # those with tensor memory
B300 = since("sm_103")


def chip(name: str) -> str:
    """An architecture without the letter that says on which chips its code runs: sm_90 of sm_90a, sm_100 of sm_100f."""
    return name.rstrip("af")


def runs_on(name: str, major: int, minor: int) -> bool:
    """Whether a cubin for an architecture runs on a GPU of this compute capability: the same major, no higher a minor
    version; sm_90a on 9.0 alone. That of a family (sm_100f: 10.0, 10.3) does where one without the letter does."""
    number = int(chip(name).removeprefix("sm_"))
    if name.endswith("a"):
        return number == 10 * major + minor
    return number // 10 == major and number % 10 <= minor


def first_with(has: Callable[[Arch], object]) -> str:
    """The oldest architecture of which something holds, for messages that say since when there is something."""
    return next(name for name, one in ARCHS.items() if has(one))


def arch(name: str | int) -> Arch:
    """The architecture called ``name``: "sm_75", "75" or 75. AsmError names the known ones."""
    text = str(name).strip().lower()
    found = ARCHS.get(text) or ARCHS.get("sm_" + text.replace("compute_", "").replace("sm", "").lstrip("_"))
    if found is None:
        raise AsmError(f"unknown architecture {name!r}", hint="known: " + ", ".join(ARCHS))
    return found

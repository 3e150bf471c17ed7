"""What an instruction is, besides how it is written: the type of OPS, which stands behind the rows of each module of
turingas/isa/table/.

What is asked of a mnemonic is a field of its Op, so that linter, CPU device, `turingas isa` and the reference need no
lists of mnemonics of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: modifiers, the number of an operand and its pattern, an address or a mask of lanes (URm) -> how many uniform
#: registers it spans; 0 where its field says so
Spans = Callable[[tuple[str, ...], int, str], int]


def wide_address(mods: tuple[str, ...], n: int, pattern: str) -> int:
    """.E is an address of 64 bits."""
    return 2 if "E" in mods else 0


#: what may be said of an instruction in one word, so that those who ask keep no list of mnemonics (``Op.traits``)
TRAITS = {
    "load": "reads memory",
    "store": "writes memory",
    "atomic": "reads and writes memory in one step: the order of two of them may show in what is left",
    "lanewise": "each lane accesses memory at an address of its own, as many bytes as the modifiers say",
    "lanes": "exchanges values with other lanes of the warp",
    "apart": "keeps no order with others of its pipe: it reads its sources and delivers its results when it likes",
    "asks": "asks what something is, and touches no memory",
    "fence": "orders accesses to memory, and does nothing else",
    "arrives": "may end the phase of an mbarrier",
    "shows": "it uses mbarriers, or others may behind it: what its warp has made of them is done before it",
    "orders": "as `shows`, but code of ptxas 12.4 lets it come before that is done",
    "brings": "tells an mbarrier how many bytes it brought",
    "meets": "lanes of the warp wait for each other, and nothing else is done",
    "nothing": "changes nothing that code can see",
    "special": "reads a special register",
    "place": "takes its own address, or changes what addresses mean",
    "copy": "d = a",
    "sum": "d = a + b, or a + b + c: a copy where all but one are zero",
    "product": "d = a * b + c, which compilers also write for a copy or a constant",
    "f32": "arithmetic on FP32, which does nothing else with its sources",
    "pairs": "does to two pairs of numbers what another instruction does to two numbers",
    "matrix": "a product of matrices of floating-point numbers",
    "light": "begins every cycle, in a unit of its own, on architectures that have a rate for alu.light",
    "mapped": "its second operand is the address of a tensor map",
    "stalls": "no compiled code stalls behind it for less than the rows `behind` of latency.csv say",
    "compare": "d = (a op b) joined with the last source, and a second predicate from the opposite of that",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Op:
    """One mnemonic. The pipe that executes it (a row of docs/latency.md), what it does in a line (d is the destination,
    a, b and c are the sources in their order), what PTX and CUDA C++ call it, and real lines: one for each
    architecture that has it, the first that can be encoded there.

    The names of PTX are what ptxas turns into it (tests/tools/ptx_table.txt); "" where neither has a name for it. Where
    the names of the mnemonics come from: NVIDIA's "CUDA Binary Utilities" lists the instruction set with a few words
    each.
    """

    pipe: str
    does: str
    ptx: str = ""
    examples: tuple[str, ...]
    sets: str = "rw"
    """Scoreboards that it may set: "r" when it has read its sources, "w" when its results are there. (ptxas never sets
    the others, and nvdisasm refuses the words: probed for sm_75 and sm_90.)"""
    ordered: bool = True
    """Whether its results are there before those of later instructions of its queue. Not so for memory behind a cache,
    and others for which ptxas was never seen to rely on it (it does for LDS, SHFL, ATOMS, B2R, conversions, MUFU and
    textures)."""
    private: bool = False
    """It touches nothing outside the warp, and so a barrier need not hold it back, though others of its pipe are."""
    makes: frozenset[str] = frozenset()
    """Modifiers with which it changes an mbarrier: no register tells when that is done, only its write scoreboard, and
    whoever lets others use mbarriers ("shows") waits for it."""
    late: frozenset[str] = frozenset()
    """Modifiers with which it reads its uniform registers late. (Those of the pipe "copy" always do.)"""
    fence: str = ""
    """The scoreboard, "r" or "w", by which it tells that it is done although it reads and writes no register. Compilers
    make the next instruction wait for it."""
    drains: bool = False
    """Compilers wait for all scoreboards before it."""
    opaque: bool = False
    """Its result is no function of the registers that it reads, or differs from lane to lane all the same."""
    reads: frozenset[str] = frozenset()
    """Registers that are sources although they stand where destinations do: file and lowest bit, "B16". "PR" (for R2P):
    it also reads those predicates that it leaves as they are."""
    writes: frozenset[str] = frozenset()
    """Registers that are destinations although they stand where sources do ("R64"), or both ("B16" of BREAK); "PR" and
    "UPR": the predicates that its mask names."""
    spans: Spans = wide_address
    """How many uniform registers its addresses span."""
    space: str = ""
    """Where its address lies: in "shared", "global", "local" or "constant" memory, or in one of the first three, which
    the address says ("generic")."""
    traits: frozenset[str] = frozenset()
    """Words of TRAITS."""
    flow: str = ""
    """Where control goes instead of on: "jump" to a target that it names, "indirect" to one in a register, "call", or
    "end": nowhere that the code shows. A guard may keep it from that."""
    flops: int = 0
    """Floating-point operations of a lane, a multiply-add as two, as Nsight Compute counts them; products of matrices
    aside."""
    relative: bool = False
    """The distance behind its register counts from the next instruction."""
    kin: tuple[str, ...] = ()
    """What to use on an architecture that lacks it."""


def op(
    pipe: str,
    does: str,
    ptx: str,
    *examples: str,
    sets: str = "rw",
    ordered: bool = True,
    private: bool = False,
    makes: str = "",
    late: str = "",
    fence: str = "",
    drains: bool = False,
    opaque: bool = False,
    reads: str = "",
    writes: str = "",
    spans: Spans = wide_address,
    space: str = "",
    traits: str = "",
    flow: str = "",
    flops: int = 0,
    relative: bool = False,
    kin: str = "",
) -> Op:
    """An Op, written shortly: the words of what are several (but for ``sets``) with spaces between."""
    return Op(
        pipe=pipe, does=does, ptx=ptx, examples=examples, sets=sets, ordered=ordered, private=private,
        makes=frozenset(makes.split()), late=frozenset(late.split()), fence=fence,
        drains=drains, opaque=opaque, reads=frozenset(reads.split()), writes=frozenset(writes.split()), spans=spans,
        space=space, traits=frozenset(traits.split()), flow=flow, flops=flops, relative=relative,
        kin=tuple(kin.split()),
    )  # fmt: skip

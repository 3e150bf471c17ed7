"""Register banks and the reuse cache: where an instruction's sources come from, and the cycles that this costs.

The register file of a scheduler has two banks, of the even and of the odd registers (Yan, Wang, Chu
2020, section 5.2.2).

* sm_70 and sm_75: an instruction has two cycles in which to read, and a bank gives one register a cycle. Three sources
  in one bank cost a cycle more (Yan, Wang, Chu 2020, section 4.3). sm_80 has as many lanes to a pipe and is taken to
  do the same.
* sm_90: an instruction issues every cycle and reads within three, one register of a bank a cycle, so a bank may be two
  reads behind. What does not fit holds the next instruction up. Huerta et al., "Analyzing Modern NVIDIA GPU cores"
  (arXiv 2503.20481), section 5.3, found these three cycles on sm_86; with the reuse cache below they explain nine
  of the ten loops that were timed on an H200 within 1.5%, and one to 10% (docs/linter.md). sm_86 and sm_89 issue alike.

The reuse cache keeps one register for each bank and each place of a source (a, b, c). ``.reuse`` leaves a source there;
the next instruction that reads that bank in that place takes the place over, whether or not it finds its register
there, and keeps it filled only with a ``.reuse`` of its own. An instruction that yields sets nothing: its flags are not
honoured (Yan, Wang, Chu 2020, section 6.1; compilers set none there), and the warp that comes next uses the
cache for itself.
A place is that of the reuse flag, which is not always where the register stands in the word: beside a constant, b
stands at 64, and FADD's second source, c, at 32. In 250,000 instructions of cuBLAS 12, cuSOLVER 13 and Triton, the
registers of 16 flags on such sources are read next by this rule alone, and of one by where they stand.
That the bank matters was found on sm_86 by Huerta et al.; of the reuse flags that NVRTC 12.9 sets in tests/corpus, on
every architecture, nearly all save a read in this model, and fewer in one without banks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from turingas.isa.arch import Arch
from turingas.isa.instruction import Access, Instruction, Reg, Shape
from turingas.isa.operands import remember

#: pipes that read their sources at issue, all at once, so that banks matter
MATH = ("fma", "alu", "half")
SLOTS = {24: "a", 32: "b", 64: "c"}  # place of a source in the word -> its name
PLACES = {name: place for place, name in SLOTS.items()}

Slot = tuple[int, int]  # bank, place


@dataclass(frozen=True)
class Ports:
    """``window``: cycles in which an instruction reads its sources, one of a bank a cycle. ``overlap``: whether
    the windows of two instructions overlap, so that a busy bank is felt later."""

    window: int
    overlap: bool


NEVER = 16  # no stall is so long
LATE_READS, AT_ONCE = Ports(3, True), Ports(2, False)


def ports(arch: Arch) -> Ports:
    """How the banks of an architecture are read."""
    return LATE_READS if arch.fp32_lanes == 128 else AT_ONCE


class Cache(NamedTuple):
    """What a warp has left behind: ``kept``, registers in the reuse cache, and ``behind``, the reads that each bank
    still has to do. ``Cache()`` is that of a warp that has just begun."""

    kept: Mapping[Slot, int] = MappingProxyType({})
    behind: tuple[int, int] = (0, 0)


EMPTY = Cache()
NONE_BEHIND = EMPTY.behind


Source = tuple[Slot, int, bool]  # slot, number, and whether .reuse keeps it


class _Sources(dict[Access, tuple[Source, ...]]):
    """What an instruction reads -> the sources that this is, without .reuse."""

    def __missing__(self, access: Access) -> tuple[Source, ...]:
        file, first, count, what = access
        found: tuple[Source, ...] = ()
        if file == "R" and what in PLACES:
            numbers = range(first, first + min(count, 2))
            found = tuple(((number & 1, PLACES[what]), number, False) for number in numbers)
        self[access] = found
        return found


_sources = _Sources()


def sources(i: Instruction) -> list[Source]:
    """The registers that ``i`` reads in the places a, b and c: slot, number, and whether ``.reuse`` keeps it."""
    found = [source for access in i.reads for source in _sources[access]]
    if i.control.reuse and not i.control.yields:
        kept = [PLACES.get(o.slot) for o in i.operands if isinstance(o, Reg) and o.reuse]
        return [(slot, number, slot[1] in kept) for slot, number, _ in found]
    return found


def reads(i: Instruction, cache: Cache) -> list[int]:
    """The registers that ``i`` reads from the banks, in the order of its sources; what it finds in the reuse cache
    it does not read. What other pipes than those of 32-bit arithmetic do is not known, and counts as nothing."""
    return _missed(i, sources(i), cache)


def _missed(i: Instruction, found: list[Source], cache: Cache) -> list[int]:
    if i.shape.op.pipe not in MATH:
        return []
    kept = cache.kept
    return list(dict.fromkeys([number for slot, number, _ in found if kept.get(slot) != number]))


def conflict_cycles(i: Instruction, cache: Cache, arch: Arch) -> int:
    """Cycles that ``i`` loses because registers that it reads lie in one bank, after what left ``cache``."""
    return _late(by_bank(reads(i, cache)), cache, ports(arch))


def by_bank(registers: list[int]) -> tuple[int, int]:
    """How many of them lie in the even bank, and in the odd one."""
    odd = sum([number & 1 for number in registers])
    return len(registers) - odd, odd


_counted: dict[tuple[Shape, int], tuple[int, int]] = {}


def _counts(i: Instruction) -> tuple[int, int]:
    """How many registers ``i`` reads from the even bank and the odd one, if the reuse cache is empty."""
    key = i.shape, i.word
    found = _counted.get(key)
    if found is None:
        found = remember(_counted, key, by_bank(_missed(i, sources(i), EMPTY)))
    return found


def _late(counts: tuple[int, int], cache: Cache, how: Ports) -> int:
    (even, odd), (even_behind, odd_behind), window = counts, cache.behind, how.window
    return max(0, even_behind + even - window if even else 0, odd_behind + odd - window if odd else 0)


def step(i: Instruction, cache: Cache, arch: Arch) -> tuple[int, Cache]:
    """``conflict_cycles``, and what ``i`` leaves behind at the time when its warp issues the next instruction."""
    return _step(i, cache, ports(arch))


def _step(i: Instruction, cache: Cache, how: Ports) -> tuple[int, Cache]:
    kept: dict[Slot, int] = {}
    if not cache.kept and not i.control.reuse:  # as mostly
        counts = _counts(i)
    else:
        found = sources(i)
        counts = by_bank(_missed(i, found, cache))
        if not i.control.yields:
            kept.update(cache.kept)
            for slot, number, keep in found:
                kept.pop(slot, None)
                if keep:
                    kept[slot] = number
    (even, odd), (even_behind, odd_behind) = counts, cache.behind
    cycles = _late(counts, cache, how)
    if how.overlap:
        passed = cycles + (i.control.stall or 1)
        left = max(0, even_behind + even - passed), max(0, odd_behind + odd - passed)
        if left != NONE_BEHIND:
            return cycles, Cache(kept, left)
    return cycles, Cache(kept) if kept else EMPTY


def walk(instructions: Iterable[Instruction | None], arch: Arch) -> Iterator[tuple[Instruction, Cache, int]]:
    """Each instruction of straight code, with what it finds in the cache and the cycles it loses by conflicts. The
    cache is empty before the first, and a word that no instruction explains empties it."""
    how, cache = ports(arch), EMPTY
    # a bank is asked for three registers at most: so long is it busy, if windows overlap
    enough = how.window if how.overlap else NEVER
    for i in instructions:
        if i is None:
            cache = EMPTY
            continue
        control = i.control
        if cache is EMPTY and not control.reuse and (control.stall >= enough or i.shape.op.pipe not in MATH):
            yield i, EMPTY, 0  # neither finds nor leaves anything
            continue
        cycles, left = _step(i, cache, how)
        yield i, cache, cycles
        cache = left

"""Who needs no scoreboard of his own, and who is better waited for elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from turingas.isa.effects import LATE, SCOREBOARDS, VARIABLE, WITH_SOURCES
from turingas.scheduler.needs import Event
from turingas.scheduler.ways import Ways

Given = Callable[[int], int | None]  # the scoreboards that an instruction waits for, if the author wrote that


def reached(ways: Ways, event: Event, board: int, given: Given) -> frozenset[int]:
    """Those who must wait and are reached before somebody whose code is given waits for a scoreboard; all, if none of
    them has a code that is given."""
    if all(given(m) is None for m in event.at):
        return event.at
    return unheld(ways, event, board, given)


def unheld(ways: Ways, event: Event, board: int, given: Given) -> frozenset[int]:
    """Those who must wait and are reached before somebody whose code is given waits for a scoreboard."""
    found = set()
    seen: set[int] = set()
    stack = [(ways.block[event.n], event.n + 1)]
    while stack:
        number, start = stack.pop()
        for m in range(start, ways.graph.blocks[number].end):
            wait = given(m)
            waits = m in event.at if wait is None else bool(wait >> board & 1)
            if m in event.at:
                found.add(m)
            if waits and (wait is not None or _always(ways, m)):  # the author's wait holds, whatever the guard is
                break
        else:
            new = [to for to in ways.next[number] if to not in seen]
            seen.update(new)
            stack += [(to, ways.graph.blocks[to].start) for to in new]
    return frozenset(found)


def common(ways: Ways, event: Event, given: Given) -> int:
    """A mask of the scoreboards that all who must wait wait for, or somebody before them, where codes are given."""
    mask = (1 << SCOREBOARDS) - 1
    if all(given(m) is None for m in event.at):
        return mask
    for board in range(SCOREBOARDS):
        for m in reached(ways, event, board, given):
            wait = given(m)
            if wait is not None and not wait >> board & 1:
                mask &= ~(1 << board)
    return mask


def fewer(ways: Ways, events: Iterable[Event], given: Given) -> list[Event]:
    """Events that are equally good and hold fewer scoreboards, and loops less. Sources that were to be read before a
    loop are waited for in front of it: in the loop the wait would come again in each round, and wait for whatever else
    has that scoreboard then. So are results that a loop whose codes are given does not wait for."""
    return _untold(ways, [_hoisted(ways, event, given) for event in events])


def _hoisted(ways: Ways, event: Event, given: Given) -> Event:
    waited = common(ways, event, given)
    return event if event.role != LATE and waited else in_front(ways, event, given, bool(waited))


def in_front(ways: Ways, event: Event, given: Given, waited: bool = True) -> Event:
    """The event, awaited in front of the loops that it began before. ``waited``: those whose codes are given wait for
    it as they are."""
    loops, here = ways.graph.loops, ways.block[event.n]
    known: dict[int, set[int] | None] = {}  # loop -> the places in front of it, if there is one on each way into it
    gone: set[int] = set()
    for m in event.at:
        around = [number for number in ways.inside[ways.block[m]] if here not in loops[number].blocks]
        if not around or (waited and given(m) is not None):
            continue
        outer = max(around, key=lambda number: len(loops[number].blocks))
        if outer not in known:
            known[outer] = _places(ways, event.n, outer, given)
        if known[outer] is not None:
            gone.add(m)
    if not gone:
        return event
    return replace(event, at=event.at - gone | {m for places in known.values() for m in places or ()})


def _places(ways: Ways, n: int, loop: int, given: Given) -> set[int] | None:
    """Behind instruction ``n``, the last places in front of a loop where a wait holds; None where a way into it has
    none."""
    here, found = ways.block[n], set[int]()
    for number in ways.into[loop]:
        if ways.reach[here] >> number & 1:
            block = ways.graph.blocks[number]
            start = n + 1 if number == here else block.start
            last = next((m for m in range(block.end - 1, start - 1, -1) if _always(ways, m) and given(m) is None), None)
            if last is None:
                return None
            found.add(last)
    return found


def _always(ways: Ways, n: int) -> bool:
    facts = ways.facts[n]
    return facts is not None and facts.guard is None


def _untold(ways: Ways, events: list[Event]) -> list[Event]:
    """Without those of which a later one of the same queue tells: what a queue does in order is over when the later one
    is, which is awaited in the same block no later."""
    ends: dict[tuple[int, object], list[tuple[int, int, int]]] = {}  # block and queue -> who tells: n, role, first wait
    for event in events:
        this = ways.facts[event.n]
        assert this is not None
        number = ways.block[event.n]
        end = ways.graph.blocks[number].end
        first = min((m for m in event.at if event.n < m < end and _always(ways, m)), default=None)
        if first is not None and this.guard is None and (event.role == LATE or this.in_order):
            ends.setdefault((number, this.queue), []).append((event.n, event.role, first))
    found = []
    for event in events:
        this = ways.facts[event.n]
        assert this is not None
        end = ways.graph.blocks[ways.block[event.n]].end
        ahead = [m for m in event.at if m > event.n]
        soonest = min([m for m in ahead if m < end], default=end)
        told = event.role == LATE or this.in_order
        if ways.lat.fence(this.i) or any(how == WITH_SOURCES for _, how in this.writes.values()):
            told = False
        if told and not any(
            event.n < n and first <= soonest and (role == VARIABLE or event.role == LATE)
            for n, role, first in ends.get((ways.block[event.n], this.queue), ())
        ):
            told = False
        if not told:
            found.append(event)
    return found

"""The least stalls that keep all distances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turingas.scheduler.needs import PACE, Distance


def solve(
    distances: Sequence[Distance], least: Sequence[int], most: Sequence[int], weight: Sequence[int]
) -> tuple[list[int], list[Distance]]:
    """The stall of each instruction, between ``least`` and ``most``, and the distances that cannot be kept. ``weight``:
    how often an instruction runs.

    Distances within straight code are a problem of covering intervals: the fewest cycles are those of taking them by
    their ends and waiting as late as possible. Those over branches come after, where a cycle costs least; at last,
    whatever has become too much is taken away again."""
    stalls = list(least)
    lost: list[Distance] = []
    straight = [d for d in distances if d.to - d.path[0] == len(d.path)]
    others = [d for d in distances if d.to - d.path[0] != len(d.path)]
    for d in sorted(straight, key=lambda d: (d.to, -d.path[0])):
        _spread(d, reversed(d.path), stalls, most, lost)
    shared: dict[int, int] = {}
    for d in others:
        for n in d.path:
            shared[n] = shared.get(n, 0) + 1
    for d in sorted(others, key=lambda d: (-min([weight[n] for n in d.path]), d.to)):
        _spread(d, sorted(d.path, key=lambda n: (weight[n], -shared[n], -n)), stalls, most, lost)
    over: dict[int, list[Distance]] = {}
    for d in distances:
        for n in d.path:
            over.setdefault(n, []).append(d)
    raised = [n for n, stall in enumerate(stalls) if stall > least[n]]
    for n in sorted(raised, key=lambda n: -weight[n]):
        slack = min(sum([stalls[m] for m in d.path]) - d.cycles for d in over[n])
        if slack > 0:
            stalls[n] -= min(slack, stalls[n] - least[n])
    return stalls, lost


def _spread(d: Distance, places: Iterable[int], stalls: list[int], most: Sequence[int], lost: list[Distance]) -> None:
    """Raise the stalls of ``places``, the first ones first, until the distance is kept."""
    missing = d.cycles - sum([stalls[n] for n in d.path])
    if missing <= 0:
        return
    for n in places:
        more = min(missing, most[n] - stalls[n])
        if more > 0:
            stalls[n] += more
            missing -= more
            if not missing:
                return
    if d.register != PACE:
        lost.append(d)

"""Small random programs around mbarriers, and what each order of their warps comes to: all are tried.

A program is a list of operations for each warp: ``arrive``, ``wait`` (for a parity), ``sync`` (a barrier of all),
``pair`` (one of the first two warps), ``bytes`` (arrive.expect_tx of 16 bytes), ``expect`` (the same without an
arrival) and ``copy`` (of 16 bytes, of which the mbarrier hears at any time behind that). Its outcomes say of each wait
which phase it has found over, and what has counted for which phase, up to the last one that a wait has found over. A
program is right if there is one outcome, and no order hangs, or tells an mbarrier more than it waits for.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

KINDS = ("nothing", "arrive", "wait", "sync", "pair", "bytes", "expect", "copy")
BARRIERS = 2
#: runs a program
SOURCE = r"""
typedef unsigned u32;
__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
extern "C" __global__ void k(const int* code, const int* counts, const int* in, int n) {
    __shared__ unsigned long long bar[2];
    __shared__ __align__(16) int to[64][4];
    int t = threadIdx.x;
    if (t < 2) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at(bar + t)), "r"(counts[t]) : "memory");
    __syncthreads();
    for (int i = 0; i < n; i++) {
        int op = code[t / 32 * n + i], what = op & 15, parity = op >> 8;
        u32 b = at(bar + (op >> 4 & 15));
        bool one = t % 32 == 0;
        if (what == 1 && one) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(b) : "memory");
        if (what == 2)
            for (u32 done = 0; !done;)
                asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                             : "=r"(done) : "r"(b), "r"(parity) : "memory");
        if (what == 3) asm volatile("bar.sync 0;" ::: "memory");
        if (what == 4) asm volatile("bar.sync 1, 64;" ::: "memory");
#if __CUDA_ARCH__ >= 900
        if (what == 5 && one)
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(b) : "memory");
        if (what == 6 && one)
            asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 16;" ::"r"(b) : "memory");
        if (what == 7 && one)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];"
                         ::"r"(at(to[t / 2 + i])), "l"(in), "r"(b) : "memory");
#endif
        __syncwarp();
    }
}
"""


class Op(NamedTuple):
    what: str
    bar: int = 0
    parity: int = 0


class Program(NamedTuple):
    """``counts``: for how many arrivals each mbarrier is made."""

    warps: tuple[tuple[Op, ...], ...]
    counts: tuple[int, ...]

    def arguments(self) -> list[Any]:
        """Of the kernel."""
        n = max(1, max(map(len, self.warps)))
        code = np.zeros((len(self.warps), n), np.int32)
        for warp, ops in enumerate(self.warps):
            for i, op in enumerate(ops):
                code[warp, i] = KINDS.index(op.what) | op.bar << 4 | op.parity << 8
        counts = np.array([*self.counts, 1][:BARRIERS], np.int32)
        return [code, counts, np.zeros(4, np.int32), np.int32(n)]


class Bar(NamedTuple):
    """The state of an mbarrier: phases that are over, arrivals and bytes that this one waits for."""

    phase: int
    pending: int
    bytes: int = 0

    def told(self, count: int, arrivals: int = 0, expected: int = 0, complete: int = 0) -> Bar | None:
        """None where it is told of more arrivals than it waits for."""
        if arrivals > self.pending:
            return None
        pending, left = self.pending - arrivals, self.bytes + expected - complete
        if pending == left == 0 and (arrivals or complete):
            return Bar(self.phase + 1, count)
        return Bar(self.phase, pending, left)


class State(NamedTuple):
    at: tuple[int, ...]  # of each warp, the next operation
    bars: tuple[Bar, ...]
    flying: frozenset[tuple[int, int]]  # copies: the warp, and which of its operations
    counted: frozenset[tuple[int, int, int, int]]  # warp, operation, mbarrier, phase
    waits: frozenset[tuple[int, int, int, int]]


WRONG = "hangs or is misused"
MOST = 40_000  # states, behind which a program is not looked at


def outcomes(program: Program) -> set[object] | None:
    """Of all orders; None for too many, or if some misuse an mbarrier that nobody waits for any more. Two are enough to
    tell that the program is wrong."""
    warps, counts = program
    found: set[object] = set()
    begin = State((0,) * len(warps), tuple(Bar(0, n) for n in counts), frozenset(), frozenset(), frozenset())
    stack, seen = [begin], {begin}
    while stack and len(found) < 2 and WRONG not in found:
        state = stack.pop()
        if all(at == len(ops) for at, ops in zip(state.at, warps)):
            found.add(_result(state))
            continue
        following = list(_following(program, state))
        if None in following and not any(o.what == "wait" for ops, n in zip(warps, state.at) for o in ops[n:]):
            return None
        if not following or None in following:
            found.add(WRONG)
        for one in following:
            if one is not None and one not in seen:
                seen.add(one)
                stack.append(one)
        if len(seen) > MOST:
            return None
    return found


def _result(state: State) -> object:
    looked: dict[int, int] = {}
    for _, _, b, phases in state.waits:
        looked[b] = max(looked.get(b, 0), phases)
    return state.waits, frozenset(one for one in state.counted if one[3] < looked.get(one[2], 0))


def _following(program: Program, state: State) -> Any:
    """What may come next; None for misuse."""
    warps, counts = program
    here = [ops[at] if at < len(ops) else None for at, ops in zip(state.at, warps)]

    def gone(*who: int) -> tuple[int, ...]:
        return tuple(at + (warp in who) for warp, at in enumerate(state.at))

    def tell(who: tuple[int, int], b: int, at: tuple[int, ...], flying: frozenset[Any], **more: int) -> State | None:
        new = state.bars[b].told(counts[b], **more)
        if new is None:
            return None
        bars = tuple(new if n == b else bar for n, bar in enumerate(state.bars))
        return State(at, bars, flying, state.counted | {(*who, b, state.bars[b].phase)}, state.waits)

    for warp, i in state.flying:
        rest = state.flying - {(warp, i)}
        yield tell((warp, i), warps[warp][i].bar, state.at, rest, complete=16)
    for warp, op in enumerate(here):
        if op is None:
            continue
        what, b, parity = op
        who = warp, state.at[warp]
        if what == "sync":
            if warp == 0 and all(o is not None and o.what == "sync" for o in here):
                yield state._replace(at=gone(*range(len(warps))))
        elif what == "pair":
            if warp == 0 and (other := here[1]) is not None and other.what == "pair":
                yield state._replace(at=gone(0, 1))
        elif what == "wait":
            if state.bars[b].phase % 2 != parity:
                yield state._replace(at=gone(warp), waits=state.waits | {(*who, b, state.bars[b].phase)})
        elif what == "copy":
            yield state._replace(at=gone(warp), flying=state.flying | {who})
        else:
            bytes_ = 16 * (what != "arrive")
            yield tell(who, b, gone(warp), state.flying, arrivals=int(what != "expect"), expected=bytes_)


def draw(rng: random.Random, copies: bool) -> Program:
    """A program that is right, or nearly: some of its operations are left out, doubled, changed or moved."""
    many, rounds = rng.choice((2, 3, 3)), rng.choice((1, 2, 2, 3))
    programs: list[list[Op]] = [[] for _ in range(many)]
    if rng.random() < 0.35:  # a ring of one stage: the first warp brings, the others give back
        bars = 2
        counts = [1, many - 1]
        for r in range(rounds):
            programs[0] += [Op("wait", 1, r & 1 ^ 1), *_brings(rng, 0, copies)]
            for warp in range(1, many):
                programs[warp] += [Op("wait", 0, r & 1), Op("arrive", 1)]
    else:
        bars = rng.choice((1, 2, 2))
        come = [[w for w in range(many) if rng.random() < 0.6] or [rng.randrange(many)] for _ in range(bars)]
        wait = [[w for w in range(many) if rng.random() < 0.7] or [rng.randrange(many)] for _ in range(bars)]
        counts = [len(one) for one in come]
        meets = [rng.choice(((), (), (), range(many), range(2))) for _ in range(rounds * bars)]
        for r in range(rounds):
            for b in range(bars):
                for warp, ops in enumerate(programs):
                    if warp in come[b]:
                        ops += _brings(rng, b, copies)
                    if warp in wait[b]:
                        ops.append(Op("wait", b, r & 1))
                    if warp in meets[r * bars + b]:
                        ops.append(Op("sync" if len(meets[r * bars + b]) == many else "pair"))
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        _spoil(rng, rng.choice(programs), bars, copies)
    return Program(tuple(map(tuple, programs)), tuple(counts))


def _brings(rng: random.Random, b: int, copies: bool) -> list[Op]:
    """An arrival, with bytes or without."""
    if not copies or rng.random() < 0.5:
        return [Op("arrive", b)]
    split = [Op("expect", b), Op("arrive", b)]
    return [Op("copy", b), *split] if rng.random() < 0.2 else [*rng.choice(([Op("bytes", b)], split)), Op("copy", b)]


def _spoil(rng: random.Random, ops: list[Op], bars: int, copies: bool) -> None:
    places = [n for n, op in enumerate(ops) if op.what not in ("sync", "pair")]
    if not places:
        return
    n, how = rng.choice(places), rng.random()
    if how < 0.45:
        del ops[n]
    elif how < 0.6:
        ops[n] = ops[n]._replace(parity=ops[n].parity ^ (ops[n].what == "wait"))
    elif how < 0.8:
        if n + 1 < len(ops) and n + 1 in places:
            ops[n], ops[n + 1] = ops[n + 1], ops[n]
    else:
        what = rng.choice(("arrive", "wait", *(("bytes", "expect", "copy") if copies else ())))
        ops.insert(n, Op(what, rng.randrange(bars), rng.randrange(2) if what == "wait" else 0))


def some(rng: random.Random, copies: bool, most: int = 14) -> Program:
    """One with so many operations at most."""
    while sum(map(len, (found := draw(rng, copies)).warps)) > most:
        pass
    return found


def text(program: Program) -> str:
    """For a test that fails."""
    names: Sequence[str] = [" ".join(f"{o.what}{o.bar}{'ab'[o.parity]}" for o in ops) for ops in program.warps]
    return f"{program.counts}: " + " | ".join(names)

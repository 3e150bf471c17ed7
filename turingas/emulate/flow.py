"""Who runs next: branches, calls, convergence, barriers and the end of threads.

Volta and later: each thread has its own program counter. Threads of a warp part at a divergent branch and stay parted
until something gathers them:

* BSSY Bn notes the threads that enter a region in the convergence barrier Bn; each of them waits at BSYNC Bn until all
  of them (less those that left by BREAK or EXIT) have come, and from there they run as one again. Here every thread
  keeps its own copy of the barrier's mask, so that parts of a warp in different places cannot overwrite each other's.
* WARPSYNC waits until all threads of a mask have come to a WARPSYNC with that mask. Those that stand at one place run
  on as one.
* BAR counts threads of the block. A barrier with a count counts a warp that came whole as 32, as the hardware does.

Each function here takes a ``Turn`` and moves the program counters of its splits. It returns True when they all go on
together to one place, at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from turingas.emulate import splits as m
from turingas.emulate.arrays import LANES, Array, spread
from turingas.emulate.build import Maker, Step, semantics
from turingas.emulate.cohort import Cohort, State
from turingas.emulate.errors import DeviceError, Unsupported
from turingas.emulate.splits import Splits, any_lane, bits_of
from turingas.isa.instruction import Const, Imm, Instruction, Label, Name, Operand, Reg

WORD = 16
SPINS = 16  # so many YIELDs while others of its warp wait at a BSYNC: a thread that spins
LISTED = 6  # who is named in a report of a deadlock


class Turn(NamedTuple):
    """One instruction of this module at work: ``i``, number ``n``, on the splits ``chosen`` (indices, one for each row
    of the cohort ``k``, whose ``mask`` already heeds the guard)."""

    wave: State
    maker: Maker
    k: Cohort
    i: Instruction
    n: int
    chosen: Array


Flow = Callable[[Turn], bool]
FLOW: dict[str, Flow] = {}


def _flow(*names: str) -> Callable[[Flow], Flow]:
    def register(function: Flow) -> Flow:
        FLOW.update(dict.fromkeys(names, function))
        return function

    return register


def _lanes(t: Turn) -> Array:
    """The lanes that the guard and the predicate operand let through, (n, 32)."""
    lanes = t.k.lanes
    first = t.i.operands[0] if t.i.operands else None
    if isinstance(first, Reg) and first.file == "P" and not (first.zero and not first.inv):
        lanes = lanes & t.maker.pred(first)(t.k)
    return lanes


def _active(t: Turn) -> Array:
    return np.ones((t.k.count, 32), bool) if t.k.active is None else t.k.active


def _first(value: Array, lanes: Array) -> Array:
    """What the first lane of each row has, (n,)."""
    value = spread(value, lanes.shape)
    return value[np.arange(len(lanes)), lanes.argmax(axis=1)]


# ---- branches ----------------------------------------------------------------------------------------------------


def _go(t: Turn, lanes: Array, target: int) -> bool:
    """``lanes`` go to instruction ``target``, the others to the next one."""
    splits, chosen = t.wave.splits, t.chosen
    if not lanes.any():
        splits.pc[chosen] = t.n + 1
        return True
    active = _active(t)
    rest = active & ~lanes
    if not rest.any():
        splits.pc[chosen] = target
        return True
    some, every = any_lane(lanes), ~any_lane(rest)
    splits.pc[chosen] = np.where(every, target, t.n + 1)
    parted = some & ~every
    if parted.any():
        here = chosen[parted]
        splits.mask[here] = rest[parted]
        splits.add(splits.warp[here], np.int64(target), lanes[parted], t.wave.turn)
    return False


def _scatter(t: Turn, lanes: Array, targets: Array) -> bool:
    """Each of ``lanes`` goes to the instruction that ``targets`` (n, 32) says, the others to the next one."""
    if not lanes.any():
        return _go(t, lanes, t.n + 1)
    targets = spread(targets, lanes.shape)
    first = int(targets[lanes][0])
    if (targets[lanes] == first).all():
        return _go(t, lanes, first)
    splits = t.wave.splits
    rest = lanes.copy()
    splits.mask[t.chosen] = _active(t) & ~lanes
    splits.pc[t.chosen] = t.n + 1
    while (rows := any_lane(rest)).any():
        goal = _first(targets, rest)
        group = rest & (targets == goal[:, None])
        splits.add(splits.warp[t.chosen[rows]], goal[rows], group[rows], t.wave.turn)
        rest &= ~group
    splits.keep(any_lane(splits.mask))
    return False


def back(t: Turn, targets: Array) -> None:
    """The lanes of a cohort that called the driver go to the addresses ``targets`` (n, 32), in bytes."""
    _scatter(t, _active(t), _address(t, targets))


def _address(t: Turn, value: Array) -> Array:
    """Addresses in bytes -> numbers of instructions; an address between two instructions leads out of the code."""
    return np.where(value % WORD == 0, value // WORD, -1)


def _target(t: Turn, operand: Operand) -> int | Array:
    """Where a branch goes: the number of an instruction, or one for each lane."""
    maker = t.maker
    if isinstance(operand, Label):
        if operand.base is None:
            return operand.address // WORD
        base = operand.base
        wide = Reg(base.file, base.index, 2)
        value = maker.raw64(wide)(t.k).astype(np.int64) + operand.address
        return _address(t, value)
    if isinstance(operand, Const):
        return _address(t, maker.raw64(operand)(t.k).astype(np.int64))
    if isinstance(operand, Reg):
        return _address(t, maker.raw64(Reg(operand.file, operand.index, 2))(t.k).astype(np.int64))
    raise _unsupported(t)


def _unsupported(t: Turn) -> DeviceError:
    return DeviceError("unsupported", f"the CPU device cannot run {t.i.name} in this form", t.wave.image.place(t.n))


@_flow("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET")
def branch(t: Turn) -> bool:
    """To a label or an address in registers or constants. BRA.DIV goes, with all lanes, when not all lanes of a mask
    are here and pass the guard; BRA.CONV when they are. (ptxas guards it so that lanes of other tiles fail: where
    masks differ in a warp, @!P BRA.DIV must lead all of them to the code that takes one tile after the other.)"""
    lanes = _lanes(t)
    maker = t.maker
    operands = t.i.operands[1:] if isinstance(t.i.operands[0], Reg) else t.i.operands
    for operand in operands[:-1]:
        if isinstance(operand, Reg) and operand.file == "UP":
            lanes = lanes & maker.pred(operand)(t.k)
    if "ANY" in t.i.mods:  # all go where one does: ptxas' loops around UBLKCP, once for each thread
        lanes = _active(t) & lanes.any(axis=1, keepdims=True)
    if "DIV" in t.i.mods or "CONV" in t.i.mods:
        wanted = [o for o in operands[:-1] if isinstance(o, Reg) and o.file == "UR"]
        mask = maker.u32(wanted[0])(t.k)[:, 0] if wanted else np.uint32(0xFFFFFFFF)
        missing = mask & bits_of(t.wave.alive[t.k.rows]) & ~bits_of(lanes) != 0
        lanes = _active(t) & (missing if "DIV" in t.i.mods else ~missing)[:, None]
    target = _target(t, operands[-1])
    if isinstance(target, int) and target == t.n and t.i.always and lanes.any():
        row = int(lanes.any(axis=1).argmax())
        message = "the kernel does not end: an unconditional branch to itself"
        raise t.wave.fault(t.i, "endless", message, row, int(lanes[row].argmax()))
    if isinstance(target, int):
        return _go(t, lanes, target)
    return _scatter(t, lanes, target)


@_flow("EXIT", "KILL")
def leave(t: Turn) -> bool:
    """The threads end."""
    wave, splits = t.wave, t.wave.splits
    lanes = _lanes(t)
    if not lanes.any():
        splits.pc[t.chosen] = t.n + 1
        return True
    wave.alive[t.k.rows] &= ~lanes
    if wave.shared.cluster > 1:
        wave.shared.ended[:] = np.bincount(wave.block_of, any_lane(wave.alive), wave.blocks) == 0
    splits.mask[t.chosen] = _active(t) & ~lanes
    splits.pc[t.chosen] = t.n + 1
    splits.keep(any_lane(splits.mask))
    wave.moved = bool((splits.state != m.RUNNING).any())
    return False


@_flow("BPT")
def trap(t: Turn) -> bool:
    """A trap ends the kernel."""
    lanes = t.k.lanes
    if lanes.any():
        row = int(lanes.any(axis=1).argmax())
        raise t.wave.fault(t.i, "trap", "the kernel trapped", row, int(lanes[row].argmax()))
    t.wave.splits.pc[t.chosen] = t.n + 1
    return True


@_flow("YIELD", "NANOSLEEP")
def rest(t: Turn) -> bool:
    """Others go first. Who yields again and again, as a thread that spins does, is no longer waited for at BSYNC: so an
    H200 gets through a lock whose holder stands at the BSYNC behind the loop where the others spin. NANOSLEEP.SYNCS
    sleeps until an mbarrier, which others tell, and is no spinning."""
    wave = t.wave
    if "SYNCS" not in t.i.mods:
        wave.yields[t.k.rows] += t.k.lanes
    if (wave.splits.state == m.AT_BSYNC).any() and (wave.yields[t.k.rows] >= SPINS).any():
        wave.moved = True
    wave.splits.pc[t.chosen] = t.n + 1
    return False


# ---- convergence -------------------------------------------------------------------------------------------------


def _barrier(operand: Operand) -> int:
    if isinstance(operand, Reg) and operand.file == "B":
        return operand.index
    if isinstance(operand, Name) and operand.text[:1] == "B" and operand.text[1:].isdecimal():
        return int(operand.text[1:])
    raise Unsupported(f"{operand}")


@semantics("BSSY")
def bssy(i: Instruction, maker: Maker) -> Step:
    """Bn = the lanes here."""
    take, number = maker.pred(i.operands[0]), _barrier(i.operands[1])

    def step(k: Cohort) -> None:
        lanes = k.lanes & take(k)
        row, mask = k.wave.barriers[number], bits_of(lanes)
        row[k.rows] = np.where(lanes, mask[:, None], row[k.rows])
        if k.wave.left:
            for warp, value in zip(k.warps.tolist(), mask.tolist()):
                k.wave.left.pop((warp, number, value), None)

    return step


@semantics("BREAK")
def leave_barrier(i: Instruction, maker: Maker) -> Step:
    """The lanes here no longer take part in Bn: not for those that have it from the same BSSY, and so the same mask.
    Who has saved it, in a function that uses Bn itself, hears of it when the register comes back."""
    take, number = maker.pred(i.operands[0]), _barrier(i.operands[1])

    def step(k: Cohort) -> None:
        leaving, row = k.lanes & take(k), k.wave.barriers[number]
        barrier = row[k.rows]
        mine = _first(barrier, leaving)[:, None]
        bits = bits_of(leaving)
        row[k.rows] = np.where(barrier == mine, barrier & ~bits[:, None], barrier)
        saved = bits_of((barrier != mine) & k.wave.alive[k.rows]) & mine[:, 0]
        for n in np.flatnonzero(np.where(bits != 0, saved, 0)):
            key = int(k.warps[n]), number, int(mine[n, 0])
            k.wave.left[key] = k.wave.left.get(key, 0) | int(bits[n])
        k.wave.moved = True

    return step


@semantics("BMOV")
def bmov(i: Instruction, maker: Maker) -> Step:
    """Moves a convergence barrier, or the mask of active threads, to or from a register."""
    to, source = i.operands
    clear = "CLEAR" in i.mods
    if isinstance(source, Name) and source.text == "MACTIVE":
        put = maker.put(to)
        return lambda k: put(k, k.full(bits_of(k.lanes)[:, None]))
    if isinstance(source, Name) and source.text[:1] == "B" or isinstance(source, Reg) and source.file == "B":
        number = _barrier(source)

        def read(k: Cohort) -> Array:
            value = k.wave.barriers[number][k.rows]
            if clear:
                value = value.copy()
                k.wave.barriers[number][k.rows] = np.where(k.lanes, 0, value)
            return value
    else:
        get = maker.raw(source)

        def read(k: Cohort) -> Array:
            return get(k)

    if isinstance(to, Reg) and to.file == "R":
        write = maker.put(to)
        return lambda k: write(k, read(k))
    goal = _barrier(to)

    def step(k: Cohort) -> None:
        row, value = k.wave.barriers[goal], read(k)
        if k.wave.left:
            value = _without_those_who_left(k, goal, k.full(value))
        row[k.rows] = np.where(k.lanes, value, row[k.rows])

    return step


def _without_those_who_left(k: Cohort, number: int, masks: Array) -> Array:
    """Masks (n, 32) of a barrier that come back from registers, less the lanes that BREAK took out meanwhile."""
    found = masks.copy()
    for (warp, barrier, mask), lanes in k.wave.left.items():  # in the order of BREAKs: a mask may lose lanes twice
        if barrier == number:
            found = np.where((k.warps[:, None] == warp) & (found == mask), found & ~np.uint32(lanes), found)
    return found


def _wait(t: Turn, lanes: Array, state: int, key: Array, need: Array, free: Array) -> bool:
    """``lanes`` wait in ``state``; the others, and the rows of ``free``, go on."""
    splits, chosen = t.wave.splits, t.chosen
    go, whole = free, True
    if lanes is not t.k.active:
        active = _active(t)
        come = any_lane(lanes)
        parted = come & any_lane(lanes != active)
        whole = not parted.any()
        if not whole:  # those whom the guard holds back go on without waiting
            here = chosen[parted]
            splits.add(splits.warp[here], np.int64(t.n + 1), active[parted] & ~lanes[parted], t.wave.turn)
            splits.mask[here] = lanes[parted]
        go = free | ~come
    splits.pc[chosen[go]] = t.n + 1
    if go.all():
        return whole
    stay = chosen[~go]
    splits.state[stay] = state
    splits.key[stay] = key[~go]
    splits.need[stay] = need[~go]
    t.wave.moved = True
    return False


@_flow("BSYNC")
def bsync(t: Turn) -> bool:
    """Wait until all lanes of Bn have come."""
    lanes = _lanes(t)
    number = _barrier(t.i.operands[1])
    t.wave.yields[t.k.rows] *= ~any_lane(lanes)[:, None]  # what they did before nobody waited for
    mask = _first(t.wave.barriers[number][t.k.rows], lanes)
    missing = mask & bits_of(t.wave.alive[t.k.rows]) & ~bits_of(lanes)
    return _wait(t, lanes, m.AT_BSYNC, np.full(t.k.count, number), np.zeros(t.k.count), missing == 0)


def _part(t: Turn, lanes: Array, masks: Array) -> bool:
    """``lanes`` leave their splits; those with the same of ``masks`` wait for each other."""
    splits, masks = t.wave.splits, spread(masks, lanes.shape)
    splits.mask[t.chosen] &= ~lanes
    splits.pc[t.chosen] = t.n + 1
    while (rows := any_lane(lanes)).any():
        mask = _first(masks, lanes)
        group = lanes & (masks == mask[:, None])
        new = len(splits)
        splits.add(splits.warp[t.chosen[rows]], np.int64(t.n), group[rows], t.wave.turn)
        splits.state[new:], splits.need[new:] = m.AT_WARPSYNC, mask[rows]
        lanes = lanes & ~group
    splits.keep(any_lane(splits.mask))
    t.wave.moved = True
    return False


@_flow("WARPSYNC")
def warpsync(t: Turn) -> bool:
    """Wait until all lanes of a mask have come. EXCLUSIVE, COLLECTIVE: and go on without the lanes of other masks (so
    ptxas has tiles and partitions of a warp do one after the other what none can do for several)."""
    lanes = _lanes(t)
    wanted = [o for o in t.i.operands[1:] if not isinstance(o, Label)]
    if wanted:
        masks = t.maker.raw(wanted[0])(t.k)
        mask = _first(masks, lanes)
        alone = lanes & (masks == mask[:, None])
        if {"EXCLUSIVE", "COLLECTIVE"} & set(t.i.mods) and (alone != lanes).any():
            return _part(t, lanes, masks)
    else:
        mask = np.full(t.k.count, 0xFFFFFFFF, np.uint32)
    missing = mask & bits_of(t.wave.alive[t.k.rows]) & ~bits_of(lanes)
    return _wait(t, lanes, m.AT_WARPSYNC, np.zeros(t.k.count, np.int64), mask.astype(np.int64), missing == 0)


@semantics("LEPC")
def lepc(i: Instruction, maker: Maker) -> Step:
    """Rd = the address of this instruction, or of a label."""
    put = maker.put64(i.operands[0])
    label = i.operands[1] if len(i.operands) > 1 else None
    address = np.full((1, 1), label.address if isinstance(label, Label) else i.address, np.uint64)
    return lambda k: put(k, address)


@semantics("ENDCOLLECTIVE", "NOP", "PMTRIG")
def nothing(i: Instruction, maker: Maker) -> Step:
    """Nothing that the CPU device would see."""
    return lambda k: None


# ---- barriers of the block ---------------------------------------------------------------------------------------


@_flow("BAR")
def bar(t: Turn) -> bool:
    """BAR.SYNC and BAR.RED wait, BAR.ARV only counts. Operands: barrier, threads (0: all), predicate."""
    wave, bars = t.wave, t.wave.bars
    lanes = t.k.lanes
    if not lanes.any():
        wave.splits.pc[t.chosen] = t.n + 1
        return True
    kind = t.i.mods[0]
    if kind not in ("SYNC", "ARV", "RED", "SYNCALL"):
        raise _unsupported(t)
    numbers = [o for o in t.i.operands if isinstance(o, Imm) or (isinstance(o, Reg) and o.file == "R")]
    maker = t.maker
    values = [_first(maker.raw(o)(t.k), lanes).astype(np.int64) for o in numbers]
    if len(numbers) == 2 and numbers[0] == numbers[1] and isinstance(numbers[0], Reg):
        values = [values[0] & 15, values[0] >> 16 & 0xFFF]  # one register for both
    number = values[0] & 15 if values else np.zeros(t.k.count, np.int64)
    count = values[1] if len(values) > 1 else np.zeros(t.k.count, np.int64)
    here = lanes.any(axis=1)
    group = t.k.blocks * m.BARRIERS + number
    alive = wave.alive[t.k.rows].sum(axis=1)
    came = lanes.sum(axis=1)
    if kind == "ARV":
        np.add.at(bars.arrived, group[here], np.where(came == alive, 32, came)[here])
        if (over := here & (count > 0) & (bars.arrived[group] >= count)).any():
            splits = wave.splits
            stand = (splits.state == m.AT_BAR).nonzero()[0]
            over &= ~np.isin(group, wave.block_of[splits.warp[stand]] * m.BARRIERS + splits.key[stand])
            bars.arrived[group[over]] %= count[over]  # nobody waits, and the phase is over all the same
        wave.splits.pc[t.chosen] = t.n + 1
        wave.moved = True
        for observer in wave.observers:
            observer.arrive(t.k.warps[here], group[here], t.n)
        return False
    if kind == "RED":
        holds = lanes & maker.pred(t.i.operands[-1])(t.k)
        np.add.at(bars.true, group[here], holds.sum(axis=1)[here])
        np.add.at(bars.total, group[here], came[here])
        bars.kind[t.k.rows] = {"POPC": 0, "AND": 1, "OR": 2}[t.i.mods[1]]
    return _wait(t, lanes, m.AT_BAR, number, count, np.zeros(t.k.count, bool))


@semantics("B2R")
def b2r(i: Instruction, maker: Maker) -> Step:
    """B2R.RESULT Rd, Pu: what the last BAR.RED came to."""
    if "RESULT" not in i.mods:
        raise Unsupported(i.name)
    put, flag = maker.put(i.operands[0]), maker.put(i.operands[1])

    def step(k: Cohort) -> None:
        true, total = k.wave.bars.result[:, k.rows]
        kind = k.wave.bars.kind[k.rows]
        holds = np.where(kind == 1, true == total, true > 0)
        put(k, k.full(np.where(kind == 0, true, np.where(holds, 0xFFFFFFFF, 0)).astype(np.uint32)))
        flag(k, k.full(holds))

    return step


# ---- warp groups ---------------------------------------------------------------------------------------------------


@_flow("WARPGROUP")
def warpgroup(t: Turn) -> bool:
    """WARPGROUP.ARRIVE brings the four warps of a group together, which then run matrix products. DEPBAR waits until no
    more groups of products are under way than it says, WAIT until none is."""
    lanes = t.k.lanes
    if t.i.mods[0] != "ARRIVE" or not lanes.any():
        left = t.i.operands[-1].value if t.i.operands and isinstance(t.i.operands[-1], Imm) else 0
        t.wave.late.settle(m.GSB0, t.k.warps[any_lane(lanes)], left)
        t.wave.splits.pc[t.chosen] = t.n + 1
        return True
    group = _warp_groups(t.wave, t.k.warps)
    came = np.bincount(group, lanes.sum(axis=1), t.wave.warps)
    return _wait(t, lanes, m.AT_GROUP, group, np.zeros(t.k.count, np.int64), came[group] == 32 * m.GROUP)


def _at_groups(wave: State) -> Array:
    """The splits whose warp group has come."""
    splits = wave.splits
    here = (splits.state == m.AT_GROUP).nonzero()[0]
    group = splits.key[here]
    came = np.bincount(group, splits.mask[here].sum(axis=1), wave.warps)
    return here[came[group] == 32 * m.GROUP]


def _warp_groups(wave: State, warps: Array) -> Array:
    """The first warps of the groups of four that ``warps`` are in."""
    found: Array = warps - warps % (wave.warps // wave.blocks) % m.GROUP
    return found


# ---- barriers of the cluster ---------------------------------------------------------------------------------------


@_flow("UCGABAR_ARV")
def arrive_cluster(t: Turn) -> bool:
    """Arrives at the barrier of the cluster."""
    wave, rows, lanes = t.wave, t.k.rows, t.k.lanes
    at = wave.meeting
    twice = lanes & at.pending[rows]
    if twice.any():
        row = int(twice.any(axis=1).argmax())
        message = "a thread arrives again at the barrier of the cluster, and has not waited since"
        raise wave.fault(t.i, "barrier", message, row, int(twice[row].argmax()))
    phase = at.phase[t.k.blocks // wave.options.together][:, None]
    at.since[rows] = np.where(lanes, phase, at.since[rows])
    at.pending[rows] |= lanes
    at.arrived[rows] |= lanes
    wave.splits.pc[t.chosen] = t.n + 1
    wave.moved = True
    for observer in wave.observers:
        observer.cluster("arrived", t.k.warps[any_lane(lanes)])
    _meet(wave)
    return False


@_flow("UCGABAR_WAIT")
def wait_cluster(t: Turn) -> bool:
    """Waits until all threads of the cluster have arrived, but for those that have ended."""
    wave, rows, lanes = t.wave, t.k.rows, t.k.lanes
    at = wave.meeting
    wrong = lanes & ~at.pending[rows]
    if wrong.any():
        row = int(wrong.any(axis=1).argmax())
        message = "a thread waits at the barrier of the cluster, and has not arrived"
        raise wave.fault(t.i, "barrier", message, row, int(wrong[row].argmax()))
    _meet(wave)
    phase = at.phase[t.k.blocks // wave.options.together][:, None]
    free = ((at.since[rows] < phase) | ~lanes).all(axis=1)
    at.pending[rows] &= ~(lanes & free[:, None])
    for observer in wave.observers:
        observer.cluster("passed", t.k.warps[free & any_lane(lanes)])
    none = np.zeros(t.k.count, np.int64)
    return _wait(t, lanes, m.AT_CLUSTER, none, none, free)


def _meet(wave: State) -> None:
    """Begin the next phase where all threads of a cluster have arrived, or have ended."""
    at, clusters = wave.meeting, wave.block_of // wave.options.together
    size = len(at.phase)
    missing = np.bincount(clusters, any_lane(wave.alive & ~at.arrived), size)
    come = np.bincount(clusters, any_lane(at.arrived), size)
    done = (missing == 0) & (come > 0)
    at.phase += done
    at.arrived[done[clusters]] = False
    for observer in wave.observers:
        observer.cluster("met", done.nonzero()[0])


def _at_clusters(wave: State) -> Array:
    """The splits for whom the barrier of their cluster is over."""
    splits, at = wave.splits, wave.meeting
    here = (splits.state == m.AT_CLUSTER).nonzero()[0]
    _meet(wave)
    warp = splits.warp[here]
    phase = at.phase[wave.block_of[warp] // wave.options.together]
    over = ((at.since[warp] < phase[:, None]) | ~splits.mask[here]).all(axis=1)
    done = here[over]
    if len(done):
        at.pending[splits.warp[done]] &= ~splits.mask[done]
        for observer in wave.observers:
            observer.cluster("passed", np.unique(splits.warp[done]))
    return done


# ---- those who wait ----------------------------------------------------------------------------------------------


def release(wave: State) -> None:
    """Let go of those whose waiting has come to its end, and join those that then stand at one place."""
    splits = wave.splits
    waiting = set(splits.state.tolist()) - {m.RUNNING}
    if not waiting:
        return
    over = ((m.AT_BAR, _at_bars), (m.AT_GROUP, _at_groups), (m.AT_CLUSTER, _at_clusters))
    freed = [found(wave) for state, found in over if state in waiting]
    if together := waiting & {m.AT_BSYNC, m.AT_WARPSYNC}:
        alive = bits_of(wave.alive).astype(np.int64)
        masks = bits_of(splits.mask).astype(np.int64)
    for state in together:
        here = (splits.state == state).nonzero()[0]
        warp, need = splits.warp[here], splits.need[here]
        if state == m.AT_BSYNC:
            need = wave.barriers[splits.key[here], warp, splits.mask[here].argmax(axis=1)].astype(np.int64)
        number = splits.key[here]  # of a barrier; with another mask it is that of another call
        order, new = _groups(need, number, warp)
        starts = new.nonzero()[0]
        came = np.bitwise_or.reduceat(masks[here][order], starts)
        missing = np.bitwise_or.reduceat(need[order] & alive[warp[order]], starts) & ~came
        complete = missing == 0
        if state == m.AT_BSYNC:
            complete = _without_spinners(wave, number[order[starts]], warp[order[starts]], came, missing)
        freed.append(here[order[complete[new.cumsum() - 1]]])
    gone = np.concatenate(freed)
    if not len(gone):
        return
    joinable = gone[(splits.state[gone] == m.AT_BSYNC) | (splits.state[gone] == m.AT_WARPSYNC)]
    splits.pc[gone] += 1
    splits.state[gone] = m.RUNNING
    _join(splits, joinable)


def _groups(*keys: Array) -> tuple[Array, Array]:
    """An order in which rows with the same ``keys`` follow each other, and of each row there whether it begins a group.
    The last key counts most."""
    order = np.lexsort(keys)
    new = np.ones(len(order), bool)
    ordered = [key[order] for key in keys]
    new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in ordered])
    return order, new


def _without_spinners(wave: State, number: Array, warp: Array, came: Array, missing: Array) -> Array:
    """Which groups at BSYNC (barrier ``number`` of ``warp``) wait for nobody but threads that spin. Those then no
    longer count on the group."""
    complete: Array = missing == 0
    spinning = wave.yields[warp] >= SPINS
    if not spinning.any():
        return complete
    complete = missing & ~bits_of(spinning) == 0
    if (left := complete & (missing != 0)).any():
        late = missing[left][:, None] >> LANES.astype(np.int64) & 1 != 0
        kept = np.where(late, ~came[left][:, None], -1).astype(np.uint32)
        np.bitwise_and.at(wave.barriers, (number[left], warp[left]), kept)
    return complete


def _at_bars(wave: State) -> Array:
    """The splits whose BAR is complete."""
    splits, bars = wave.splits, wave.bars
    here = (splits.state == m.AT_BAR).nonzero()[0]
    size = len(bars.arrived)
    alive = wave.alive.sum(axis=1)
    warp = splits.warp[here]
    group = wave.block_of[warp] * m.BARRIERS + splits.key[here]
    came = splits.mask[here].sum(axis=1)
    lanes = np.bincount(group, came, size)
    counted = np.bincount(group, np.where(came == alive[warp], 32, came), size) + bars.arrived
    need = np.zeros(size, np.int64)
    np.maximum.at(need, group, splits.need[here])
    block = np.bincount(wave.block_of, alive, wave.blocks).repeat(m.BARRIERS)
    full = np.where(need > 0, counted >= need, lanes >= block) & (lanes > 0)
    free = full[group]
    if (full & (need > 0) & (counted > need)).any():
        free &= _in_turn(group, np.where(came == alive[warp], 32, came), need, bars.arrived)
    done = here[free]
    if len(done):
        groups = group[free]
        reds = bars.total[groups] > 0
        bars.result[0, warp[free][reds], 0] = bars.true[groups][reds]
        bars.result[1, warp[free][reds], 0] = bars.total[groups][reds]
        for counts in (bars.arrived, bars.true, bars.total):
            counts[groups] = 0
        if wave.observers:
            (together, warps), one = np.unique(np.stack([groups, warp[free]]), axis=1, return_index=True)
            for observer in wave.observers:
                observer.barrier(warps, together, splits.pc[done[one]])
    return done


def _in_turn(group: Array, came: Array, need: Array, arrived: Array) -> Array:
    """More threads have come to barriers than these count: those that end the phase, in order; the others have come to
    the next one. (One who waits ends it in any case, for without anybody the phase would have been over before.)"""
    order = np.argsort(group, kind="stable")
    sums = np.cumsum(came[order])
    first = np.searchsorted(group[order], group[order])
    before = sums - came[order] - (sums - came[order])[first] + np.minimum(arrived, need - 1)[group[order]]
    found = np.empty(len(group), bool)
    found[order] = (before < need[group[order]]) | (need[group[order]] == 0)
    return found


def _join(splits: Splits, freed: Array) -> None:
    """Splits of one warp that were let go and stand at one place become one."""
    if len(freed) < 2:
        return
    order, new = _groups(splits.need[freed], splits.pc[freed], splits.warp[freed])  # one mask of WARPSYNC, one place
    order = freed[order]
    if new.all():
        return
    starts = new.nonzero()[0]
    splits.mask[order[starts]] = np.logical_or.reduceat(splits.mask[order], starts)
    keep = np.ones(len(splits), bool)
    keep[order[~new]] = False
    splits.keep(keep)


def deadlock(wave: State) -> DeviceError:
    """Nobody can go on: who waits where, and for whom."""
    splits = wave.splits
    lines = []
    alive = bits_of(wave.alive)
    for s in range(min(len(splits), LISTED)):
        warp, state = int(splits.warp[s]), int(splits.state[s])
        block, thread = wave.who(warp, int(splits.mask[s].argmax()))
        mine = int(bits_of(splits.mask[s : s + 1])[0])
        if state == m.AT_BSYNC:
            need = int(wave.barriers[splits.key[s], warp, splits.mask[s].argmax()]) & int(alive[warp])
            what = f"for lanes {need & ~mine:#010x} at B{splits.key[s]}"
        elif state == m.AT_WARPSYNC:
            what = f"for lanes {int(splits.need[s]) & int(alive[warp]) & ~mine:#010x}"
        elif state == m.AT_CLUSTER:
            what = "at the barrier of the cluster"
        elif state == m.AT_GROUP:
            what = "for the other warps of its warp group"
        else:
            need = int(splits.need[s])
            what = f"at barrier {splits.key[s]} for " + (f"{need} threads" if need else "all threads of the block")
        place = wave.image.place(int(splits.pc[s]))
        lines.append(f"\n  block {block}, thread {thread}, lanes {mine:#010x}: waits {what} at {place}")
    more = len(splits) - LISTED
    if more > 0:
        lines.append(f"\n  and {more} more")
    block, thread = wave.who(int(splits.warp[0]), int(splits.mask[0].argmax()))
    message = "deadlock: every thread waits" + "".join(lines)
    return DeviceError("deadlock", message, wave.image.place(int(splits.pc[0])), block, thread)

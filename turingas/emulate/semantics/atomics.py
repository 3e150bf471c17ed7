"""Atomics on global and shared memory.

They are deterministic: lanes of a warp in their order, warps in theirs. Lanes on one address are done one after the
other, each with the value that the one before it left, as far as a result or a rounding depends on that.

What NVRTC and ptxas 12.9 make of them, and what is built on it here:

* CAS compares with its first register and writes the second; CAST gives 1 for done and 0 for not, instead of the old
  value (the loops for float atomics on shared memory test for that). CAST.SPIN may fail on hardware although the value
  was the one compared with (on an H200 in three of four lanes that lie 16 bytes apart); here it does not.
* The predicate of ATOM says whether it was done. On 32-bit integers it is PT: these work on shared memory too. For
  all else code follows that asks QSPC and does it in another way, so shared and local memory are left alone then.
* POPC.INC adds one for each lane (atomicAdd of 1 becomes it); its result is never used.
* ARRIVE is mbarrier.arrive of sm_80 to sm_89 (sm_90 has SYNCS for it). The upper word of an mbarrier holds the phase in
  bit 31 and below it, counting up to 2^31, what is still to come; the lower word holds what a phase starts with. It
  gives the old value, and others compare phases. ARRIVES.LDGSTSBAR is the same when all copies are done (``bulk``).
* F32.FTZ flushes denormals, of memory, operand and result; F16x2, BF16x2 and F64 keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Get, Maker, Step, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.memory import BadAccess, Plane, Spots, check_written
from turingas.emulate.rounding import NAN64
from turingas.emulate.semantics.loads import fault, narrow_address, sources, spaces, watch, wide_address
from turingas.isa.instruction import Instruction, Mem, Reg

Function = Callable[[Array, Array], Array]  # (old, operand) -> new, elementwise

ALWAYS = np.ones((1, 1), bool)
OPERATIONS = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAS", "CAST")
INTEGERS = {"": np.uint32, "S32": np.int32, "64": np.uint64, "S64": np.int64}
UFUNCS = {
    "ADD": np.add, "MIN": np.minimum, "MAX": np.maximum, "AND": np.bitwise_and, "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
}  # fmt: skip


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def _inc(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, 0, old + 1).astype(old.dtype)


def _dec(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - 1).astype(old.dtype)


def _arrive(old: Array, one: Array) -> Array:
    """An mbarrier after one arrival; the last one begins the next phase."""
    new = old + (one << np.uint64(32))
    start = (old << np.uint64(32) & np.uint64(0x3FFFFFFF << 32)) | np.uint64(1 << 62) | (old & np.uint64(0xFFFFFFFF))
    last = new & np.uint64(0x7FFFFFFF << 32) == 0
    return np.where(last, start | (new & np.uint64(1 << 63)), new)


def arrived(state: int, count: int) -> int:
    """The state of an mbarrier after so many arrivals."""
    old = np.full(1, state, np.uint64)
    for _ in range(count):
        old = _arrive(old, np.ones(1, np.uint64))
    return int(old[0])


def _exch(old: Array, new: Array) -> Array:
    return np.broadcast_to(new, old.shape)


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def _add_ftz(old: Array, x: Array) -> Array:
    return _canonical(_flushed(_flushed(old) + _flushed(x)))


def _add_f32(old: Array, x: Array) -> Array:
    return _canonical(old + x)


def _add_f64(old: Array, x: Array) -> Array:
    """A NaN stays as it is, not even made quiet; of two the operand's (measured on an H200)."""
    new = np.where(np.isnan(x), x.view(np.uint64), np.where(np.isnan(old), old.view(np.uint64), NAN64))
    total = old + x
    return np.where(np.isnan(total), new, total.view(np.uint64)).view(np.float64)


def _canonical(x: Array) -> Array:
    """The NaN that the hardware makes."""
    return np.where(np.isnan(x), np.uint32(0x7FFFFFFF).view(np.float32), x)


def _halves(function: Function) -> Function:
    """An operation on two halves, as uint32."""

    def both(old: Array, x: Array) -> Array:
        a = np.ascontiguousarray(old).view(np.float16)
        b = np.ascontiguousarray(x).view(np.float16)
        new = function(a, b)
        return np.where(np.isnan(new), np.uint16(0x7FFF).view(np.float16), new).view(np.uint32)

    return both


def _bf16(function: Function) -> Function:
    """An operation on two bfloat16, as uint32: in FP32, and then rounded to nearest even. (FP32 has more than twice
    the digits and two, so that the second rounding does no harm.)"""

    def both(old: Array, x: Array) -> Array:
        parts = []
        for shift in (16, 0):
            a = ((old << np.uint32(shift)) & np.uint32(0xFFFF0000)).view(np.float32)
            b = ((x << np.uint32(shift)) & np.uint32(0xFFFF0000)).view(np.float32)
            new = np.asarray(function(a, b))
            bits = new.view(np.uint32)
            rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
            parts.append(np.where(np.isnan(new), np.uint32(0x7FFF), rounded))
        return parts[0] | parts[1] << np.uint32(16)

    return both


def _least(a: Array, b: Array) -> Array:
    """The lesser number, -0 < +0 (measured on an H200); a number wins over a NaN."""
    return np.where((a == b) & np.signbit(a), a, np.where((a == b) & np.signbit(b), b, np.fmin(a, b)))


def _greatest(a: Array, b: Array) -> Array:
    return -_least(-a, -b)


HALVES: dict[str, Function] = {"ADD": np.add, "MIN": _least, "MAX": _greatest}


def operation(i: Instruction) -> tuple[str, type, Function | None, int]:
    """What an atomic does: its name, the type of an element, the function (None for CAS), and elements a lane."""
    if "POPC" in i.mods:
        return "POPC", np.uint32, np.add, 1
    if "ARRIVE" in i.mods:
        return "ARRIVE", np.uint64, _arrive, 1
    name = next((mod for mod in OPERATIONS if mod in i.mods), "")
    kind = next((mod for mod in i.mods if mod in INTEGERS or mod[:2] in ("F1", "F3", "F6", "BF") or mod == "128"), "")
    if kind == "128" and name in ("EXCH", "CAS"):
        return name, np.complex128, _exch if name == "EXCH" else None, 1  # 16 bytes, only copied
    if not name or kind == "128":
        raise Unsupported(f"the atomic {i.name}")
    return named(name, kind, i.mods, i.name)


def named(name: str, kind: str, mods: Sequence[str], text: str) -> tuple[str, type, Function | None, int]:
    """The same by the names of operation and type. Unsupported, with ``text``, for what there is not."""
    if kind[:1] not in ("F", "B"):
        dtype = INTEGERS[kind]
        functions: dict[str, Function] = {**UFUNCS, "INC": _inc, "DEC": _dec, "EXCH": _exch}
        return name, dtype, functions.get(name), 1
    if kind == "F64" and name == "ADD":
        return name, np.float64, _add_f64, 1
    if kind[:3] == "F32" and name == "ADD":
        count = 1 if kind == "F32" else int(kind[4:])
        return name, np.float32, _add_ftz if "FTZ" in mods else _add_f32, count
    if name in HALVES and kind[:1] == "B":
        return name, np.uint32, _bf16(HALVES[name]), int(kind[5:]) // 2
    if name in HALVES and kind[:3] == "F16":
        return name, np.uint32, _halves(HALVES[name]), int(kind[4:]) // 2
    raise Unsupported(f"the atomic {text}")


# ---- many lanes, one address ----------------------------------------------------------------------------------------


def apply(memory: Array, index: Array, operand: Array, function: Function, wanted: bool) -> Array | None:
    """Updates ``memory[index] = function(memory[index], operand)`` for all m of ``index``, one after the other in
    effect. Returns the old values (m,) if they are ``wanted``."""
    if not wanted and isinstance(function, np.ufunc) and memory.dtype.kind in "ui":
        function.at(memory, index, operand)  # the order of these does not matter
        return None
    if len(index) < 2 or (index[1:] > index[:-1]).all():  # each its own place
        old = memory[index]
        memory[index] = function(old, operand)
        return old
    order = np.argsort(index, kind="stable")
    places = index[order]
    first = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))  # of each place
    counts = np.diff(np.append(first, len(places)))
    operand = operand[order]
    old = np.empty(len(places), memory.dtype)
    if counts.max() <= len(first) or not _runs(memory, places, operand, function, first, counts, old):
        _ranks(memory, places, operand, function, first, counts, old)
    result = np.empty_like(old)
    result[order] = old
    return result


def _ranks(
    memory: Array, places: Array, operand: Array, function: Function, first: Array, counts: Array, old: Array
) -> None:
    """The first of each place, then the second of each, and so on."""
    for rank in range(int(counts.max())):
        at = first[counts > rank] + rank
        old[at] = memory[places[at]]
        memory[places[at]] = function(old[at], operand[at])


def _runs(
    memory: Array, places: Array, operand: Array, function: Function, first: Array, counts: Array, old: Array
) -> bool:
    """All of the first place, then all of the second: for few places with many lanes each. False where it cannot."""
    if function is _exch:
        old[1:] = operand[:-1]
        old[first] = memory[places[first]]
        memory[places[first]] = operand[first + counts - 1]
        return True
    if function in (_add_ftz, _add_f32, _add_f64):
        return _float_runs(memory, places, operand, function, first, counts, old)
    if not isinstance(function, np.ufunc):
        return False
    for start, count in zip(first.tolist(), counts.tolist()):
        place = places[start]
        given = np.concatenate([memory[place : place + 1], operand[start : start + count]])
        steps = function.accumulate(given, dtype=memory.dtype)  # which would else be wider for sums
        old[start : start + count] = steps[:-1]
        memory[place] = steps[-1]
    return True


def _float_runs(
    memory: Array, places: Array, operand: Array, function: Function, first: Array, counts: Array, old: Array
) -> bool:
    """Sums of FP32 or FP64 in order. False, and nothing is done, where a denormal or a NaN comes up."""
    results = []
    operand = _flushed(operand) if function is _add_ftz else operand
    for start, count in zip(first.tolist(), counts.tolist()):
        begin = memory[places[start] : places[start] + 1]
        steps = np.add.accumulate(np.concatenate([begin, operand[start : start + count]]))
        small = (np.abs(steps) < np.finfo(np.float32).tiny) & (steps != 0)
        if np.isnan(steps).any() or (function is _add_ftz and small.any()):
            return False
        results.append(steps)
    for start, count, steps in zip(first.tolist(), counts.tolist(), results):
        old[start : start + count] = steps[:-1]
        memory[places[start]] = steps[-1]
    return True


def _equal(a: Array, b: Array) -> Array:
    """Whether elements (m,) have the same bits."""
    if a.dtype != np.complex128:
        return np.asarray(a == b)
    pairs = [np.ascontiguousarray(v).view(np.uint64).reshape(-1, 2) for v in (a, b)]
    return np.asarray((pairs[0] == pairs[1]).all(axis=1))


def compare_and_swap(memory: Array, index: Array, compare: Array, new: Array) -> Array:
    """``memory[index] = new where it equals compare``, one after the other. Returns the old values (m,)."""
    order = np.argsort(index, kind="stable")
    places, compare, new = index[order], compare[order], new[order]
    first = np.concatenate([[True], places[1:] != places[:-1]])
    group = np.cumsum(first) - 1
    start = np.flatnonzero(first)
    value = memory[places[start]]  # of each place, now
    old = value[group]
    position = np.arange(len(places))
    done = np.full(len(start), -1)  # the last lane of each place that has had its turn
    far = len(places)
    changes = ~_equal(compare, new)  # a lane that writes what is there changes nothing for others
    while True:
        match = changes & _equal(compare, value[group]) & (position > done[group])
        winner = np.minimum.reduceat(np.where(match, position, far), start)
        some = winner < far
        if not some.any():
            break
        value[some] = new[winner[some]]
        done[some] = winner[some]
        later = some[group] & (position > done[group])
        old[later] = value[group[later]]
    memory[places[start]] = value
    result = np.empty_like(old)
    result[order] = old
    return result


# ---- instructions ---------------------------------------------------------------------------------------------------


class Atomic:
    """One atomic instruction: what it does to the lanes that lie in one memory."""

    def __init__(self, i: Instruction, registers: list[Reg], target: Reg | None) -> None:
        self.name, self.dtype, self.function, self.count = operation(i)
        if "SAFEADD" in i.mods:
            raise Unsupported(f"the atomic {i.name}")
        self.item = np.dtype(self.dtype).itemsize  # bytes of an element
        self.nbytes = self.item * self.count
        self.target = target if target is not None and not target.zero else None
        if self.name == "POPC" and self.target is not None:
            raise Unsupported("the result of POPC.INC")
        self.values: list[list[Get]] = [sources(r, self.nbytes) for r in registers]
        self.wide = self.item > 4

    def operands(self, k: Cohort) -> list[list[Array]]:
        """For each operand the elements of a lane, each (n, 32) in its type."""
        if self.name in ("POPC", "ARRIVE"):
            return [[np.ones((k.count, 32), self.dtype)]]
        found: list[list[Array]] = []
        for gets in self.values:
            words = [np.ascontiguousarray(k.full(get(k))) for get in gets]
            if self.wide:
                found.append([np.stack(words, axis=-1).view(self.dtype)[..., 0]])
            else:
                found.append([word.view(self.dtype) for word in words])
        return found

    def run(self, spots: list[Spots], operands: list[list[Array]], results: list[Array]) -> None:
        """Does it, and puts the old values where the lanes are in ``results`` (an array (n, 32) for each element)."""
        for s in spots:
            lanes = np.arange(s.index.size) if s.mask is None else np.flatnonzero(s.mask)
            index = s.index.reshape(-1)[lanes] * self.count
            memory = self.memory(s.plane)
            for j in range(self.count):
                given = [o[j].reshape(-1)[lanes] for o in operands]
                old = self.element(memory, index + j, given)
                if old is not None:
                    results[j].reshape(-1)[lanes] = old

    def memory(self, plane: Plane) -> Array:
        """All of a memory as elements."""
        return plane.views[self.item].view(self.dtype)

    def element(self, memory: Array, index: Array, given: list[Array]) -> Array | None:
        """One element of each lane."""
        if self.function is not None:
            return apply(memory, index, given[0], self.function, self.target is not None)
        old = compare_and_swap(memory, index, *given)
        return old if self.name == "CAS" else _equal(old, given[0]).astype(self.dtype)

    def swapped(self, operands: list[list[Array]], results: list[Array]) -> list[Array] | None:
        """In which lanes a compare-and-swap was done, (n, 32) bool; None for other atomics."""
        if self.function is not None:
            return None
        if self.name != "CAS":
            return [results[0] != 0]
        return [_equal(results[0].reshape(-1), operands[0][0].reshape(-1)).reshape(results[0].shape)]

    def put(self, k: Cohort, results: list[Array], done: Array | None = None) -> None:
        """Writes the destination, only where it was done."""
        if self.target is None:
            return
        before = k.mask
        if done is not None:
            k.mask = done if before is None else done & before
        if self.wide:
            parts = results[0].view(np.uint32).reshape(k.count, 32, self.item // 4)
            words = [parts[..., j] for j in range(self.item // 4)]
        else:
            words = results
        for j, word in enumerate(words):
            k.set_r(self.target.index + j, word)
        k.mask = before

    def blank(self, k: Cohort) -> list[Array]:
        """Room for the results."""
        return [np.zeros((k.count, 32), self.dtype) for _ in range(self.count)]


def _parts(i: Instruction) -> tuple[Reg | None, Reg | None, Mem, list[Reg]]:
    """Predicate, destination, address and sources of an atomic."""
    at = next(n for n, o in enumerate(i.operands) if isinstance(o, Mem))
    mem = i.operands[at]
    assert isinstance(mem, Mem)
    before = [o for o in i.operands[:at] if isinstance(o, Reg)]
    pred = next((o for o in before if o.file == "P"), None)
    target = next((o for o in before if o.file == "R"), None)
    return pred, target, mem, [o for o in i.operands[at + 1 :] if isinstance(o, Reg)]


@semantics("ATOMG", "RED", "REDG", "ATOM")
def atomic(i: Instruction, m: Maker) -> Step:
    """An atomic on global memory, or with ATOM on a generic address."""
    pred, target, mem, registers = _parts(i)
    what = Atomic(i, registers, target)
    get, generic = wide_address(mem, i), i.base == "ATOM"
    asked = pred is not None and not pred.zero  # whether it was done
    put = m.put(pred) if pred is not None else None

    def step(k: Cohort) -> None:
        address = k.full(get(k))
        found = spaces(address, k.mask) if generic else [("global", k.mask)]
        done = None
        if asked:
            found = [one for one in found if one[0] == "global"]
            done = k.lanes if found else np.zeros((k.count, 32), bool)
            if found and found[0][1] is not None:
                done = found[0][1]
        results = what.blank(k)
        memory, operands = k.wave.memory, what.operands(k)
        try:
            with memory.lock:
                spots = [_spots(k, space, address, what.nbytes, lanes, True) for space, lanes in found]
                for one in spots:
                    what.run(one, operands, results)
        except BadAccess as bad:
            raise fault(k, i, bad, 32) from None
        for space, lanes in found:
            own = address if space == "global" else address.astype(np.uint32)
            swapped = what.swapped(operands, results) if k.wave.observers else None
            watch(k, i, space, own, lanes, what.nbytes, "atomic", swapped)
        what.put(k, results, done)
        if put is not None:
            put(k, ALWAYS if done is None else done)

    return step


@semantics("USTGR", "UREDGR")
def of_a_warp(i: Instruction, m: Maker) -> Step:
    """PTX st.async and red.async with .mmio: a warp stores, or adds, one value. It is done at once, which is one of the
    times that PTX allows."""
    mem, source = i.operands
    assert isinstance(mem, Mem) and isinstance(source, Reg)
    get, nbytes, adds = wide_address(mem, i), i.nbytes, "ADD" in i.mods
    registers = [None if source.zero else source.index + j for j in range(max(1, nbytes // 4))]

    def step(k: Cohort) -> None:
        address = k.full(get(k))
        words = [k.full(np.zeros((1, 1), np.uint32) if r is None else k.ur(r)) for r in registers]
        one = k.lanes & (np.arange(32) == k.lanes.argmax(axis=1)[:, None])  # none of a warp that the guard leaves out
        memory = k.wave.memory
        try:
            with memory.lock:
                for row in one.any(axis=1).nonzero()[0]:
                    rows = slice(row, row + 1)
                    mine = [word[rows] for word in words]
                    if adds:
                        mine = _plus(memory.load(address[rows], nbytes, one[rows]), mine)
                    memory.store(address[rows], nbytes, mine, one[rows])
        except BadAccess as bad:
            raise fault(k, i, bad, 32) from None
        watch(k, i, "global", address, one, nbytes, "atomic" if adds else "write", None if adds else words)

    return step


def _plus(old: list[Array], words: list[Array]) -> list[Array]:
    """Sums of integers of 32 bits, or of 64 as two words."""
    low = old[0] + words[0]
    return [low, *(a + b + (low < words[0]) for a, b in zip(old[1:], words[1:]))]


def _spots(k: Cohort, space: str, address: Array, nbytes: int, mask: Array | None, reach: bool = False) -> list[Spots]:
    if space == "global":
        found = k.wave.memory.locate(address, nbytes, mask, write=True)
    elif space == "shared":
        found = k.wave.shared.locate(address.astype(np.uint32), k.blocks, nbytes, mask, reach)
    else:
        index = int(np.ones(address.shape, bool).argmax() if mask is None else mask.argmax())
        at = int(address.flat[index]) & 0xFFFFFFFF
        raise BadAccess("unsupported", "an atomic on local memory, which no GPU has", index, at)
    for s in found:
        if s.shadow is not None:
            check_written(s, address, nbytes)
    return found


@semantics("ATOMS")
def atomic_shared(i: Instruction, m: Maker) -> Step:
    """An atomic on shared memory. CAST says in a register whether it was done, on Blackwell in a predicate."""
    pred, target, mem, registers = _parts(i)
    succeeded = m.put(pred) if pred is not None else None
    what = Atomic(i, registers, target)
    get = narrow_address(mem)

    def step(k: Cohort) -> None:
        address = k.full(get(k))
        results = what.blank(k)
        try:
            spots = _spots(k, "shared", address, what.nbytes, k.mask)
        except BadAccess as bad:
            raise fault(k, i, bad, 32) from None
        operands = what.operands(k)
        what.run(spots, operands, results)
        swapped = what.swapped(operands, results) if k.wave.observers else None
        watch(k, i, "shared", address, k.mask, what.nbytes, "atomic", swapped)
        if what.name == "ARRIVE":
            _tell(k, i, address, results[0])
        what.put(k, results)
        if succeeded is not None:
            succeeded(k, results[0] != 0)

    return step


def _tell(k: Cohort, i: Instruction, address: Array, before: Array) -> None:
    """Tells the observers of lanes that arrived at mbarriers, which were ``before`` (n, 32) when each of them came."""
    if not k.wave.observers:
        return
    (spots,) = k.wave.shared.locate(address, k.blocks, 8, k.mask)
    events: list[tuple[int, int, bool, bool]] = []
    for row, lane in np.argwhere(k.lanes).tolist():
        state = int(before[row, lane])
        event = int(k.warps[row]), int(spots.index[row, lane]), True, (state ^ (state + (1 << 32))) >> 63 & 1 != 0
        if events[-1:] != [event]:  # lanes that do the same
            events.append(event)
    for observer in k.wave.observers:
        observer.mbarriers(i, events)

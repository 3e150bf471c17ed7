"""Loads, stores, asynchronous copies and fences.

How addresses are put together was read from code that NVRTC and ptxas 12.9 compile: with ``.E`` all registers of an
address are 64 bits (a uniform one is a pair) but for ``.U32``, which is extended by zeros; the descriptor ``desc[UR]``
adds nothing. Caches, their hints and the memory order change nothing here: every access is done when the instruction
runs, warps in order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from turingas.emulate import memory
from turingas.emulate.arrays import Array, Rows, spread
from turingas.emulate.build import BINDLESS, Get, Maker, Step, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import DeviceError, Unsupported
from turingas.emulate.late import Touch
from turingas.emulate.memory import LOCAL_WINDOW, SHARED_WINDOW, BadAccess, Plane
from turingas.emulate.semantics.formats import unpadded
from turingas.emulate.splits import LOADED, STORED
from turingas.isa.effects import SCOREBOARDS
from turingas.isa.instruction import Const, Imm, Instruction, Mem, Name, Operand, Reg

SIGNED = {"S8": np.int8, "S16": np.int16}
TENSOR_STORE = "tensor store"  # of tmem: what FENCE waits for

Words = list[Array]
Load = Callable[[Cohort, Array, int, Array | None], Words]
Store = Callable[[Cohort, Array, int, Words, Array | None], None]


LARGE, EVERY = 32, 0xFF  # bytes of the accesses that have two groups of four registers, and the mask of all eight


def _written(o: Operand) -> Reg:
    assert isinstance(o, Reg), o
    return o


# ---- addresses -----------------------------------------------------------------------------------------------------


def _sum(parts: list[Get], offset: int, zero: Array) -> Get:
    """The sum of registers and an offset, in the type of zero."""
    if offset or not parts:
        constant = zero + zero.dtype.type(offset & (1 << 8 * zero.itemsize) - 1)
        if not parts:
            return lambda k: constant
        if len(parts) == 1:
            one = parts[0]
            return lambda k: one(k) + constant
        a, b = parts
        return lambda k: a(k) + b(k) + constant
    if len(parts) == 1:
        return parts[0]
    a, b = parts
    return lambda k: a(k) + b(k)


def _pair(index: int) -> Get:
    """A pair of general registers as uint64, (n, 32)."""

    def get(k: Cohort) -> Array:
        both = np.empty((k.count, 32, 2), np.uint32)
        both[..., 0] = k.r(index)
        both[..., 1] = k.r(index + 1)
        return both.view(np.uint64)[..., 0]

    return get


def _uniform_pair(index: int) -> Get:
    return lambda k: k.ur(index).astype(np.uint64) | k.ur(index + 1).astype(np.uint64) << np.uint64(32)


def wide_address(mem: Mem, i: Instruction) -> Get:
    """A global or generic address: uint64, (n, 32), (n, 1) or (1, 1)."""
    extended = "E" in i.mods
    parts: list[Get] = []
    if mem.base is not None and not mem.base.zero:
        index = mem.base.index
        parts.append(_pair(index) if mem.base.words == 2 else lambda k: k.r(index).astype(np.uint64))
    if mem.ur is not None and not mem.ur.zero:
        ur = mem.ur.index
        parts.append(_uniform_pair(ur) if extended else lambda k: k.ur(ur).astype(np.uint64))
    get = _sum(parts, mem.offset, np.zeros((1, 1), np.uint64))
    if extended:
        return get
    low = np.uint64(0xFFFFFFFF)
    return lambda k: get(k) & low


def narrow_address(mem: Mem) -> Get:
    """An address of shared or local memory: uint32, (n, 32), (n, 1) or (1, 1)."""
    parts: list[Get] = []
    if mem.base is not None and not mem.base.zero:
        index, shift = mem.base.index, np.uint32(mem.scale.bit_length() - 1)
        parts.append((lambda k: k.r(index) << shift) if shift else lambda k: k.r(index))
    if mem.ur is not None and not mem.ur.zero:
        ur = mem.ur.index
        parts.append(lambda k: k.ur(ur))
    return _sum(parts, mem.offset, np.zeros((1, 1), np.uint32))


def some_lanes(k: Cohort, address: Array) -> tuple[Array, Array | None]:
    """Address and mask in one shape: (n, 32), or (n, 1) where a warp has one address."""
    if address.shape == (k.count, 32):
        return address, k.mask
    mask: Array | None = None if k.mask is None else np.asarray(k.mask.any(axis=1, keepdims=True))
    return spread(address, (k.count, 1)), mask


def fault(k: Cohort, i: Instruction, bad: BadAccess, columns: int, message: str = "") -> DeviceError:
    """The error of the instruction for what memory said about one of (n, columns) addresses."""
    row, lane = divmod(bad.index, columns)
    if columns == 1:
        lane = int(k.lanes[row].argmax())
    return k.wave.fault(i, bad.kind, message or str(bad), row, lane, bad.address)


def watch(
    k: Cohort,
    i: Instruction,
    space: str,
    address: Array,
    mask: Array | None,
    nbytes: int,
    what: str,
    words: list[Array] | None = None,
) -> None:
    """Tells the observers of an access. ``what``: read, write (of ``words``), atomic, or copy, which comes late."""
    if not k.wave.observers:
        return
    lanes, owners = k.mask if mask is not None and mask.shape[1] == 1 else mask, None
    if space == "shared" and k.wave.shared.cluster > 1:
        if i.op.space != "shared":
            other = (address >> memory.RANK).astype(np.int64) - k.wave.rank[k.rows]
            owners = k.full(k.blocks[:, None] + other)
        address = address & memory.WITHIN
    for observer in k.wave.observers:
        observer.access(k, i, space, k.full(address), lanes, nbytes, what, words, owners)


# ---- the memories, one face -----------------------------------------------------------------------------------------


def load_global(k: Cohort, address: Array, nbytes: int, mask: Array | None) -> Words:
    """From global memory; address (n, 32) or (n, 1)."""
    return k.wave.memory.load(address, nbytes, mask)


def store_global(k: Cohort, address: Array, nbytes: int, words: Words, mask: Array | None) -> None:
    """To global memory."""
    k.wave.memory.store(address, nbytes, words, mask)


def load_shared(k: Cohort, address: Array, nbytes: int, mask: Array | None) -> Words:
    """From shared memory. Before sm_90 mbarriers are tested so."""
    if k.wave.late.expected and not k.wave.image.arch.mbarriers:
        (spots,) = k.wave.shared.locate(address, k.blocks, nbytes, mask)
        k.wave.late.poll((spots.index if mask is None else spots.index[mask]) * nbytes // 8)
    return k.wave.shared.load(address, k.blocks, nbytes, mask)


def store_shared(k: Cohort, address: Array, nbytes: int, words: Words, mask: Array | None) -> None:
    """To shared memory."""
    k.wave.shared.store(address, k.blocks, nbytes, words, mask)


def load_cluster(k: Cohort, address: Array, nbytes: int, mask: Array | None) -> Words:
    """From shared memory of any block of the cluster."""
    return k.wave.shared.load(address, k.blocks, nbytes, mask, reach=True)


def store_cluster(k: Cohort, address: Array, nbytes: int, words: Words, mask: Array | None) -> None:
    """To shared memory of any block of the cluster."""
    k.wave.shared.store(address, k.blocks, nbytes, words, mask, reach=True)


def load_local(k: Cohort, address: Array, nbytes: int, mask: Array | None) -> Words:
    """From local memory; address (n, 32)."""
    return k.wave.local.load(address, k.rows, nbytes, mask)


def store_local(k: Cohort, address: Array, nbytes: int, words: Words, mask: Array | None) -> None:
    """To local memory."""
    k.wave.local.store(address, k.rows, nbytes, words, mask)


LOADS: dict[str, Load] = {"global": load_global, "shared": load_shared, "local": load_local}
STORES: dict[str, Store] = {"global": store_global, "shared": store_shared, "local": store_local}
#: of generic addresses
LOADS_ANY, STORES_ANY = {**LOADS, "shared": load_cluster}, {**STORES, "shared": store_cluster}
WINDOWS = {"shared": np.uint64(SHARED_WINDOW), "local": np.uint64(LOCAL_WINDOW)}
UPPER = np.uint64(32)


def spaces(address: Array, mask: Array | None) -> list[tuple[str, Array | None]]:
    """Which memories generic addresses lie in: name and lanes of each, those without a lane left out."""
    upper = address >> UPPER
    found: list[tuple[str, Array | None]] = []
    rest = np.ones(address.shape, bool) if mask is None else mask
    for space, window in WINDOWS.items():
        inside = upper == window
        if inside.any():
            lanes = inside & rest
            rest = rest & ~inside
            if lanes.any():
                found.append((space, lanes))
    if not found:
        return [("global", mask)]
    if rest.any():
        found.append(("global", rest))
    return found


def _in_space(space: str, address: Array) -> Array:
    return address if space == "global" else address.astype(np.uint32)


# ---- LDG LD LDS LDL, STG ST STS STL ---------------------------------------------------------------------------------


def _extended(i: Instruction) -> Callable[[Array], Array] | None:
    signed = next((SIGNED[m] for m in i.mods if m in SIGNED), None)
    return None if signed is None else lambda word: word.astype(signed).astype(np.int32)


def _plain(i: Instruction) -> tuple[list[tuple[int, int]], Mem]:
    """The registers of a load, each with the number of the word that it gets, and its address. Unsupported for the
    predicates that can go with them."""
    at = next(n for n, o in enumerate(i.operands) if isinstance(o, Mem))
    first = at - (2 if i.nbytes == LARGE else 1)
    others, words = [*i.operands[:first], *i.operands[at + 1 :]], list(range(max(1, i.nbytes // 4)))
    if i.nbytes == LARGE:  # the upper four words go to the first group; a mask tells which of them are wanted
        mask = others.pop(0)
        assert isinstance(mask, Imm), i
        words = [n for n in (4, 5, 6, 7, 0, 1, 2, 3) if mask.bits >> n & 1]
    if "ZD" in i.mods or any(not isinstance(o, Reg) or not o.zero or o.inv for o in others):
        raise Unsupported(f"the predicates of {i.base}: {i.text()}")
    targets = []
    for group in map(_written, i.operands[first:at]):
        mine, words = words[: group.words], words[group.words :]
        targets += [] if group.zero else [(group.index + n, word) for n, word in enumerate(mine)]
    return targets, i.operands[at]  # type: ignore[return-value]


@semantics("LDG", "LDS", "LDL")
def load(i: Instruction, m: Maker) -> Step:
    """Load from a memory that the mnemonic names."""
    targets, mem = _plain(i)
    space, nbytes, extend = i.op.space, i.nbytes, _extended(i)
    get = wide_address(mem, i) if space == "global" else narrow_address(mem)
    read = LOADS[space]

    def step(k: Cohort) -> None:
        address, mask = some_lanes(k, get(k))
        if space == "local":
            address, mask = k.full(address), k.mask
        try:
            words = read(k, address, nbytes, mask)
        except BadAccess as bad:
            raise fault(k, i, bad, address.shape[1]) from None
        if k.wave.observers:
            watch(k, i, space, address, mask, nbytes, "read")
        if extend is not None:
            words = [extend(words[0])]
        for register, n in targets:
            k.set_r(register, words[n])

    return step


@semantics("STG", "STS", "STL")
def store(i: Instruction, m: Maker) -> Step:
    """Store to a memory that the mnemonic names."""
    mem, source, *more = i.operands
    assert isinstance(mem, Mem)
    space, nbytes = i.op.space, i.nbytes
    get = wide_address(mem, i) if space == "global" else narrow_address(mem)
    if nbytes == LARGE:
        upper, mask = more
        if not isinstance(mask, Imm) or mask.bits != EVERY:
            raise Unsupported(f"{i.name} with a mask, which no compiled code has")
        values = [value for group in (source, upper) for value in sources(group, nbytes // 2)]
    else:
        values = sources(source, nbytes)
    write = STORES[space]

    def step(k: Cohort) -> None:
        address = k.full(get(k))
        words = [value(k) for value in values]
        try:
            write(k, address, nbytes, words, k.mask)
        except BadAccess as bad:
            raise fault(k, i, bad, 32) from None
        if k.wave.observers:
            watch(k, i, space, address, k.mask, nbytes, "write", words)

    return step


def sources(o: Operand, nbytes: int) -> list[Get]:
    """The registers that hold the bytes to be stored."""
    reg = _written(o)
    indices = [255 if reg.zero else reg.index + j for j in range(max(1, nbytes // 4))]
    return [functools.partial(_register, index) for index in indices]


def _register(index: int, k: Cohort) -> Array:
    return k.r(index)


@semantics("LD")
def load_generic(i: Instruction, m: Maker) -> Step:
    """Load from any memory: the address says which."""
    targets, mem = _plain(i)
    nbytes, extend, get = i.nbytes, _extended(i), wide_address(mem, i)

    def step(k: Cohort) -> None:
        address = k.full(get(k))
        found = spaces(address, k.mask)
        results = []
        try:
            for space, lanes in found:
                results.append(LOADS_ANY[space](k, _in_space(space, address), nbytes, lanes))
        except BadAccess as bad:
            raise fault(k, i, bad, 32) from None
        for space, lanes in found:
            watch(k, i, space, _in_space(space, address), lanes, nbytes, "read")
        words = results[0]
        for (_, lanes), others in zip(found[1:], results[1:]):
            words = [np.where(lanes, other, word) for word, other in zip(words, others)]  # type: ignore[arg-type]
        if extend is not None:
            words = [extend(words[0])]
        for register, n in targets:
            k.set_r(register, words[n])

    return step


@semantics("ST")
def store_generic(i: Instruction, m: Maker) -> Step:
    """Store to any memory: the address says which."""
    mem, source = i.operands
    assert isinstance(mem, Mem)
    nbytes, get = i.nbytes, wide_address(mem, i)
    values = sources(source, nbytes)

    def step(k: Cohort) -> None:
        address = k.full(get(k))
        found = spaces(address, k.mask)
        words = [value(k) for value in values]
        try:
            if len(found) > 1:  # all must be good before anything is written
                for space, lanes in found:
                    _check_store(k, space, _in_space(space, address), nbytes, lanes)
            for space, lanes in found:
                STORES_ANY[space](k, _in_space(space, address), nbytes, words, lanes)
        except BadAccess as bad:
            raise fault(k, i, bad, 32) from None
        for space, lanes in found:
            watch(k, i, space, _in_space(space, address), lanes, nbytes, "write", words)

    return step


def _check_store(k: Cohort, space: str, address: Array, nbytes: int, mask: Array | None) -> None:
    if space == "global":
        k.wave.memory.locate(address, nbytes, mask, write=True)
    elif space == "shared":
        k.wave.shared.locate(address, k.blocks, nbytes, mask, reach=True)
    else:
        k.wave.local.check(address, nbytes, mask)


@semantics("QSPC")
def query_space(i: Instruction, m: Maker) -> Step:
    """Whether a generic address lies in global, shared or local memory. .S: the block's own; .D: that of any block of
    the cluster (isspacep.shared::cluster), its own too, as libcu++'s barriers take it."""
    pred, reg, mem = i.operands
    if not _written(reg).zero:
        raise Unsupported("the register that QSPC writes")
    assert isinstance(mem, Mem)
    get, put = wide_address(mem, i), m.put(pred)
    asked = next(mod for mod in i.mods if mod in ("G", "S", "L", "D"))

    def step(k: Cohort) -> None:
        upper = get(k) >> UPPER
        shared, local = upper == WINDOWS["shared"], upper == WINDOWS["local"]
        if asked == "G":
            put(k, ~(shared | local))
        elif asked == "L":
            put(k, local)
        elif asked == "S" and k.wave.shared.cluster > 1:
            put(k, shared & (get(k).astype(np.uint32) >> memory.RANK == k.wave.rank[k.rows]))
        else:
            put(k, shared)

    return step


# ---- constants ------------------------------------------------------------------------------------------------------


@semantics("LDC", "ULDC", "LDCU")
def load_constant(i: Instruction, m: Maker) -> Step:
    """Load from constant memory, at an address that a register may hold."""
    target, source, *more = i.operands
    reg = _written(target)
    nbytes, extend = i.nbytes, _extended(i)
    puts = [m.put(Reg(reg.file, reg.index + j, write=True)) for j in range(max(1, nbytes // 4))]
    if reg.zero:
        puts = [lambda k, word: None] * len(puts)

    if isinstance(source, Const):
        return _fixed_constant(source, m, puts, nbytes, extend)
    assert isinstance(source, Mem)
    if more:
        return _read_only(i, source, more, puts, extend)
    if source.space != "c" or any(mod in ("IL", "IS", "ISL") for mod in i.mods):
        raise Unsupported(f"the address of {i.text()}")
    if all(reg is None or reg.zero for reg in (source.base, source.ur)):
        return _fixed_constant(Const(source.bank, source.offset), m, puts, nbytes, extend)
    get = narrow_address(source)
    number, bank = source.bank, m.image.bank(source.bank)
    plane, size = Plane(bank), len(bank)

    def step(k: Cohort) -> None:
        address, mask = some_lanes(k, get(k))
        bad = (address.astype(np.int64) + nbytes > size) | (address & np.uint32(nbytes - 1) != 0)
        wrong = bad if mask is None else bad & mask
        if wrong.any():
            index = int(wrong.argmax())
            at = int(address.flat[index])
            where = f"a read of {nbytes} bytes at c[{number:#x}][{at:#x}]"
            kind, why = ("misaligned", f"not aligned to {nbytes} bytes") if at % nbytes else ("out of bounds", "")
            why = why or f"the bank has {size} bytes"
            raise fault(k, i, BadAccess(kind, f"{where}: {why}", index, at), address.shape[1])
        words = plane.load(nbytes, np.where(bad, np.uint32(0), address).astype(np.int64) // nbytes)
        if extend is not None:
            words = [extend(words[0])]
        for put, word in zip(puts, words):
            put(k, word)

    return step


def _read_only(
    i: Instruction,
    source: Mem,
    more: list[Operand],
    puts: list[Callable[[Cohort, Array], None]],
    extend: Callable[[Array], Array] | None,
) -> Step:
    """``LDCU UR4, [UR6+offset], !UPT``: from global memory that nobody writes (PTX: ld.proxy::readonly)."""
    if any(not isinstance(o, Reg) or not o.zero or not o.inv for o in more):
        raise Unsupported(f"the predicates of {i.base}: {i.text()}")
    pair = [] if source.ur is None or source.ur.zero else [_uniform_pair(source.ur.index)]
    get, nbytes = _sum(pair, source.offset, np.zeros((1, 1), np.uint64)), i.nbytes

    def step(k: Cohort) -> None:
        address, mask = some_lanes(k, get(k))
        try:
            words = load_global(k, address, nbytes, mask)
        except BadAccess as bad:
            raise fault(k, i, bad, address.shape[1]) from None
        watch(k, i, "global", address, mask, nbytes, "read")
        for put, word in zip(puts, [extend(words[0])] if extend else words):
            put(k, word)

    return step


def _fixed_constant(
    source: Const, m: Maker, puts: list[Callable[[Cohort, Array], None]], nbytes: int, extend: object
) -> Step:
    if source.ur is not None:
        raise Unsupported(BINDLESS)
    data = m.image.constant(source.bank, source.offset, nbytes)
    if nbytes < 4:
        signed = extend is not None
        data = int.from_bytes(data, "little", signed=signed).to_bytes(4, "little", signed=signed)
    words = [word.reshape(1, 1) for word in np.frombuffer(data, np.uint32)]

    def step(k: Cohort) -> None:
        for put, word in zip(puts, words):
            put(k, word)

    return step


# ---- asynchronous copies --------------------------------------------------------------------------------------------


@semantics("LDGSTS")
def copy(i: Instruction, m: Maker) -> Step:
    """cp.async, done when the program has waited for it (``late``). A lane whose predicate is false writes zeros. With
    .ZFILL the low bits of the source address say how many of the bytes, at the end, are not read but filled with zeros
    (seen in what ptxas makes of the src-size operand: it adds (-size) % 16 to a source that is aligned)."""
    to, source, pred = i.operands
    assert isinstance(to, Mem) and isinstance(source, Mem)
    nbytes, fill = i.nbytes, "ZFILL" in i.mods
    put_at, get_from, wanted = narrow_address(to), wide_address(source, i), m.pred(pred)
    always = isinstance(pred, Reg) and pred.zero and not pred.inv
    low = np.uint64(nbytes - 1)

    def step(k: Cohort) -> None:
        address, target = k.full(get_from(k)), k.full(put_at(k))
        lanes = None if k.mask is None else k.mask.copy()  # it may be a predicate, which changes
        mask = lanes if always else k.lanes & wanted(k)
        missing = address & low if fill else None
        where = "source"
        try:
            if missing is not None and (missing if mask is None else missing * mask).any():
                valid = nbytes - missing.astype(np.int64)
                fetch = _pieces(k, address - missing, valid, nbytes, k.lanes if mask is None else mask)
            else:
                fetch = _whole(k, address if missing is None else address - missing, nbytes, mask)
            where = "destination"
            (spots,) = k.wave.shared.locate(target, k.blocks, nbytes, lanes)
        except BadAccess as bad:
            raise fault(k, i, bad, 32, f"the {where}: {bad}") from None
        read = None if always else mask  # the others write zeros
        if k.wave.options.stale:
            memory.put_spots(spots, slice(None), nbytes, [np.full((), 0xFFFFFFFF, np.uint32)] * (nbytes // 4))

        def land(rows: Rows) -> None:
            words = fetch(rows)
            if read is not None:
                words = [np.where(read[rows], word, np.uint32(0)) for word in words]
            memory.put_spots(spots, rows, nbytes, words)

        touches = [Touch("write", spots.index, nbytes, spots.mask)]
        k.wave.late.begin(k.warps, land, "copy", i, touches, proxy=False)
        watch(k, i, "global", address, mask, nbytes, "read")
        watch(k, i, "shared", target, k.mask, nbytes, "copy")

    return step


def _whole(k: Cohort, address: Array, nbytes: int, mask: Array | None) -> Callable[[Rows], Words]:
    """What reads all bytes, when it is time, of the lanes of ``mask``."""
    found = k.wave.memory.locate(address, nbytes, mask)
    for s in found:
        if s.shadow is not None:
            memory.check_written(s, address, nbytes)
    return lambda rows: memory.take_spots(found, rows, address[rows].shape, nbytes)


def _pieces(k: Cohort, address: Array, valid: Array, nbytes: int, mask: Array) -> Callable[[Rows], Words]:
    """What reads the first ``valid`` bytes at each address, with zeros behind them, when it is time."""
    memory = k.wave.memory
    _partly(memory, address, valid, nbytes, mask)  # whether it may
    return lambda rows: _partly(memory, address[rows], valid[rows], nbytes, mask[rows])


def _partly(memory: memory.Global, address: Array, valid: Array, nbytes: int, mask: Array) -> Words:
    """The first ``valid`` bytes at each address and zeros behind them; only these bytes are read."""
    unit = 1 if (valid & 3)[mask].any() else 4
    words = np.zeros((nbytes // 4, *address.shape), np.uint32)
    for at in range(0, nbytes, unit):
        lanes = mask & (valid > at)
        if lanes.any():
            piece = memory.load(address + np.uint64(at), unit, lanes)[0] << np.uint32(at % 4 * 8)
            words[at // 4] |= np.where(lanes, piece, np.uint32(0))
    return list(words)


@semantics("LDGDEPBAR", "UTMACMDFLUSH")
def close_group(i: Instruction, m: Maker) -> Step:
    """Closes the group of the warp's copies so far, and sets a scoreboard that counts groups."""
    kind, control = "copy" if i.base == "LDGDEPBAR" else "bulk", i.control
    board = next((b for b in (control.write, control.read) if b is not None and b < SCOREBOARDS), None)
    return lambda k: k.wave.late.close(kind, some_warps(k), board)


@semantics("DEPBAR")
def wait_groups(i: Instruction, m: Maker) -> Step:
    """``DEPBAR.LE SB0, n``: at most n settings of a scoreboard are left; and those of a set are over."""
    boards, counted, left = [], None, m.raw(Imm(0, 0))
    for operand in i.operands:
        if isinstance(operand, Name):
            counted = int(operand.text.removeprefix("SB"))
        elif isinstance(operand, Imm) and operand.kind == "set":
            boards += [n for n in range(SCOREBOARDS) if operand.bits >> n & 1]
        elif counted is not None:
            left = m.raw(operand)

    def step(k: Cohort) -> None:
        late, warps = k.wave.late, some_warps(k)
        for board in boards:
            late.settle(board, warps)
            late.settle(LOADED + board, warps)
        for board in () if counted is None else (counted, LOADED + counted):
            if board in late.sets:
                late.settle(board, warps, spread(left(k), (k.count, 1))[_some(k), 0].astype(np.int64))

    return step


def some_warps(k: Cohort) -> Array:
    """The warps with a lane that takes part."""
    return k.warps[_some(k)]


def _some(k: Cohort) -> Rows:
    return slice(None) if k.mask is None else k.mask.any(axis=1).nonzero()[0]


# ---- matrices in shared memory: 8 rows of 16 bytes each, or 16 ------------------------------------------------------


PADDED = {"U4x16P64TO8": "E2M1", "U6x16P32TO8": "E2M3"}  # .b4x16_p64 and .b6x16_p32, by a format of such elements


class _Matrices(NamedTuple):
    """``number`` of them, of ``rows`` rows; how they turn, and how elements are packed."""

    number: int
    rows: int
    turn: Callable[[Array], Array] | None
    padded: str | None

    @property
    def lanes(self) -> int:
        """Those whose addresses count."""
        return self.number * self.rows


def _matrices(i: Instruction) -> _Matrices:
    count = next((int(mod) for mod in i.mods if mod in ("2", "4")), 1)
    padded = next((PADDED[mod] for mod in i.mods if mod in PADDED), None)
    bytewise = padded is not None or "8" in i.mods
    if "M88" in i.mods or "M816" in i.mods and padded:
        return _Matrices(count, 8, None, padded)
    if "MT88" in i.mods and not bytewise:
        return _Matrices(count, 8, _turned, None)
    if bytewise and "MT1616" in i.mods and count < 4:
        return _Matrices(count, 16, _turned_bytes, padded)
    if bytewise and "MT168" in i.mods:
        return _Matrices(count, 8, _stood_bytes, None)
    raise Unsupported(f"the matrices of {i.name}")


def _turned(words: Array) -> Array:
    """Matrices (n, 8 rows, 4 words) of halves, transposed; as (n, 1, 8, 4)."""
    halves = np.ascontiguousarray(words).view(np.uint16)  # (n, 8, 8)
    return np.ascontiguousarray(halves.transpose(0, 2, 1)).view(np.uint32)[:, None]


def _turned_bytes(words: Array) -> Array:
    """Matrices (n, 16 rows, 4 words) of bytes, transposed; as (n, 2, 8, 4): lane l has the columns l // 4 and
    8 + l // 4 of the four rows from 4 (l % 4) on, one in each register (CUTLASS, ``SM100_U8x8_LDSM_T``)."""
    raw = np.ascontiguousarray(words).view(np.uint8)  # (n, 16, 16)
    return np.ascontiguousarray(raw.transpose(0, 2, 1)).view(np.uint32).reshape(len(raw), 2, 8, 4)


def _stood_bytes(words: Array) -> Array:
    """A word of each lane, (n, 8, 4), as rows of 16 bytes, (n, 1, 8, 4): lane l has rows 2 (l % 4) and the next one, of
    each the bytes l // 4 and 8 + l // 4 (CUTLASS, ``SM100_U8x4_STSM_T``)."""
    raw = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), 8, 4, 2, 2)  # l // 4, l % 4, further, next
    return np.ascontiguousarray(raw.transpose(0, 2, 4, 3, 1)).view(np.uint32).reshape(len(words), 1, 8, 4)


@semantics("LDSM")
def load_matrices(i: Instruction, m: Maker) -> Step:
    """ldmatrix: lane 8 j + r has the address of row r of matrix j; lane l gets the word l % 4 of row l // 4 (PTX ISA,
    "ldmatrix"); of .m8n16, rows of 16 elements of 4 or 6 bits, these are bytes. All lanes get words; addresses count of
    the lanes that the number of matrices needs. Matrices of .m16n16 have 16 rows, and give two words to a lane."""
    target, mem = i.operands
    assert isinstance(mem, Mem)
    of = _matrices(i)
    get, first = narrow_address(mem), _written(target).index

    def step(k: Cohort) -> None:
        address, mask = _rows(k, get(k), of.lanes)
        try:
            words = load_shared(k, address, 16, mask)
        except BadAccess as bad:
            raise fault(k, i, bad, of.lanes) from None
        watch(k, i, "shared", _padded(address, k.count), _lanes(mask, k.count, of.lanes), 16, "read")
        rows = np.stack(words, axis=-1).reshape(k.count, of.number, of.rows, 4)
        if of.padded is not None:
            rows = unpadded(np.ascontiguousarray(rows), of.padded)
        n = first
        for j in range(of.number):
            matrix = of.turn(rows[:, j]) if of.turn else rows[:, j : j + 1]
            for part in matrix.swapaxes(0, 1):
                k.set_r(n, part.reshape(k.count, 32))
                n += 1

    return step


@semantics("STSM")
def store_matrices(i: Instruction, m: Maker) -> Step:
    """stmatrix, the other way."""
    mem, source = i.operands
    assert isinstance(mem, Mem)
    of = _matrices(i)
    get, values = narrow_address(mem), sources(source, 4 * of.number)

    def step(k: Cohort) -> None:
        address, mask = _rows(k, get(k), of.lanes)
        rows = np.empty((k.count, of.number, 8, 4), np.uint32)
        for j, value in enumerate(values):
            matrix = np.ascontiguousarray(k.full(value(k))).reshape(k.count, 8, 4)
            rows[:, j] = of.turn(matrix)[:, 0] if of.turn else matrix
        flat = rows.reshape(k.count, of.lanes, 4)
        words = [flat[..., j] for j in range(4)]
        try:
            store_shared(k, address, 16, words, mask)
        except BadAccess as bad:
            raise fault(k, i, bad, of.lanes) from None
        lanes = _lanes(mask, k.count, of.lanes)
        watch(k, i, "shared", _padded(address, k.count), lanes, 16, "write", [_padded(w, k.count) for w in words])

    return step


def _rows(k: Cohort, address: Array, count: int) -> tuple[Array, Array | None]:
    """The addresses of ``count`` rows, (n, count), and which lanes of these take part."""
    mask = None if k.mask is None else np.ascontiguousarray(k.mask[:, :count])
    return np.ascontiguousarray(k.full(address)[:, :count]), mask


def _padded(values: Array, count: int) -> Array:
    """Values of the lanes that have rows, with zeros for the others: (n, 32)."""
    wide = np.zeros((count, 32), np.uint32)
    wide[:, : values.shape[1]] = values
    return wide


def _lanes(mask: Array | None, warps: int, count: int) -> Array:
    """The ``count`` lanes that have rows, (n, 32)."""
    lanes = np.zeros((warps, 32), bool)
    lanes[:, :count] = True if mask is None else mask
    return lanes


# ---- what has nothing to do here ------------------------------------------------------------------------------------


@semantics("FENCE")
def fence(i: Instruction, m: Maker) -> Step:
    """Between the generic proxy and the async one, in shared memory (.S) or global memory (.G): only races can tell. Of
    tensor memory (.T): waits until what the warp has stored is there (PTX: tcgen05.wait::st)."""
    if "T" in i.mods:
        return wait_stores
    memory = "global" if "G" in i.mods else "shared"

    def step(k: Cohort) -> None:
        for observer in k.wave.observers:
            observer.fence(some_warps(k), memory)

    return step


def wait_stores(k: Cohort) -> None:
    """The stores of warps to tensor memory are over."""
    k.wave.late.close(TENSOR_STORE, some_warps(k), STORED)
    k.wave.late.settle(STORED, some_warps(k))


@semantics("MEMBAR", "CCTL")
def order(i: Instruction, m: Maker) -> Step:
    """Every access was done when its instruction ran, and there are no caches: only races can tell. The scopes are
    CTA (also SM), and others that reach other blocks."""
    if i.base == "CCTL" and "IVALL" not in i.mods:
        return nothing(i, m)
    wide = not {"CTA", "SM"} & set(i.mods)

    def step(k: Cohort) -> None:
        for observer in k.wave.observers:
            if i.base == "CCTL":
                observer.invalidate(some_warps(k))
            else:
                observer.membar(some_warps(k), wide)

    return step


@semantics("ERRBAR", "CCTLL", "CCTLT")
def nothing(i: Instruction, m: Maker) -> Step:
    """Caches, of which there are none, and errors, which are told at once."""
    return lambda k: None

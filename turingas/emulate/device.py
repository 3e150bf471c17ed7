"""The CPU device: its memory, cubins loaded on it, and launches."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from turingas.cubin import elf as e
from turingas.cubin import relocations
from turingas.cubin.cubin import Cubin
from turingas.cubin.elf import Symbol
from turingas.cubin.model import Kernel
from turingas.cubin.read import bank_of
from turingas.emulate.arguments import pack
from turingas.emulate.arrays import Array
from turingas.emulate.counters import Counters
from turingas.emulate.errors import DeviceError
from turingas.emulate.global_races import GlobalRaces, Ledger
from turingas.emulate.machine import Image, Wave
from turingas.emulate.memory import LOCAL_WINDOW, SHARED_WINDOW, Global
from turingas.emulate.observe import Counting
from turingas.emulate.pending import Pending, places
from turingas.emulate.products import Products
from turingas.emulate.races import Races
from turingas.emulate.report import LANES, STACK, Options, Report
from turingas.emulate.semantics.tmem import prepare
from turingas.emulate.strict import Strict
from turingas.errors import AsmError, LaunchError
from turingas.isa.arch import WORD_BYTES, arch, chip
from turingas.launch import cluster_of, find, shape

TOGETHER = 132 * 2048  # threads of a cooperative launch: what the SMs of an H200 hold
WORKSPACE = 64  # bytes behind %envreg1 and %envreg2
LANES_WATCHED = 4096  # with --strict and --races, which keep more for each register, and for each byte
LOCAL = 512 << 10  # bytes of local memory a thread: the CUDA C++ Programming Guide, Technical Specifications
#: part of the names of ptxas's functions that multiply matrices of bits on Blackwell
PRODUCTS_OF_BITS = "__cuda_sm_10x_mma_bit_internal_"
#: what indirect calls of relocatable code for sm_90 add to a pointer: where the table of all functions begins that
#: R_CUDA_UNIFIED relocations count from. Here they are the addresses themselves.
UNIFIED_TABLES = ("__UFT_OFFSET", "__UDT_OFFSET")

Progress = Callable[[int, int, int], None]  # blocks done, blocks in all, lane instructions


class Device:
    """A CPU that runs the code of one GPU architecture.

    ``memory`` is its global memory. With ``written``, memory that the device made itself (``alloc``, variables without
    a value) is watched: reading what was never written is an error.
    """

    def __init__(self, name: str, written: bool = False) -> None:
        try:
            self.arch = arch(name)
        except AsmError as error:
            raise LaunchError(error.message, error.hint) from None
        self.memory = Global(track_writes=written)
        self.ledger: Ledger | None = None  # of the last launch, if its races in global memory were looked for

    def load(self, cubin: Cubin | bytes) -> Module:
        """Load a cubin. LaunchError when it is of another architecture; CubinError when it is none."""
        if isinstance(cubin, Cubin):
            return Module(self, cubin)
        return Module(self, Cubin.from_bytes(cubin), unchanged=True)


class Module:
    """A cubin on a device: its variables in global memory, its constants, its kernels by name. ``unchanged``: it is
    known to be as it was read."""

    def __init__(self, device: Device, cubin: Cubin, unchanged: bool = False) -> None:
        if chip(cubin.arch) != chip(device.arch.name):
            hint = f"open a device for {cubin.arch}"
            raise LaunchError(f"the cubin is for {cubin.arch}, the device is {device.arch.name}", hint)
        if not unchanged and (data := cubin.to_bytes()) is not cubin.source:
            # made or changed here: read as a driver would, but with what no file says
            made = {text.name: text for text in cubin.texts}
            cubin = Cubin.from_bytes(data)
            for text in cubin.texts:
                text.lines, text.params = made[text.name].lines, made[text.name].params
        assert cubin.elf is not None
        self.device, self.cubin, self.elf = device, cubin, cubin.elf
        self.symbols = self.elf.symbols()
        self.addresses: dict[int, int] = {}  # of sections in global memory, by index
        self.globals: dict[str, tuple[int, int]] = {}  # variables: address and size
        self.texts = {text.section: text for text in cubin.texts}
        self.functions = self._place_functions()
        self._place_globals()

    def kernel(self, name: str | None = None) -> Kernel:
        """The kernel called ``name``, or the only one. LaunchError names those there are."""
        return find(self.cubin, name)

    def variable(self, name: str) -> Array:
        """The bytes of a __device__ variable, uint8, in place. LaunchError when there is none."""
        if name not in self.globals:
            names = ", ".join(self.globals)
            hint = f"there are: {names}" if names else "it has none at all"
            raise LaunchError(f"the cubin has no variable {name!r}", hint)
        address, size = self.globals[name]
        for base in self.addresses.values():
            view = self.device.memory.view(base)
            if base <= address < base + len(view):
                return view[address - base : address - base + size]
        raise AssertionError(name)

    def launch(
        self,
        kernel: str | None,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
        progress: Progress | None = None,
        **options: Any,
    ) -> Report:
        """Run a kernel to its end. ``shared`` is dynamic shared memory in bytes; ``options`` are those of ``Options``.

        Raises LaunchError before anything runs, DeviceError for what the kernel does; the arrays then hold what was
        written until that point.
        """
        found = self.kernel(kernel)
        chosen = self._options(found, grid, block, shared, options)
        params, added = pack(found, args, self.device.memory)
        try:
            image = self.image(found, chosen, params, added)
            before, self.device.ledger = self.device.ledger, _ledger(image, chosen)
            if chosen.early and before is not None and self.device.ledger is not None:
                self.device.ledger.before = before
            return _run(image, chosen, progress, self.device.ledger)
        finally:
            if self.device.ledger is not None:
                self.device.ledger.before = None
            for address in added:
                self.device.memory.remove(address)

    def _options(
        self, kernel: Kernel, grid: int | Sequence[int], block: int | Sequence[int], shared: int, more: dict[str, Any]
    ) -> Options:
        facts = self.device.arch
        grid3, block3, threads = shape(grid, block)
        cluster = cluster_of(kernel, grid3, more.pop("cluster", None))
        if more.get("cooperative") and (all_ := threads * grid3[0] * grid3[1] * grid3[2]) > TOGETHER:
            raise LaunchError(
                f"a cooperative launch of {all_} threads: all blocks run at once, and there is room for {TOGETHER}"
            )
        if shared < 0:
            raise LaunchError(f"{shared} bytes of shared memory")
        total = kernel.shared_bytes + shared
        if total > facts.shared_optin + facts.shared_counted:
            raise LaunchError(
                f"{kernel.name} needs {total} bytes of shared memory ({kernel.shared_bytes} static, {shared} dynamic); "
                f"{facts.name} has {facts.shared_optin} a block"
            )
        per_warp = -(-max(kernel.registers, 1) * 32 // 256) * 256
        if per_warp * -(-threads // 32) > facts.registers_per_sm:
            raise LaunchError(
                f"a block of {threads} threads with {kernel.registers} registers each does not fit the "
                f"{facts.registers_per_sm} registers of an SM"
            )
        local = kernel.frame_bytes + more.get("stack", STACK)
        if not 0 <= local <= LOCAL:
            raise LaunchError(
                f"{kernel.name} would have {local} bytes of local memory a thread ({kernel.frame_bytes} of its own, "
                f"the rest stack); the limit is {LOCAL}"
            )
        if more.get("races", False) not in (False, True, "shared", "global"):
            raise LaunchError(f"races={more['races']!r}: True or 'shared', or 'global' for global memory, too")
        lanes = LANES_WATCHED if more.get("strict") or more.get("races") else LANES
        return Options(grid3, block3, total, **{"lanes": lanes, **more, "cluster": cluster})

    # -- loading

    def _place_functions(self) -> dict[int, int]:
        """Where the functions with a section of their own lie, by its index: behind the longest kernel, so that a
        pointer in global memory is right whichever kernel reads it."""
        owners = [(n, self.texts[s.name]) for n, s in enumerate(self.elf.sections) if s.name in self.texts]
        end = max((len(text.code) for _, text in owners if text.entry), default=0)
        starts = {}
        for n, text in owners:
            if not text.entry:
                starts[n] = end
                end += len(text.code)
        return starts

    def _place_globals(self) -> None:
        memory = self.device.memory
        sections = self.elf.sections
        for index, section in enumerate(sections):
            if section.name.startswith(".nv.global"):
                made = memory.add(section.size, section.name)
                if section.type not in e.NO_CONTENTS:
                    memory.view(made)[:] = np.frombuffer(bytes(section.data), np.uint8)
                memory.mark_written(made)  # C++ zeroes what has no value
                self.addresses[index] = made
        for symbol in self.symbols:
            if symbol.section in self.addresses and symbol.type in (e.STT_OBJECT, e.STT_CUDA_OBJECT):
                self.globals[symbol.name] = (self.addresses[symbol.section] + symbol.value, symbol.size)
        for index, address in self.addresses.items():
            data = bytearray(memory.view(address).tobytes())
            self._relocate(index, data, self.functions, {})
            memory.view(address)[:] = np.frombuffer(bytes(data), np.uint8)

    def image(self, kernel: Kernel, options: Options, params: bytes, added: list[int]) -> Image:
        """The kernel made ready for a launch: code placed and relocated, constant banks filled. ``added`` gets the
        addresses of banks in global memory, to be removed after the launch."""
        facts = self.device.arch
        sections = self.elf.sections
        own = next((n for n, s in enumerate(sections) if s.name == kernel.section), 0)
        if not own:
            raise LaunchError(f"the cubin has no section {kernel.section!r}, which should hold the code")
        starts = {own: 0, **self.functions}
        code = bytearray()
        externals: dict[int, str] = {}
        placed = []
        for n, start in starts.items():
            code += b"\xff" * (start - len(code))  # between a kernel and the functions: no instruction
            placed.append((start // WORD_BYTES, self.texts[sections[n].name]))
            code += bytes(sections[n].data)
        for n in starts:
            piece = bytearray(sections[n].data)
            self._relocate(n, piece, starts, externals, len(code))
            code[starts[n] : starts[n] + len(piece)] = piece
        words = [int.from_bytes(code[at : at + WORD_BYTES], "little") for at in range(0, len(code), WORD_BYTES)]
        banks: dict[int, Array] = {}
        for n, section in enumerate(sections):
            number = bank_of(section)
            if number is None or section.info not in (0, own):
                continue
            data = bytearray(section.data) if section.type != e.SHT_NOBITS else bytearray(section.size)
            self._relocate(n, data, starts, externals, len(code))
            banks[number] = np.frombuffer(bytes(data), np.uint8)
        local = -(-(kernel.frame_bytes + options.stack) // 16) * 16
        base = facts.params_at(kernel.param_bytes)
        bank = bytearray(max(base + kernel.param_bytes, len(banks.get(0, ()))))
        bank[facts.block_dim : facts.block_dim + 12] = np.array(options.block, "<u4").tobytes()
        bank[facts.grid_dim : facts.grid_dim + 12] = np.array(options.grid, "<u4").tobytes()
        for at, window in ((facts.shared_window_at, SHARED_WINDOW), (facts.local_window_at, LOCAL_WINDOW)):
            if at is not None:
                bank[at : at + 8] = (window << 32).to_bytes(8, "little")
        dynamic = options.shared - kernel.shared_bytes
        for at, value in ((facts.dynamic_at, dynamic), (facts.sms_at, 1), (facts.kept_at, facts.shared_counted)):
            bank[at : at + 4] = value.to_bytes(4, "little")
        bank[facts.stack_pointer : facts.stack_pointer + 4] = local.to_bytes(4, "little")
        self._groups(bank, options, added)
        bank[base : base + len(params)] = params
        banks[0] = np.frombuffer(bank, np.uint8)
        for number, at, first in ((0, facts.bank_at, base if facts.bank_at_params else 0), (3, facts.constants_at, 0)):
            if number in banks:
                banks[number].flags.writeable = False  # for kernels
                added.append(self.device.memory.add(banks[number], f"constant bank {number}"))
                bank[at : at + 8] = (added[-1] + first).to_bytes(8, "little")
        image = Image(facts, self.device.memory, kernel, placed, words, banks, local, externals)
        image.reserved = {s.name: s.value for s in self.symbols if s.name.startswith("__nv_reservedSMEM_t")}
        for s in self.symbols:
            if PRODUCTS_OF_BITS in s.name and s.section in starts:
                start = starts[s.section] + s.value
                image.any_order.append(range(start, start + s.size))
        return image

    def _groups(self, bank: bytearray, options: Options, added: list[int]) -> None:
        """What bank 0 says of clusters and of the grid as a group."""
        facts = self.device.arch
        if facts.max_cluster:
            cluster = np.array(options.cluster or (1, 1, 1), np.uint32)
            # trunc(block * reciprocal) must be the cluster: rounded up, as the driver does (tests.gpu.ask bank)
            reciprocals = np.where(cluster > 1, np.nextafter(np.float32(1) / cluster, np.float32(2)), 1)
            clusters = np.array(options.grid, np.uint32) // cluster
            for at, words in zip(facts.cluster_at, (cluster, reciprocals.astype(np.float32), clusters)):
                bank[at : at + 12] = words.tobytes()
            explicit = options.cluster is not None
            for at, value in (
                (facts.explicit_cluster_at, explicit),
                (facts.cluster_size_at, options.together),
                (facts.all_shared_at, 0x7FFFFFFF),
            ):
                bank[at : at + 4] = value.to_bytes(4, "little")
        if options.cooperative:
            added.append(self.device.memory.add(np.zeros(WORKSPACE, np.uint8), "workspace of the grid"))
            upper, lower = divmod(added[-1], 1 << 32)
            at = facts.workspace_at
            bank[at : at + 8] = upper.to_bytes(4, "little") + lower.to_bytes(4, "little")

    def _relocate(
        self, index: int, data: bytearray, starts: dict[int, int], externals: dict[int, str], end: int = 0
    ) -> None:
        """Write the addresses that the relocations of section ``index`` ask for."""
        for table in self.elf.sections:
            if table.type not in (e.SHT_REL, e.SHT_RELA) or table.info != index:
                continue
            for row in e.relocations(table):
                name = relocations.name(row.type)
                if row.symbol >= len(self.symbols):
                    raise LaunchError(f"{table.name}: a relocation names symbol {row.symbol}; there is none")
                symbol = self.symbols[row.symbol]
                bank = bank_of(self.elf.sections[symbol.section]) if symbol.section < len(self.elf.sections) else None
                if name in CONSTANT_FIELDS and bank is not None:
                    patch_constant(data, row.offset, name, bank, symbol.value, row.addend)
                    continue
                value = self._value(symbol, starts, externals, end)
                patch(data, row.offset, name.removeprefix("R_CUDA_"), value, row.addend)

    def _value(self, symbol: Symbol, starts: dict[int, int], externals: dict[int, str], end: int) -> int:
        section = symbol.section
        if section in self.addresses:
            return self.addresses[section] + symbol.value
        if section in starts:
            return starts[section] + symbol.value
        if section == 0 and symbol.name in UNIFIED_TABLES:
            return 0
        if section == 0 and symbol.name:  # what the driver would provide: printf, malloc, assert ...
            place = end + WORD_BYTES * (1 + len(externals))
            externals[place // WORD_BYTES] = symbol.name
            return place
        return symbol.value


#: what a kind of relocation writes: position and width of the field in bits, and how far the value is shifted down
PATCHES = {
    "32": (0, 32, 0), "64": (0, 64, 0), "G32": (0, 32, 0), "G64": (0, 64, 0), "32_LO": (0, 32, 0), "32_HI": (0, 32, 32),
    "FUNC_DESC_32": (0, 32, 0), "FUNC_DESC_64": (0, 64, 0), "UNIFIED": (0, 64, 0), "UNIFIED_32": (0, 32, 0),
    **{f"{kind}32_32": (32, 32, 0) for kind in ("ABS", "FUNC_DESC")},
    **{f"{kind}32_LO_32": (32, 32, 0) for kind in ("ABS", "FUNC_DESC", "UNIFIED")},
    **{f"{kind}32_HI_32": (32, 32, 32) for kind in ("ABS", "FUNC_DESC", "UNIFIED")},
    **{f"{kind}8_{8 * n}": (0, 8, 8 * n) for kind in ("", "G", "FUNC_DESC_", "UNIFIED_") for n in range(8)},
    "ABS47_34": (34, 47, 2), "ABS16_32": (32, 16, 0), "ABS24_32": (32, 24, 0),
}  # fmt: skip
#: those in two pieces (sm_90): (low, width), (high, width), shift
SPLIT = {"ABS56_16_34": ((16, 8), (34, 48), 2), "ABS55_16_34": ((16, 8), (34, 47), 2)}
NOTHING = ("NONE", "UNUSED_CLEAR32", "UNUSED_CLEAR64", "YIELD_OPCODE9_0", "YIELD_CLEAR_PRED4_87")


#: operands c[bank][offset] of relocatable code: where the offset stands, in bits, its width and its unit in bytes; the
#: 5 bits of the bank follow it
CONSTANT_FIELDS = {"R_CUDA_CONST_FIELD19_40": (40, 14, 4), "R_CUDA_CONST_FIELD21_38": (38, 16, 1)}


def patch_constant(data: bytearray, offset: int, name: str, bank: int, value: int, addend: int | None) -> None:
    """Apply a relocation of an operand c[bank][offset]. LaunchError for a place outside of data."""
    low, width, unit = CONSTANT_FIELDS[name]
    if not 0 <= offset <= len(data) - WORD_BYTES:
        raise LaunchError(f"a relocation at {offset:#x} is out of range of its section")
    word = int.from_bytes(data[offset : offset + WORD_BYTES], "little")
    mask = (1 << width) - 1
    if addend is None:
        addend = (word >> low & mask) * unit
    word &= ~((mask | 31 << width) << low)
    word |= ((value + addend) // unit & mask | bank << width) << low
    data[offset : offset + WORD_BYTES] = word.to_bytes(WORD_BYTES, "little")


def patch(data: bytearray, offset: int, kind: str, value: int, addend: int | None) -> None:
    """Apply one relocation. Without an addend (REL) the field itself holds it. LaunchError for an unknown kind, and
    for a place outside of data."""
    if kind in NOTHING:
        return
    if kind in SPLIT:
        low, high, shift = SPLIT[kind]
        fields = [(*low, shift), (*high, shift + low[1])]
    elif kind in PATCHES:
        fields = [PATCHES[kind]]
    else:
        raise LaunchError(f"the CPU device does not know the relocation R_CUDA_{kind}")
    if not 0 <= offset <= len(data) - -(-max(p + w for p, w, _ in fields) // 8):
        raise LaunchError(f"a relocation at 0x{offset:x} is out of range: its section has {len(data)} bytes")
    size = 16 if max(p + w for p, w, _ in fields) > 64 or kind in SPLIT or fields[0][0] else 8
    size = min(size, len(data) - offset)
    word = int.from_bytes(data[offset : offset + size], "little")
    if addend is None:
        addend = 0
        for position, width, shift in fields:
            addend |= (word >> position & (1 << width) - 1) << shift
    for position, width, shift in fields:
        mask = (1 << width) - 1
        word = word & ~(mask << position) | (value + addend >> shift & mask) << position
    data[offset : offset + size] = word.to_bytes(size, "little")


# ---- running -----------------------------------------------------------------------------------------------------


def _ledger(image: Image, options: Options) -> Ledger | None:
    """What the detector of races in global memory keeps of a launch."""
    if options.races != "global":
        return None
    warps = int(np.prod(options.grid)) * -(-int(np.prod(options.block)) // 32)
    return Ledger(image, options.block, warps, functools.partial(_place, options))


def _run(image: Image, options: Options, progress: Progress | None, ledger: Ledger | None) -> Report:
    """All blocks of a launch, in waves; waves in several threads where the order of blocks cannot matter."""
    start = time.perf_counter()
    report = Report(image.kernel)
    grid = options.grid
    blocks = grid[0] * grid[1] * grid[2]
    threads = options.block[0] * options.block[1] * options.block[2]
    each = max(1, options.lanes // (-(-threads // 32) * 32))
    workers = _workers(image, options, blocks, each)
    each = max(1, min(each, -(-blocks // max(workers, 2 if _steals(image) else 1))))  # so that some can be cancelled
    each = blocks if options.cooperative else -(-each // options.together) * options.together
    pending = Pending(options, blocks, each)
    lock = threading.Lock()
    failures: list[tuple[int, BaseException]] = []
    done: list[int] = []
    if options.counters:
        report.counters = Counters(len(image.words), options.traffic)

    def work() -> None:
        while not failures:
            if (begun := pending.begin()) is None:
                return
            first, count = begun
            wave = _wave(image, options, pending, first, count, ledger)
            try:
                wave.run(lambda: bool(failures))
            except BaseException as error:
                with lock:
                    failures.append((first, error))
                    _collect(report, wave)
                return
            with lock:
                _collect(report, wave)
                done.append(count)
                if progress is not None:
                    progress(sum(done) + pending.cancelled, blocks, report.lane_instructions)

    if workers == 1:
        work()
    else:
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(work) for _ in range(workers)]
            try:
                for future in futures:
                    future.result()
            except BaseException as error:  # Ctrl-C: the workers look for failures now and then
                failures.append((-1, error))
                raise
    report.seconds = time.perf_counter() - start
    if failures:
        first = min(failures, key=lambda f: f[0])[1]
        if isinstance(first, DeviceError):
            first.report = report
        raise first
    return report


def _place(options: Options, number: int) -> tuple[int, int, int]:
    """Where one block lies in the grid."""
    x, y, z = places(options, np.array([number]))[:, 0].tolist()
    return x, y, z


def _collect(report: Report, wave: Wave) -> None:
    """Add what one wave came to."""
    report.instructions += wave.instructions
    report.lane_instructions += wave.lane_instructions
    report.printed += "".join(wave.printed)
    for observer in wave.observers:
        observer.tell(report)


def _workers(image: Image, options: Options, blocks: int, each: int) -> int:
    """How many threads run waves of ``each`` blocks: one where the order of blocks shows in the result, or where the
    run is watched; and no more than have a whole wave to run, for threads with small ones get in each other's way."""
    if image.has(lambda op: "atomic" in op.traits and op.space != "shared"):
        return 1
    if options.races or options.strict or options.cooperative or "vprintf" in image.externals.values():
        return 1
    if _steals(image):
        return 1
    wanted = options.workers or min(_cores(), blocks // each)
    return max(1, min(wanted, blocks))


def _steals(image: Image) -> bool:
    """Whether blocks take over the work of others that have not begun."""
    return "UGETNEXTWORKID" in image.bases


def _cores() -> int:
    """Cores that this process may use; macOS and Windows do not tell, so all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _wave(
    image: Image, options: Options, pending: Pending, first: int, count: int, ledger: Ledger | None = None
) -> Wave:
    wave = Wave(image, options, places(options, np.arange(first, first + count)))
    wave.pending = pending
    if image.reserved:
        prepare(wave)
    if options.strict:
        wave.observers.append(Strict(wave, options.stale))
    if options.races:
        wave.observers.append(Races(wave) if ledger is None else GlobalRaces(wave, ledger, first))
    if (options.strict or options.races) and image.has(lambda op: op.pipe == "wgmma"):
        wave.observers.append(Products(wave))
    if options.counters:
        wave.observers.append(Counting(len(image.words), options.traffic))
    return wave


def launch(
    cubin: Cubin | bytes,
    kernel: str | None,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    shared: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """Run a kernel of a cubin on a CPU device of its architecture.

    ``args``: numpy arrays, used in place, and scalars. ``options``: ``counters`` (True: count by instruction),
    ``races`` (find races in shared memory; "global": in global memory, too), ``strict`` (heed stalls and scoreboards),
    ``stale`` (and use old values where the GPU would), ``written`` (an error for reading memory that was never
    written), ``budget`` (instructions of a warp), ``workers`` (threads; 0: one a core), ``cluster`` (blocks of a
    cluster), ``cooperative`` (all blocks at once, so that they may wait for each other), ``early`` (only races can
    tell). Raises LaunchError, DeviceError, CubinError.
    """
    loaded = cubin if isinstance(cubin, Cubin) else Cubin.from_bytes(cubin)
    device = Device(loaded.arch, written=bool(options.get("written")))
    module = Module(device, loaded, unchanged=loaded is not cubin)
    return module.launch(kernel, grid, block, args, shared, progress, **options)

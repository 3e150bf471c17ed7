"""Breaks the synchronisation of correct asynchronous kernels, one thing at a time, runs them, and asks ``--races``:
``python -m tests.emulate.late_faults [--only WORD] [--without WORD] [--verbose]``. Needs NVRTC and Triton; with
``--cutlass FOLDER`` nvcc and CUTLASS, whose kernels it breaks instead (``cutlass.py``).

What is broken, where the run comes to it: a wait, an arrival, a fence or the end of a group is taken out; a wait is
left a group too early; fewer bytes are announced to an mbarrier, or one is told of that lies beside it, or an arrival
drops out of later phases (arrive_drop); a stage is read before its turn. A fault is reported when there is a race, a
hazard of a product's registers, or an error of the device (a deadlock, a budget that ends, an mbarrier told what does
not fit), or one of these in another order of the warps (eight are drawn, in which some are slow) where the correct
kernel has none.

Some faults change nothing, and that can be shown without the detector of races:

* *told twice*: each warp learns of the end of each operation and phase with the same number of instructions behind it
  that could make a difference: that touch memory, other warps (of operations: what matters is what these learn by it),
  or registers of the product that has ended. So it is with the end of an empty group, and with one of two waits that
  follow each other, or have a barrier between them and are everybody's. Operations do not count whose bytes nobody
  touches once they have begun, if the warp that begins them learns of their end at all; nor phases of which a warp
  learns when it has nothing left to do but, outside of clusters, to end (CUTLASS' producers wait for consumers then).
* *nothing to fence*: of what threads have written when the fence comes, and their warps have not fenced since, copies,
  products and SYNCS touch nothing later.
* *nobody waits*: no warp looks for the end of the phase that the arrival belongs to, nor of a later one; of one that
  drops, for the next one.
* *met for nothing*: behind this wait for the cluster its warps touch no shared memory and tell nobody anything, and
  since the barrier before no block has touched another's memory, but by what that one's mbarriers tell of.
* *fenced twice*, *arrived twice*: each warp runs a fence with the same number of instructions behind it that could make
  a difference; a WARPGROUP.ARRIVE, of instructions that touch registers of products.

* *not needed*: without what this wait at an mbarrier tells, all that the kernel does is in order still, in any order of
  its warps (``unneeded.py``). A test of another mbarrier must not keep its warp for ever, then; where it fails, the
  code comes to a test of the right one.

Products of warp groups themselves make no difference: they follow each other in order.
"""

from __future__ import annotations

import argparse
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import loader
from kernels_sass.conv.method import FOLDER
from kernels_sass.conv.methods.hopper import HOPPER
from tests.emulate import asynchronous, cutlass, orders, test_clusters, test_pipeline, tiles, wgmma
from tests.emulate.test_bulk import RING
from tests.emulate.test_late import BULK
from tests.emulate.unneeded import Without
from tests.kernels.cases import CASES
from tests.kernels_sass import harness
from tests.tools import nvrtc
from turingas import Cubin, api, assemble
from turingas.emulate import DeviceError, device
from turingas.emulate.cohort import Cohort, State
from turingas.emulate.late import Flight, Touch, Which
from turingas.emulate.order import Order
from turingas.isa.instruction import GUARD, Instruction, Label, Mem, instruction
from turingas.isa.isa import instruction_set

ROOT = Path(__file__).parents[2]
ARCHS = ("sm_80", "sm_90")
ORDERS = 8  # of the warps, in which a fault that nothing is said of is looked for once more
Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Run:
    """A kernel and what launches it: ``go`` takes a cubin and options of the CPU device, and gives the arrays that were
    written. ``stage``: bytes of shared memory to the next stage, if LDS reads nothing but stages."""

    name: str
    cubin: bytes
    kernel: str
    go: Callable[..., Arrays]
    stage: int = 0


@dataclass(frozen=True)
class Fault:
    """Instruction ``number``, an ``of``, becomes ``text``."""

    kind: str
    number: int
    of: str
    text: str


def plain(
    name: str, cubin: bytes, kernel: str, grid: int, block: int, args: Callable[[], Sequence[Any]], stage: int = 0,
    **given: Any,
) -> Run:  # fmt: skip
    """A kernel of one launch; ``args`` makes new ones each time."""

    def go(changed: bytes, **options: Any) -> Arrays:
        made = args()
        loader.load(changed, "cpu").kernel(kernel).launch(grid, block, *made, **given, **options)
        return [a for a in made if isinstance(a, np.ndarray)]

    return Run(name, cubin, kernel, go, stage)


def words(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int32)


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.int32)


def runs() -> Iterator[Run]:
    """All kernels of the tests that copy, multiply or meet asynchronously."""
    for case in CASES:
        if case.source == "async.cu":
            for arch in ARCHS:
                if arch in case.archs:
                    make = lambda case=case: case.build()[0]  # type: ignore[misc] # noqa: E731
                    yield plain(f"{case.name} {arch}", case.cubin(arch), case.kernel, case.grid[0], case.block[0], make)
    source = assemble((ROOT / "examples" / "cp_async.sass").read_text()).to_bytes()
    args = lambda: [zeros(128), words(640), np.int32(5)]  # noqa: E731
    yield plain("examples/cp_async.sass", source, "cp_async", 1, 128, args, 512)
    source = assemble((ROOT / "examples" / "bulk.sass").read_text()).to_bytes()
    yield plain("examples/bulk.sass", source, "bulk", 2, 256, lambda: [zeros(512), words(512)])
    given = ["-DWAITS=1", '-DEXPECTED="1024"', "-DDONE=1"]
    source = nvrtc.compile_source(BULK, "sm_90", given)
    yield plain("bulk copies in and out", source, "k", 1, 256, lambda: [words(256), zeros(256)])
    # without the fence that the ring leaves out, it is not correct
    ring = RING.replace("buffer[256 + t] = sum;", 'buffer[256 + t] = sum; asm volatile("fence.proxy.async;");')
    assert ring.count("fence.proxy.async") == 1
    source = nvrtc.compile_source(ring, "sm_90")
    args = lambda: [words(2 * 5 * 128), zeros(256), np.int32(5)]  # noqa: E731
    yield plain("a ring of tiles", source, "ring", 2, 128, args, 512, shared=1536)
    yield from tensor_maps()
    yield from clusters()
    yield from products()
    yield from whole()
    yield from of_triton()
    yield winograd()


def tensor_maps() -> Iterator[Run]:
    a = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
    at = np.array([16, 4, 0, 0, 0], np.int32).tobytes()

    def load() -> list[Any]:
        return [loader.tensor_map(a, (8, 32)), np.zeros((8, 32), np.float32), at, 0, 0, 0, 1024]

    yield plain("a tile from a tensor", tiles.cubin(), "load2", 1, 64, load, shared=2048)
    for kernel in ("store2", "add2"):
        into = lambda: [loader.tensor_map(a.copy(), (8, 32)), np.ones((8, 32), np.float32), at, 1024]  # noqa: E731
        yield plain(f"a tile to a tensor, {kernel}", tiles.cubin(), kernel, 1, 64, into, shared=2048)
    many = lambda: [loader.tensor_map(a, (8, 32)), np.zeros((4, 8, 32), np.float32), 16, 4, 1024, 0b1111]  # noqa: E731
    yield plain("multicast of a tile", tiles.cubin(), "multicast", 4, 32, many, shared=2048, cluster=4)


def clusters() -> Iterator[Run]:
    cubin = nvrtc.compile_source(test_clusters.SOURCE, "sm_90", (), name="clusters.cu")
    x = np.arange(64, dtype=np.uint32)
    for kernel, block, args in (
        ("ring", 32, lambda: [np.zeros((2, 4, 32), np.uint32), x]),
        ("asynchronous", 64, lambda: [np.zeros((2, 128), np.uint32)]),
        ("bulk", 64, lambda: [np.zeros((2, 3, 64), np.uint32), x, 3]),
    ):
        yield plain(f"cluster: {kernel}", cubin, kernel, 2, block, args, cluster=2)
    sums = lambda: [np.zeros(64, np.uint32), np.arange(256, dtype=np.uint32)]  # noqa: E731
    yield plain("cluster: gather", cubin, "gather", 4, 64, sums, cluster=4)
    for kernel in ("reduce_add_f32", "reduce_min_s64"):
        yield plain(kernel, cubin, kernel, 1, 64, lambda: [np.zeros(1024, np.uint8), np.zeros(1024, np.uint8)])


def products() -> Iterator[Run]:
    p = wgmma.Product(64, ("F16", "F16", "F32"), (128, 128))
    x = wgmma.operands(np.random.default_rng(9), p, 2)
    args = lambda: [np.zeros_like(x.accumulators), x.image, x.in_registers, x.accumulators, x.uniform]  # noqa: E731
    yield plain("a product of a warp group", wgmma.cubin(p).to_bytes(), "product", 2, wgmma.THREADS, args)
    random = np.random.default_rng(0)
    a, b = (random.integers(-8, 9, (rows, 16 * test_pipeline.STEPS)).astype(np.float16) for rows in (128, 64))
    tiled, steps = [test_pipeline.tiles(a), test_pipeline.tiles(b)], np.int32(test_pipeline.STEPS)
    args = lambda: [*tiled, np.zeros((2, 32, 128), np.float32), steps]  # noqa: E731
    yield plain("a pipeline of two warp groups", test_pipeline.compiled(), "k", 2, 256, args)


def whole() -> Iterator[Run]:
    """Those that have several asynchronous ways at once."""
    for name, make in asynchronous.KERNELS.items():

        def go(changed: bytes, name: str = name, make: Any = make, **options: Any) -> Arrays:
            made = make(lambda array: array)
            kernel = loader.load(changed, "cpu").kernel(name)
            kernel.launch(made.grid, made.block, *made.args, shared=made.shared, **options)
            return [array for array, _ in made.arrays]

        yield Run(f"asynchronous: {name}", asynchronous.cubin(), name, go)


def of_triton() -> Iterator[Run]:
    from tests.emulate import test_triton

    random = np.random.default_rng(0)
    a, b = random.normal(size=(128, 256)).astype(np.float16), random.normal(size=(256, 128)).astype(np.float16)
    q = random.normal(size=(3, 128, 64)).astype(np.float16)
    product = lambda: [a, b, np.zeros((128, 128), np.float32), 256, 128]  # noqa: E731
    attended = lambda: [*q, np.zeros((128, 64), np.float16), np.float32(0.125), 128, 128 * 64]  # noqa: E731
    for arch in (80, 90):
        yield _triton(f"Triton's matmul sm_{arch}", test_triton.matmul_kernel(arch), product)
        yield _triton(f"Triton's attention sm_{arch}", test_triton.attention_kernel(arch), attended)


def _triton(name: str, kernel: Any, args: Callable[[], Sequence[Any]]) -> Run:
    cubin, meta = kernel.asm["cubin"], kernel.metadata
    (one,) = Cubin.from_bytes(cubin).kernels
    return plain(name, cubin, one.name, 1, 32 * meta.num_warps, args, shared=meta.shared)


def winograd() -> Run:
    source = FOLDER / "winograd_sm90.sass"
    cubin = assemble(source.read_text(), arch="sm_90", filename=str(source))
    main = HOPPER.kernels["winograd"]
    # three steps a job; and one, for the wait of those who have fetched all: else what they test then has one meaning
    shapes = [harness.Shape(1, channels, 4, 4, 192) for channels in (24, 8)]

    def go(changed: bytes, **options: Any) -> Arrays:
        made, given = Cubin.from_bytes(changed), {"block": main.threads, "shared": main.shared, "sms": 1, **options}
        return [np.array([harness.convolve(made, shape, **given)[0]]) for shape in shapes]

    return Run("Winograd for Hopper", cubin.to_bytes(), "winograd", go)


def of_cutlass(folder: Path) -> Iterator[Run]:
    for name, launch in cutlass.launches(folder):
        yield Run(name, launch.cubin, launch.kernel, launch.go)


# ---- faults ----------------------------------------------------------------------------------------------------------


def faults(code: list[Instruction | None], stage: int) -> Iterator[Fault]:
    """What can be broken."""
    beside = _beside(code)
    for n, i in enumerate(code):
        if i is None:
            continue
        text = re.sub(r"^@\S+ ", "", i.text())
        if i.base in ("LDGDEPBAR", "UTMACMDFLUSH"):
            yield Fault("commit", n, i.base, "NOP")
        elif "gsb0" in text and i.op.pipe == "wgmma":
            yield Fault("commit", n, i.base, text.replace(", gsb0", ""))
        elif i.base == "FENCE":
            yield Fault("fence", n, i.base, "NOP")
        elif i.base == "DEPBAR" or text.startswith("WARPGROUP.DEPBAR"):
            yield Fault("wait", n, i.base, "NOP")
            if found := re.match(r"(?:WARPGROUP\.)?DEPBAR\.LE (?:SB\d|gsb0), (0x\w+)", text):
                more = f"{int(found[1], 16) + 1:#x}"
                yield Fault("group count", n, i.base, text[: found.start(1)] + more + text[found.end(1) :])
        elif i.base == "SYNCS" and i.mods[0] == "PHASECHK":
            yield Fault("wait", n, i.base, f"PLOP3.LUT {text.split()[1]} PT, PT, PT, PT, 0x80, 0x0")
            yield from (Fault("stage", n, i.base, other) for other in beside(i, text))
        elif i.base == "SYNCS" and i.mods[0] == "ARRIVE":
            yield Fault("arrive", n, i.base, "NOP")
            if i.mods[-1] == "TRANS64":
                yield Fault("transaction count", n, i.base, text.replace("TRANS64", "TRANS64.A1T0"))
            if not {"OPTOUT", "A0T1", "A0TR", "A0TX"} & set(i.mods):
                yield Fault("drop", n, i.base, re.sub(r"TRANS64(\.TMASK|\.RED)?", r"\g<0>.OPTOUT", text))
            yield from (Fault("stage", n, i.base, other) for other in beside(i, text))
        elif i.base == "ATOMS" and "ARRIVE" in i.mods or i.base in ("ARRIVES", "UCGABAR_ARV"):
            yield Fault("arrive", n, i.base, "NOP")
        elif i.base in ("WARPGROUP", "BAR") and i.mods[0] in ("ARRIVE", "ARV"):
            yield Fault("arrive", n, i.base, "NOP")
        elif i.base == "UCGABAR_WAIT":
            yield Fault("wait", n, i.base, "NOP")
        elif stage and i.base == "LDS" and isinstance(mem := i.operands[-1], Mem):
            yield Fault("stage", n, i.base, text.replace(_tail(mem.offset), _tail(mem.offset + stage)))


def _tail(offset: int) -> str:
    """The end of an address, as texts have it."""
    return f"+{offset:#x}]" if offset else "]"


def _beside(code: list[Instruction | None]) -> Callable[[Instruction, str], list[str]]:
    """What gives the text of an instruction with the mbarrier that lies beside its own: another offset of the same
    registers that the kernel uses."""
    used: dict[str, set[int]] = defaultdict(set)

    def place(i: Instruction) -> tuple[str, int]:
        mem = next(o for o in i.operands if isinstance(o, Mem))
        return f"{mem.base} {mem.ur}", mem.offset

    for i in code:
        if i is not None and i.base == "SYNCS" and i.mods[0] in ("EXCH", "PHASECHK", "ARRIVE"):
            registers, offset = place(i)
            used[registers].add(offset)

    def other(i: Instruction, text: str) -> list[str]:
        registers, offset = place(i)
        there = sorted(used[registers] - {offset}, key=lambda at: (abs(at - offset), at))[:1]
        return [text.replace(_tail(offset), _tail(at)) for at in there]

    return other


def broken(run: Run, fault: Fault) -> bytes:
    """The cubin with an instruction replaced, under its guard and control code."""
    cubin = Cubin.from_bytes(run.cubin)
    kernel = next(k for k in cubin.kernels if k.name == run.kernel)
    (word,) = api.encode(fault.text, arch=cubin.arch, default_control="--:-:-:-:1", address=16 * fault.number)
    kept = (1 << 128) - (1 << 105) | GUARD
    changed = list(kernel.words)
    changed[fault.number] = word & ~kept | changed[fault.number] & kept
    kernel.words = changed
    return cubin.to_bytes()


# ---- what a run shows ------------------------------------------------------------------------------------------------

WAITS = ("LDGDEPBAR", "UTMACMDFLUSH", "DEPBAR", "MEMBAR", "CCTL", "NOP")


def _registers(i: Instruction | None) -> set[int]:
    """General registers that an instruction reads or writes."""
    if i is None:
        return set()
    return {r for a in (*i.reads, *i.writes) if a.file == "R" for r in range(a.first, a.first + a.count)} - {255}


class Told(Order):
    """When each warp learns of the end of what, and when it fences. ``needed``: fences behind which the async proxy
    touches what threads had written. What a warp learns from others, by barriers, is in the vectors of ``order``."""

    each = True

    def __init__(self, wave: State) -> None:
        super().__init__(wave)
        code = wave.image.instructions
        self.products = [n for n, i in enumerate(code) if i is not None and i.op.pipe == "wgmma"]
        used = [_registers(code[n]) for n in self.products]
        #: of each instruction, the products whose registers it touches; how often each warp has done so
        self.beside = [np.array([p for p, mine in enumerate(used) if mine & _registers(i)], np.intp) for i in code]
        self.touched = np.zeros((len(used), wave.warps), np.int64)
        self.steps = np.zeros(wave.warps, np.int64)
        self.acts = np.zeros(wave.warps, np.int64)  # of each warp, steps and products
        self.until: dict[tuple[tuple[int, ...], int], int] = {}  # how many a warp had done when it learnt of a phase
        self.touches = np.zeros((2, wave.warps), np.int64)  # of those steps, the ones that touch memory, and the end;
        # and of these, those that are no loads
        self.reading: list[bool] = []  # of each number of ``operations``: whether it only reads, and no load matters
        self.whose: list[tuple[tuple[int, ...], int]] = []  # of each number of ``operations``: its name and warp
        self.learnt = np.zeros((wave.warps, 0), bool)  # whether each warp knows of its end
        self.first: dict[tuple[int, ...], set[tuple[int, int]]] = defaultdict(set)  # behind how many touches it did
        self.flights: dict[int, Flight] = {}  # by their ids
        self.names: dict[int, tuple[int, ...]] = {}  # of each flight: its first warp, and which of that one's it is
        self.of: dict[tuple[int, ...], int] = {}  # which of the products
        self.begun: Counter[int] = Counter()
        self.groups: dict[tuple[int, int, int], list[tuple[int, ...]]] = {}
        self.known: Counter[tuple[int, int]] = Counter()
        self.phases: Counter[int] = Counter()
        self.arrivals: dict[int, set[tuple[int, int]]] = defaultdict(set)  # of each instruction: mbarriers and phases
        self.looked: Counter[int] = Counter()  # of each mbarrier, the last phase that somebody knows the end of
        self.told: dict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)  # of an operation or phase
        self.last = np.full(wave.shared.blocks * wave.shared.stride // 4, -1)  # the last operation that writes a word
        self.order: list[tuple[int, ...]] = []
        self.readers: dict[tuple[int, ...], np.ndarray] = {}  # operations, and the words that they read
        self.again: set[tuple[int, ...]] = set()  # operations whose bytes are touched once they have begun
        self.generic: set[tuple[int, ...]] = set()  # LDGSTS: a block that ends waits for them by itself
        self.ordinary = np.zeros(len(self.last), bool)  # words that threads have written
        self.fenced: set[tuple[int, int]] = set()
        self.arrived: set[tuple[int, int]] = set()
        self.dirty = np.full(len(self.last), -1)  # the warp that wrote a word, and has not fenced since
        self.behind: dict[int, np.ndarray] = {}  # such words, of each fence
        self.needed: set[int] = set()
        self.ran: set[int] = set()
        self.waits: dict[int, int] = {}  # of each warp, its last wait for its cluster
        self.met: set[int] = set()  # waits with something to wait for
        self.abroad = self.guarded = False  # others' memory was touched, in this phase and in the last one

    def operands(self, k: Cohort, i: Instruction, n: int) -> None:
        warps = k.warps if k.mask is None else k.warps[k.mask.any(axis=1)]
        if not len(warps):
            return
        self.ran.add(n)
        if i.base == "UCGABAR_WAIT":
            self.waits.update(dict.fromkeys(warps.tolist(), n))
        elif self._counts(i) and i.op.space != "global" and i.base != "EXIT":
            self.met.update(self.waits[warp] for warp in warps.tolist() if warp in self.waits)
        if i.base == "FENCE":
            self.fenced.update(zip(warps.tolist(), self.steps[warps].tolist()))
            self.behind[n] = self.behind.get(n, False) | (self.dirty >= 0)
            self.dirty[np.isin(self.dirty, warps)] = -1
        elif i.base == "WARPGROUP" and i.mods[0] == "ARRIVE":
            self.arrived.update(zip(warps.tolist(), self.touched[:, warps].sum(axis=0).tolist()))
        elif self._counts(i):
            self.steps[warps] += 1
            self.acts[warps] += 1
            if i.base not in ("BAR", "UCGABAR_ARV", "UCGABAR_WAIT"):
                load = "load" in i.op.traits
                self._learns(warps, load)
                self.touches[: 1 if load else 2, warps] += 1
        if i.op.pipe == "wgmma":
            self.acts[warps] += 1
        elif len(self.beside[n]):
            self.touched[self.beside[n][:, None], warps] += 1

    def _learns(self, warps: np.ndarray, load: bool) -> None:
        """``warps`` touch memory: of the end of which operations they know by now."""
        operations = self.operations
        count = operations.count
        if count > self.learnt.shape[1]:
            more = np.zeros((len(self.learnt), 2 * count), bool)
            more[:, : self.learnt.shape[1]] = self.learnt
            self.learnt = more
        mine = warps[:, None]
        know = self.clocks[0][mine, operations.column[:count]] >= operations.value[:count]
        know &= (self.team[mine] == self.team[operations.warp[:count]]) & ~self.learnt[warps, :count]
        reading = np.array(self.reading, bool)
        know &= ~(load & reading)
        for row, op in np.argwhere(know).tolist():
            name, _ = self.whose[op]
            self.first[name].add((int(warps[row]), int(self.touches[int(reading[op]), warps[row]])))
        self.learnt[warps, :count] |= know

    def _counts(self, i: Instruction) -> bool:
        if i.base in WAITS or i.base == "SYNCS" and i.mods[0] in ("PHASECHK", "EXCH"):
            return False
        if i.base == "WARPGROUP" or i.op.pipe == "wgmma":
            return False
        ends = i.base == "EXIT" and self.wave.shared.cluster > 1
        return ends or i.op.pipe in ("lsu", "copy") or i.base in ("BAR", "UCGABAR_ARV", "UCGABAR_WAIT")

    def _fence_needed(self, pieces: np.ndarray) -> None:
        self.needed.update(n for n, words in self.behind.items() if words[pieces].any())

    def _touch(self, pieces: np.ndarray, writes: bool) -> None:
        self.again.update(self.order[n] for n in np.unique(self.last[pieces]).tolist() if n >= 0)
        if writes:
            self.again.update(name for name, words in self.readers.items() if words[pieces].any())

    def access(
        self, k: Cohort, i: Instruction, space: str, addresses: np.ndarray, lanes: np.ndarray | None, nbytes: int,
        what: str, words: Any = None, owners: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        if space != "shared" or what == "copy":
            return
        own = np.broadcast_to(k.blocks[:, None], addresses.shape)
        owners = own if owners is None else owners
        self.abroad |= bool(((owners != own) & (True if lanes is None else lanes)).any())
        begin = owners.astype(np.int64) * self.wave.shared.stride + addresses
        pieces = (begin if lanes is None else begin[lanes]).reshape(-1, 1) // 4 + np.arange(max(1, nbytes // 4))
        self._touch(pieces, what != "read")
        if i.base != "SYNCS":
            self.ordinary[pieces] |= what != "read"
            if what != "read":
                rows = np.arange(addresses.size).reshape(addresses.shape) // 32
                rows = (rows if lanes is None else rows[lanes]).reshape(-1, 1)
                self.dirty[pieces] = k.warps[rows]
        else:
            self._fence_needed(pieces)
            if self.ordinary[pieces].any():  # an mbarrier in their place
                self.steps[k.warps] += 1

    def began(self, flight: Flight, i: Instruction, touches: Sequence[Touch], proxy: bool) -> None:
        first = int(flight.warps[0])
        name = (first, self.begun[first])
        self.flights[id(flight)], self.names[id(flight)] = flight, name
        if i.op.pipe == "wgmma":
            self.of[name] = self.products.index(i.address // 16)
        self.begun[first] += 1
        self.order.append(name)
        flight.numbers = self.operations.add(flight.warps, i.address // 16, proxy)  # the same as the detector's
        self.whose += [(name, int(warp)) for warp in flight.warps]
        self.reading += [all(touch.what == "read" for touch in touches)] * len(flight.warps)
        if not proxy:
            self.generic.add(name)
        told = any(touch.what == "mbarrier" for touch in touches)
        for touch in touches:
            if touch.space != "shared":
                continue
            at = touch.at if touch.mask is None else touch.at[touch.mask]
            pieces = at.reshape(-1, 1).astype(np.int64) * touch.nbytes // 4 + np.arange(max(1, touch.nbytes // 4))
            self._touch(pieces, touch.what in ("write", "atomic"))
            there = pieces * 4 // self.wave.shared.stride
            self.abroad |= not told and bool((there != self.wave.block_of[first]).any())
            if touch.what in ("write", "atomic"):
                self.last[pieces] = len(self.order) - 1
            elif touch.what == "read":
                self.readers.setdefault(name, np.zeros(len(self.last), bool))[pieces] = True
            if proxy:
                self._fence_needed(pieces)

    def closed(
        self, flights: Sequence[tuple[Flight, Which]], warps: np.ndarray, board: int, numbers: np.ndarray
    ) -> None:
        super().closed(flights, warps, board, numbers)
        for warp, number in zip(warps.tolist(), numbers.tolist()):
            mine = [self.names[id(f)] for f, _ in flights if id(f) in self.names and warp in f.warps]
            self.groups[board, warp, number] = mine

    def waited(self, board: int, warps: np.ndarray, over: np.ndarray) -> None:
        super().waited(board, warps, over)
        for warp, limit in zip(warps.tolist(), over.tolist()):
            for number in range(self.known[board, warp], limit):
                for name in self.groups.get((board, warp, number), ()):
                    touched = int(self.touched[self.of[name], warp]) if name in self.of else -1
                    self.told[name].add((warp, touched))
            self.known[board, warp] = max(self.known[board, warp], limit)

    def mbarriers(self, i: Instruction, events: Sequence[tuple[int, int, bool, bool]]) -> None:
        super().mbarriers(i, events)
        for _, cell, arrives, over in events:
            if arrives:
                self.arrivals[i.address // 16].add((cell, self.phases[cell]))
            self.phases[cell] += over

    def phase_over(self, cell: int) -> None:
        super().phase_over(cell)
        self.phases[cell] += 1

    def acquire(self, i: Instruction, warps: np.ndarray, cells: np.ndarray) -> None:
        super().acquire(i, warps, cells)
        for warp, cell in zip(warps.tolist(), cells.tolist()):
            if phase := self.phases[cell]:  # before the first phase has ended there is nothing to learn
                self.told[-1, cell, phase].add((warp, int(self.steps[warp])))
                self.until[(-1, cell, phase), warp] = int(self.acts[warp])
                self.looked[cell] = max(self.looked[cell], phase)

    def wanted(self, n: int, later: int = 0) -> bool:
        """Whether somebody waits for what instruction ``n`` has arrived at, or so many phases later."""
        return any(self.looked[cell] > phase + later for cell, phase in self.arrivals[n])

    def cluster(self, what: str, which: np.ndarray) -> None:
        super().cluster(what, which)
        if what == "met" and len(which):
            self.guarded, self.abroad = self.abroad, False
        if what == "passed":
            if self.guarded:
                self.met.update(self.waits[warp] for warp in which.tolist())
            self.told[-2,].update((warp, int(self.steps[warp])) for warp in which.tolist())

    def of_use(self, name: tuple[int, ...]) -> set[tuple[int, ...]]:
        """Who is told of it, but those who have nothing left to do."""
        found = self.told.get(name, set())
        return {one for one in found if self.until.get((name, one[0])) != self.acts[one[0]]}

    def same(self, other: Told) -> bool:
        """Whether each warp learns the same in another run."""
        for name in self.told.keys() | other.told.keys():
            mine, its = self.of_use(name), other.of_use(name)
            if name[0] >= 0 and name not in self.again:  # its bytes are not touched: registers alone
                if name in self.generic:
                    continue
            elif name[0] >= 0 and self.first.get(name) != other.first.get(name):
                return False
            if mine != its:
                return False
        return True


@dataclass
class Seen:
    """What a run showed: ``said``, "" for nothing; the arrays; what was told in each wave; the most instructions of a
    warp."""

    said: str
    arrays: Arrays
    told: list[Told]
    longest: int

    @property
    def ran(self) -> set[int]:
        return set().union(*(one.ran for one in self.told))


def watch(run: Run, cubin: bytes, budget: int, make: Callable[[Any], Any]) -> tuple[str, Arrays, list[Any]]:
    """Runs it with the detector of races, and an observer more, which ``make`` makes, the last one of each wave: the
    error that ended it, what was written, the waves."""
    waves: list[Any] = []
    wave_of = device._wave

    def watched(*args: Any) -> Any:
        wave = wave_of(*args)
        wave.observers.append(make(wave))
        waves.append(wave)
        return wave

    arrays: Arrays = []
    error = ""
    with patch.object(device, "_wave", watched):
        try:
            arrays = run.go(cubin, races=True, budget=budget)
        except DeviceError as found:
            error = f"error: {found.kind}"
        except AssertionError:  # of the harness of convolutions: the result is wrong
            pass
    return error, arrays, [wave for wave in waves if wave.image.kernel.name == run.kernel]


def look(run: Run, cubin: bytes, budget: int) -> Seen:
    """Runs it with the detector of races."""
    error, arrays, waves = watch(run, cubin, budget, Told)
    said = [error] if error else []
    for wave in waves:
        for observer in wave.observers[:-1]:
            for one in getattr(observer, "findings", ()):
                said.append(f"{one.kind} {one.first.text} / {one.second.text}")
    longest = max((int(wave.executed.max()) for wave in waves), default=0)
    return Seen("; ".join(dict.fromkeys(said)), arrays, [wave.observers[-1] for wave in waves], longest)


def reordered(run: Run, cubin: bytes, budget: int) -> str:
    """What is reported in another order of the warps, in which the correct kernel has nothing reported."""
    for seed in range(ORDERS):
        with orders.order(seed, slow=True):
            found = look(run, cubin, budget).said
            if found and not look(run, run.cubin, budget).said:
                return f"in order {seed}: {found}"
    return ""


def unneeded(run: Run, fault: Fault, budget: int) -> str:
    """Why a wait at an mbarrier that is gone, or is for another one, changes nothing in any order of the warps."""
    if fault.of != "SYNCS" or fault.kind not in ("wait", "stage"):
        return ""
    twins = _without(run, run.cubin, budget)
    if twins is None:
        return ""
    code = decoded(run.cubin, run.kernel)
    again = tested_again(code, fault.number)
    same = again is not None and _place(code[again]) == _place(code[fault.number])
    waits = {fault.number}  # and the tests of the same wait, which fail before it or go on behind it
    while more := {m for n, failed in twins.items() for m in (n, *failed) if waits & {n, *failed}} - waits:
        waits |= more
    if _without(run, run.cubin, budget, waits) is None:
        return ""
    if fault.kind == "wait" or same or again in waits - {fault.number}:
        return "not needed"
    instead = (broken(run, fault), budget, waits - {fault.number}, {fault.number})
    return "" if _without(run, *instead) is None else "not needed"


def _place(i: Instruction | None) -> str:
    """An mbarrier, as a test has it."""
    return "" if i is None else next(str(o) for o in i.operands if isinstance(o, Mem))


def tested_again(code: list[Instruction | None], n: int) -> int | None:
    """The test that a warp comes to next for which test ``n`` fails, as far as the code alone tells."""
    failed = str(code[n].operands[0])  # type: ignore[union-attr]
    while (n := n + 1) < len(code) and (i := code[n]) is not None:
        if str(i.guard) == failed and not i.guard.inv:
            continue
        runs = i.always or str(i.guard) == failed
        if i.base == "SYNCS" and i.mods[0] == "PHASECHK":
            return n if runs else None
        if i.base in ("BRA", "EXIT", "BRX", "JMP", "RET", "CALL"):
            to = i.operands[-1] if i.operands else None
            if not (runs and i.base == "BRA" and i.guard_decides and isinstance(to, Label)):
                return None
            n = to.address // 16 - 1
        elif any(a.file == "P" and f"P{a.first}" == failed for a in i.writes):
            return None
    return None


def _without(
    run: Run, cubin: bytes, budget: int, waits: Collection[int] = (), instead: Collection[int] = ()
) -> dict[int, set[int]] | None:
    """Of each test those that failed before it; None where without ``waits`` something does not hold."""
    error, _, waves = watch(run, cubin, budget, lambda wave: Without(wave, waits, instead))
    watchers = [wave.observers[-1] for wave in waves]
    if error or any(one.wrong for one in watchers):
        return None
    found: dict[int, set[int]] = defaultdict(set)
    for one in watchers:
        for n, failed in one.twins.items():
            found[n] |= failed
    return found


def harmless(fault: Fault, right: Seen, wrong: Seen) -> str:
    """Why a fault changes nothing; "" where that is not known."""
    if len(right.told) != len(wrong.told):
        return ""
    if fault.kind == "arrive" and all(a.arrived == b.arrived for a, b in zip(right.told, wrong.told)):
        return "arrived twice" if any(one.arrived for one in right.told) and fault.of == "WARPGROUP" else ""
    if fault.kind == "arrive" and fault.of == "SYNCS" and not any(one.wanted(fault.number) for one in right.told):
        return "nobody waits"
    if fault.kind == "drop" and not any(one.wanted(fault.number, 1) for one in right.told):
        return "nobody waits"
    if fault.of == "UCGABAR_WAIT" and not any(fault.number in one.met for one in right.told):
        return "met for nothing"
    if fault.kind != "fence":
        return "told twice" if all(a.same(b) for a, b in zip(right.told, wrong.told)) else ""
    if not any(fault.number in one.needed for one in right.told):
        return "nothing to fence"
    return "fenced twice" if all(a.fenced == b.fenced for a, b in zip(right.told, wrong.told)) else ""


@functools.cache
def decoded(cubin: bytes, name: str) -> list[Instruction | None]:
    made = Cubin.from_bytes(cubin)
    kernel = next(k for k in made.kernels if k.name == name)
    isa = instruction_set(made.arch)
    return [instruction(isa, word, 16 * n) for n, word in enumerate(kernel.words)]


Verdict = tuple[Fault | None, str, str, str]


def verdicts(run: Run, pick: Callable[[Fault], bool] = lambda fault: True) -> Iterator[Verdict]:
    """For the correct kernel (None), then for each fault that its run comes to: what was reported, why it changes
    nothing, and what became of the result."""
    right = look(run, run.cubin, 1_000_000)
    yield None, right.said, "", "right"
    for fault in faults(decoded(run.cubin, run.kernel), run.stage):
        if fault.number in right.ran and pick(fault):
            wrong = look(run, broken(run, fault), 3 * right.longest + 3000)
            same = len(wrong.arrays) == len(right.arrays) and all(
                a.tobytes() == b.tobytes() for a, b in zip(wrong.arrays, right.arrays)
            )
            why = "" if wrong.said else harmless(fault, right, wrong)
            if not (wrong.said or why):
                why = unneeded(run, fault, 3 * right.longest + 3000)
                if not why:
                    wrong.said = reordered(run, broken(run, fault), 6 * right.longest + 6000)
            yield fault, wrong.said, why, "the same" if same else "wrong"


def main() -> int:
    """Print, for each kind of fault, how many were reported."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verbose", action="store_true", help="name each fault and what was reported")
    parser.add_argument("--only", default="", help="kernels with this in their names")
    parser.add_argument("--without", default="\n", help="not those with this in their names")
    parser.add_argument("--cutlass", type=Path, metavar="FOLDER", help="kernels of the CUTLASS there instead")
    options = parser.parse_args()
    made, found, nothing = Counter[str](), Counter[str](), Counter[str]()
    false = kernels = 0
    for run in of_cutlass(options.cutlass) if options.cutlass else runs():
        if options.only not in run.name or options.without in run.name:
            continue
        kernels += 1
        for fault, said, why, result in verdicts(run):
            if fault is None:
                false += bool(said)
                if said:
                    print(f"{run.name}: correct, but {said}", flush=True)
                continue
            if why:
                nothing[why] += 1
            else:
                made[fault.kind] += 1
                found[fault.kind] += bool(said)
            if options.verbose or not (said or why):
                one = decoded(run.cubin, run.kernel)[fault.number]
                assert one is not None
                where = f"{run.name}+{16 * fault.number:#x} {one.text()}"
                print(f"{where}: {fault.kind}: {said or why or 'nothing'}; the result is {result}", flush=True)
    for kind, count in sorted(made.items()):
        print(f"{kind}: {found[kind]} of {count}")
    print(f"all: {found.total()} of {made.total()} faults in {kernels} kernels; {false} correct kernels accused")
    print("beside them, faults that change nothing: " + ", ".join(f"{n} {why}" for why, n in sorted(nothing.items())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

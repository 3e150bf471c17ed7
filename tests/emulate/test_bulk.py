"""mbarriers against a model of the PTX ISA's, and bulk copies."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import turingas
from tests.emulate import step
from tests.tools import nvrtc, ptxas
from turingas import emulate
from turingas.emulate import memory
from turingas.emulate.build import Unsupported
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import DeviceError
from turingas.emulate.late import Late
from turingas.isa.instruction import Instruction

RNG = np.random.default_rng(5)
BAR = 0x40  # where the mbarrier lies
SHARED = 4096


decoded = functools.cache(step.decoded)


class Wave(step.Wave):
    """A wave with memories: blocks of one warp each, or all warps in one."""

    def __init__(self, warps: int, image: step.Image, together: bool) -> None:
        super().__init__(warps, image)
        self.block_of = np.zeros(warps, np.intp) if together else np.arange(warps)
        self.shared = memory.Shared(1 if together else warps, SHARED)
        self.memory = memory.Global()
        self.late = Late(warps, self.shared.plane.views[8])

    def fault(self, i: Instruction, kind: str, message: str, row: int, lane: int, address: int | None = None) -> Any:
        return DeviceError(kind, message, None, (row, 0, 0), (lane, 0, 0), address)


class Block:
    """Runs lines on warps whose registers and memories stay."""

    def __init__(self, warps: int = 1, together: bool = True, arch: str = "sm_90") -> None:
        self.arch, self.image = arch, step.Image(arch, {})
        self.wave = Wave(warps, self.image, together)
        self.memory: memory.Global = self.wave.memory

    def run(
        self, text: str, regs: Mapping[int, Any] = {}, uregs: Mapping[int, Any] = {}, active: Any = None
    ) -> step.Result:
        for file, values in ((self.wave.R, regs), (self.wave.UR, uregs)):
            for index, value in values.items():
                file[index] = np.broadcast_to(np.asarray(value, np.uint32), file[index].size).reshape(file[index].shape)
        every = None if active is None else np.broadcast_to(active, self.wave.P[7].size).reshape(-1, 32)
        k = Cohort(self.wave, slice(None), self.wave.warps, every)  # type: ignore[arg-type]
        for i in decoded(text, self.arch):
            step._guard(k, i)
            step.build(i, self.image)(k)
        return step.Result(self.wave)

    def init(self, arrivals: int, address: int = BAR) -> None:
        """As ptxas does it: both words from 2^20 less the arrivals."""
        less = (1 << 20) - arrivals
        self.run(f"SYNCS.EXCH.64 URZ, [UR4+{address:#x}], UR6", uregs={4: 0, 6: less << 1, 7: less << 11})

    def arrive_late(self, address: int = BAR) -> None:
        """All that the mbarrier waits for."""
        self.wave.late.flush(address // 8)

    def over(self, parity: int, address: int = BAR) -> bool:
        """mbarrier.test_wait.parity."""
        out = self.run(f"SYNCS.PHASECHK.TRANS64 P0, [R1+URZ+{address:#x}], R2", regs={1: 0, 2: parity << 31})
        assert len(set(out.p(0).tolist())) == 1
        return bool(out.p(0)[0])


def pending(upper: int) -> int:
    """mbarrier.pending_count of a state, as ptxas computes it from the upper word."""
    return 0x100000 - (upper >> 11 & 0xFFFFF)


class Model:
    """An mbarrier as the PTX ISA describes it."""

    def __init__(self, arrivals: int) -> None:
        self.expected = self.pending = arrivals
        self.bytes = self.phase = 0

    def arrive(self, count: int, drop: bool = False) -> None:
        self.pending -= count
        if drop:
            self.expected -= count
        self.turn()

    def complete(self, count: int) -> None:
        self.bytes -= count
        self.turn()

    def turn(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.expected


@pytest.mark.parametrize("seed", range(6))
def test_a_life_of_an_mbarrier(seed: int) -> None:
    """Random words to it, from random lanes, one after the other."""
    rng = np.random.default_rng(seed)
    arrivals = int(rng.integers(2, 40))
    block, model = Block(), Model(arrivals)
    block.init(arrivals)
    for _ in range(120):
        before = model.pending, model.phase & 1
        room = model.pending  # none, when only bytes are missing
        kind = rng.choice(["A1T0", "ART0", "", "A0TR", "A0TX", "DROP"])
        count = int(rng.integers(1, 5))
        lane = np.arange(32) == rng.integers(32)
        if kind == "A0TX" and model.bytes:
            value = int(rng.integers(1, model.bytes + 1))
            model.complete(value)
            block.run(f"SYNCS.ARRIVE.TRANS64.RED.A0TX RZ, [UR4+{BAR:#x}], R0", {0: value}, {4: 0}, lane)
        elif kind == "A0TR":
            model.bytes += count
            block.run(f"SYNCS.ARRIVE.TRANS64.RED.A0TR RZ, [UR4+{BAR:#x}], R0", {0: count}, {4: 0}, lane)
        elif room >= 1 and kind in ("A1T0", "", "ART0") or kind == "DROP" and room >= 1 and model.expected > 2:
            number = min(count, room) if kind == "ART0" else 1
            if kind == "":
                model.bytes += count
            model.arrive(number, drop=kind == "DROP")
            suffix = {"A1T0": ".A1T0", "": "", "ART0": ".ART0", "DROP": ".OPTOUT.A1T0"}[kind]
            value = number if kind == "ART0" else count
            regs = {0: value, 1: BAR, 8: 0, 9: 0}
            out = block.run(f"SYNCS.ARRIVE.TRANS64{suffix} R8, [R1+UR4], R0", regs, {4: 0}, lane)
            state = int(out.r(9)[lane][0])
            assert (pending(state), state >> 31) == before  # what the lane found
            assert not out.r(9)[~lane].any()
            assert block.run("SYNCS.PHASECHK.TRANS64 P0, [R1+URZ], R9").p(0)[lane][0] == (model.phase & 1 != before[1])
        elif model.bytes:
            value = model.bytes
            model.complete(value)
            block.run(f"SYNCS.ARRIVE.TRANS64.RED.A0TX RZ, [UR4+{BAR:#x}], R0", {0: value}, {4: 0}, lane)
        assert block.over(0) == (model.phase & 1 == 1) and block.over(1) == (model.phase & 1 == 0)
        word = int(block.run("SYNCS.LD.64 UR8, [UR4]", uregs={4: BAR}).ur64(8)[0])
        assert pending(word >> 32) == (model.pending or 0x100000)
    assert model.phase > 2


def read_bytes(block: Block) -> int:
    """The bytes that are still to come, from the state."""
    return -(int(block.run("SYNCS.LD.64 R8, [R1+URZ]", {1: BAR}).r64(8)[0]) >> 21) & 0x3FFFFF


def test_all_lanes_of_all_warps_arrive_one_by_one() -> None:
    block = Block(warps=3)
    block.init(96)
    out = block.run("SYNCS.ARRIVE.TRANS64.A1T0 R8, [UR4], RZ", uregs={4: BAR})
    assert [pending(int(s)) for s in out.r(9)] == list(range(96, 0, -1))
    assert block.over(0) and not block.over(1)


def test_blocks_have_mbarriers_of_their_own() -> None:
    block = Block(warps=2, together=False)
    block.init(33)
    out = block.run("SYNCS.ARRIVE.TRANS64.A1T0 R8, [UR4], RZ", uregs={4: BAR})
    assert [pending(int(s)) for s in out.r(9)] == [*range(33, 1, -1)] * 2 and not block.over(0)


def test_init_runs_once_a_warp_and_gives_what_was_there() -> None:
    block = Block(warps=2, together=False)
    out = block.run("SYNCS.EXCH.64 UR8, [UR4], UR6", uregs={4: [0x10, 0x20], 6: [1, 2], 7: [3, 4]})
    assert out.ur64(8).tolist() == [0, 0]
    out = block.run("SYNCS.EXCH.64 UR8, [UR4], UR6", uregs={4: [0x10, 0x20], 6: 9, 7: 9})
    assert out.ur64(8).tolist() == [3 << 32 | 1, 4 << 32 | 2]


def test_arrive_without_completing() -> None:
    """Each lane's state is put together behind the instruction: the upper word plus those before it in the mask."""
    block = Block()
    block.init(200)
    some = np.isin(np.arange(32), [2, 5, 31])
    out = block.run("SYNCS.ARRIVE.TRANS64.TMASK.ART0 R8, [R1+URZ], R0", {0: 3, 1: BAR}, active=some)
    assert set(out.r(8)[some].tolist()) == {1 << 2 | 1 << 5 | 1 << 31}
    assert [pending(int(s)) for s in out.r(9)[some]] == [200] * 3
    state = int(block.run("SYNCS.LD.64 UR8, [UR4]", uregs={4: BAR}).ur64(8)[0])
    assert pending(state >> 32) == 191


@pytest.mark.parametrize(
    "text, value, message",
    [
        ("SYNCS.ARRIVE.TRANS64.ART0 RZ, [UR4], R0", 3, "3 arrive at an mbarrier that waits for 2"),
        ("SYNCS.ARRIVE.TRANS64.RED.A0TR RZ, [UR4], R0", 1 << 20, "cannot wait for 1048576 bytes"),
        ("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4+0x8], R0", 0, "waits for 0 .or is none"),
    ],
)
def test_misuse(text: str, value: int, message: str) -> None:
    block = Block()
    block.init(2)
    with pytest.raises(DeviceError, match=message) as caught:
        block.run(text, {0: value}, {4: BAR}, np.arange(32) == 9)
    assert caught.value.thread == (9, 0, 0) and caught.value.kind == "mbarrier"


@pytest.mark.parametrize("address, kind", [(SHARED, "out of bounds"), (BAR + 4, "misaligned")])
def test_wrong_addresses(address: int, kind: str) -> None:
    for text in ("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], RZ"):
        with pytest.raises(DeviceError) as caught:
            Block().run(text, uregs={4: address})
        assert caught.value.kind == kind and caught.value.address == address


def test_copies_of_lanes_tell_the_mbarrier() -> None:
    """cp.async.mbarrier.arrive: expects one, which the copies complete; .noinc arrives."""
    block = Block()
    block.init(32)
    block.run("SYNCS.ARRIVE.TRANS64.RED.A0T1 RZ, [UR4], RZ", uregs={4: BAR})
    assert read_bytes(block) == 32
    block.run("ARRIVES.LDGSTSBAR.64.TRANSCNT [UR4]", uregs={4: BAR})
    assert read_bytes(block) == 32 and not block.over(0)  # it has not heard yet
    block.arrive_late()
    assert read_bytes(block) == 0 and not block.over(0)
    block.run("ARRIVES.LDGSTSBAR.64.ARVCNT [UR4]", uregs={4: BAR})
    assert block.over(0)


def test_ampere_arrives() -> None:
    """Its mbarrier: the upper word counts up to 2^31, where the parity flips."""
    block = Block(arch="sm_80")
    state = np.array([0x40000000 - 40, 0x80000000 - 40], np.uint32)
    words = block.wave.shared.array
    words[BAR // 4 : BAR // 4 + 2] = state
    block.run("ARRIVES.LDGSTSBAR.64 [R1+URZ]", {1: BAR})
    assert words[BAR // 4 + 1] == state[1]
    block.arrive_late()
    assert words[BAR // 4 + 1] == 0x80000000 - 8
    block.run("ARRIVES.LDGSTSBAR.64 [R1+URZ]", {1: BAR}, active=np.arange(32) < 8)
    block.run("LDS.64 R2, [R1]", {1: BAR})  # before sm_90 a phase is tested so
    assert words[BAR // 4 + 1] == 0x80000000 | 0x80000000 - 40


# ---- bulk copies -----------------------------------------------------------------------------------------------------


def halves(address: int) -> tuple[int, int]:
    return address & 0xFFFFFFFF, address >> 32


def test_copy_in_and_out() -> None:
    block = Block(warps=2, together=False)
    source = RNG.integers(0, 256, 512, np.uint8)
    low, high = halves(block.memory.add(source))
    block.init(1)
    block.run("SYNCS.ARRIVE.TRANS64 RZ, [UR4], R0", {0: [96] * 32 + [64] * 32}, {4: BAR}, np.arange(64) % 32 == 0)
    assert not block.over(0)
    uregs = {8: [0x100, 0x200], 9: BAR, 10: [low + 16, low + 128], 11: high, 12: [6, 0x10004]}  # the upper half: CTAs
    block.run("UBLKCP.S.G [UR8], [UR10], UR12", uregs=uregs)
    shared = block.wave.shared.array.view(np.uint8).reshape(2, -1)
    assert not shared[:, 0x100:].any()  # nobody has waited yet
    source[16] ^= 0xFF  # it is read when it is copied
    assert block.over(0)
    assert (shared[0, 0x100 : 0x100 + 96] == source[16 : 16 + 96]).all() and not shared[0, 0x100 + 96 :].any()
    assert (shared[1, 0x200 : 0x200 + 64] == source[128 : 128 + 64]).all() and not shared[1, 0x200 + 64 :].any()
    result = np.zeros(256, np.uint8)
    low, high = halves(block.memory.add(result))
    uregs = {8: [0x100, 0x210], 10: [low + 32, low + 160], 11: high, 12: [2, 1]}
    block.run("UBLKCP.G.S [UR10], [UR8], UR12\n--:3:-:-:1 UTMACMDFLUSH", uregs=uregs)
    block.run("DEPBAR.LE SB3, 0x1\nDEPBAR.LE SB2, 0x0")
    assert not result.any()
    block.run("DEPBAR.LE SB3, 0x0")
    assert (result[32:64] == source[16:48]).all() and (result[160:176] == source[144:160]).all()
    assert result.astype(bool).sum() <= 48 and not result[:32].any() and not result[64:160].any()
    block.init(1)
    block.run("SYNCS.ARRIVE.TRANS64 RZ, [UR4], R0", {0: 32}, {4: BAR}, np.arange(64) % 32 == 0)
    block.run("UBLKCP.S.S [UR8], [UR10], UR12", uregs={8: 0x400, 9: BAR, 10: [0x100, 0x200], 11: 0, 12: 2})
    assert block.over(0)
    assert (shared[0, 0x400:0x420] == source[16:48]).all() and (shared[1, 0x400:0x420] == source[128:160]).all()


def test_only_warps_with_a_lane_copy() -> None:
    block = Block(warps=2, together=False)
    source = np.full(64, 7, np.uint8)
    low, high = halves(block.memory.add(source))
    block.init(1)
    uregs = {8: 0x100, 9: BAR, 10: low, 11: high, 12: 4}
    block.run("UBLKCP.S.G [UR8], [UR10], UR12", uregs=uregs, active=np.arange(64) == 40)
    block.wave.late.finish()
    shared = block.wave.shared.array.view(np.uint8).reshape(2, -1)
    assert not shared[0, 0x100:].any() and (shared[1, 0x100 : 0x100 + 64] == 7).all()


@pytest.mark.parametrize(
    "change, kind",
    [
        ({12: 5}, "out of bounds"),  # 80 of 64 bytes
        ({8: SHARED - 32}, "out of bounds"),
        ({8: 0x108}, "misaligned"),
        ({9: BAR + 4}, "misaligned"),
        ({10: 8}, "misaligned"),
    ],
)
def test_wrong_copies(change: dict[int, int], kind: str) -> None:
    block = Block()
    low, high = halves(block.memory.add(np.zeros(64, np.uint8)))
    uregs = {8: 0x100, 9: BAR, 10: low, 11: high, 12: 4} | change
    uregs[10] += low if 10 in change else 0
    block.init(1)
    with pytest.raises(DeviceError) as caught:
        block.run("UBLKCP.S.G [UR8], [UR10], UR12", uregs=uregs, active=np.arange(32) == 3)
    assert caught.value.kind == kind and caught.value.thread == (3, 0, 0)


def test_nothing_to_do() -> None:
    block = Block()
    low, high = halves(block.memory.add(np.zeros(64, np.uint8)))
    lines = ["UBLKPF.L2 [UR10], UR12", "UTMACMDFLUSH", "ACQBULK", "PREEXIT", "SYNCS.CCTL.IV [UR4]"]
    block.run("\n".join(lines), uregs={4: BAR, 10: low, 11: high, 12: 4})


@pytest.mark.parametrize(
    "text", ["UBLKCP.G.G [UR8], [UR10], UR12", "REDAS.ADD [R2.U32+UR4], R6"]
)
def test_what_is_not_there_is_named(text: str) -> None:
    with pytest.raises(Unsupported, match=text.split(".")[0]):
        Block().run(text)


# ---- compiled code ---------------------------------------------------------------------------------------------------

RING = """
extern "C" __global__ void ring(const int* in, int* out, int tiles) {
    extern __shared__ __align__(128) int buffer[];  // two tiles of 128, and the result
    __shared__ __align__(8) unsigned long long full[2];
    unsigned bar = __cvta_generic_to_shared(full), mem = __cvta_generic_to_shared(buffer), t = threadIdx.x;
    in += blockIdx.x * tiles * 128;
    auto fetch = [&](int n) {
        unsigned at = bar + 8 * (n & 1);
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" ::"r"(at));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::
            "r"(mem + 512 * (n & 1)), "l"(in + n * 128), "r"(at) : "memory");
    };
    if (t == 0) for (int n = 0; n < 2; n++) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar + 8 * n));
    __syncthreads();
    if (t == 0) fetch(0);
    int sum = 0;
    for (int n = 0; n < tiles; n++) {
        if (t == 0 && n + 1 < tiles) fetch(n + 1);
        unsigned done;
        do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done) : "r"(bar + 8 * (n & 1)), "r"(n >> 1 & 1) : "memory");
        while (!done);
        sum += buffer[128 * (n & 1) + (t ^ 1)] * (n + 1);
        __syncthreads();
    }
    buffer[256 + t] = sum;
    __syncthreads();
    if (t == 0) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512; cp.async.bulk.commit_group;"
        "cp.async.bulk.wait_group 0;" ::"l"(out + blockIdx.x * 128), "r"(mem + 1024) : "memory");
}
"""


@pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
def test_a_ring_of_tiles() -> None:
    x = RNG.integers(-99, 99, (3, 5, 128)).astype(np.int32)
    out = np.zeros((3, 128), np.int32)
    emulate.launch(nvrtc.compile_source(RING, "sm_90"), "ring", 3, 128, [x, out, 5], shared=1536)
    assert (out == (x[:, :, np.arange(128) ^ 1] * np.arange(1, 6)[:, None]).sum(1)).all()


@pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_120a"])
def test_states_before_each_arrival(arch: str) -> None:
    """mbarrier.arrive.noComplete with a count: ptxas keeps the mask of the lanes and the state in Rpc, and works out
    what each lane would have found if they had come one after the other."""
    text = f"""
.version 8.8
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 count)
{{
 .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p;
 .shared .align 8 .b64 bar[2];
 mov.u32 %r0, %tid.x; mov.u32 %r1, bar; ld.param.u64 %d0, [out]; ld.param.u32 %r2, [count];
 setp.ne.u32 %p, %r0, 0; @%p bra DONE;
 mbarrier.init.shared::cta.b64 [%r1], 500; mbarrier.init.shared::cta.b64 [%r1+8], 500;
DONE:
 bar.sync 0;
 and.b32 %r3, %r0, 1; shl.b32 %r3, %r3, 3; add.u32 %r1, %r1, %r3;
 mbarrier.arrive.noComplete.shared::cta.b64 %d1, [%r1], %r2;
 mbarrier.pending_count.b64 %r4, %d1;
 mul.wide.u32 %d2, %r0, 4; add.u64 %d0, %d0, %d2; st.global.b32 [%d0], %r4;
 ret;
}}
"""
    code, out = ptxas.assemble_ptx(text, arch), np.zeros(32, np.uint32)
    assert "RPCMOV" in turingas.disassemble(turingas.Cubin.from_bytes(code))
    report = emulate.launch(code, "k", 1, 32, [out, 3], strict=True)
    assert out.tolist() == [500 - 3 * (lane // 2) for lane in range(32)] and not report.hazards


TOKENS = r"""
extern "C" __global__ void k(unsigned long long* out) {
    __shared__ unsigned long long bar;
    unsigned b = (unsigned)__cvta_generic_to_shared(&bar);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 3;" :: "r"(b) : "memory");
    for (int n = 0; n < 4; n++)
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(out[n]) : "r"(b) : "memory");
}
"""


def test_states_as_a_card_returns_them() -> None:
    """Upper words of what four arrivals found at an mbarrier of three, an H100's (where the second expected 256 bytes,
    and they came)."""
    out = np.zeros(4, np.uint64)
    emulate.launch(turingas.Cubin.from_bytes(nvrtc.compile_source(TOKENS, "sm_90")), "k", 1, 1, [out])
    assert [hex(int(n) >> 32) for n in out] == ["0x7fffe800", "0x7ffff000", "0x7ffff800", "0xffffe800"]

"""What docs/linter.md and docs/emulator.md say that the tools cannot see: they do not. Whoever teaches it to one of
them finds here which text to change."""

from __future__ import annotations

import re

import numpy as np
import pytest

import loader
import turingas
from tests.docs.pages import DOCS
from tests.tools import nvrtc
from turingas.check.loops import summary
from turingas.emulate import build, flow, launch, semantics
from turingas.emulate.errors import DeviceError
from turingas.flow.graph import Graph
from turingas.isa.arch import NAMES
from turingas.isa.isa import instruction_set

HEAD = """
<params>
out, 8
</params>
<smem> 256 </smem>
"""
POINTER = """
--:-:-:-:1 MOV R2, out[0];
--:-:-:Y:8 MOV R3, out[1];
"""
PLACES = """
--:-:0:-:2 S2R R4, SR_TID.X;
01:-:-:-:8 IMAD.SHL.U32 R5, R4, 0x4, RZ;
--:-:-:-:8 LOP3.LUT R6, R5, {other}, RZ, 0x3c, !PT;
--:0:-:-:2 STS [R5], R4;
01:-:1:-:2 LDS R7, [R6];
02:-:-:-:4 NOP;
"""
EXIT = "--:-:-:Y:5 EXIT;"

NEVER_WRITTEN = f"""{HEAD}{POINTER}
--:-:-:Y:8 IADD3 R4, R5, 0x7, RZ;
--:-:-:-:1 STG.E [R2], R4;
{EXIT}"""
BEYOND = f"""{HEAD}{POINTER}
--:-:0:-:2 LDG.E R4, [R2+0x1000];
01:-:-:-:1 STG.E [R2], R4;
{EXIT}"""
MISALIGNED = f"""{HEAD}
--:-:-:Y:8 MOV R2, 0x4;
--:-:0:-:2 LDS.128 R4, [R2];
01:-:-:-:4 NOP;
{EXIT}"""
SHARED_RACE = HEAD + PLACES.format(other="0x80") + EXIT  # the word of the other warp
ONE_WARP = HEAD + PLACES.format(other="0x4") + EXIT  # ... of the next lane
ENDLESS = f"""{HEAD}
again:
--:-:-:Y:5 BRA again;
{EXIT}"""
WRONG_COUNT = f"""{HEAD}
--:-:-:Y:8 BAR.SYNC 0x1, 0x40;
{EXIT}"""
BLOCKS_RACE = f"""{HEAD}{POINTER}
--:-:0:-:2 S2R R4, SR_CTAID.X;
01:-:-:-:1 STG.E [R2], R4;
{EXIT}"""
STALE_REUSE = f"""{HEAD}
--:-:-:-:4 FADD R4, R2, R3.reuse;
--:-:-:-:5 MOV R3, RZ;
--:-:-:-:4 FADD R5, R2, R3;
{EXIT}"""
FORGOTTEN_COPY = """
.arch sm_80
.kernel k
<params>
out, 8
</params>
<smem> 512 </smem>
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:-:-:1 MOV R2, out[0];
--:-:-:Y:8 MOV R3, out[1];
01:-:-:Y:8 IMAD.SHL.U32 R5, R0, 0x4, RZ;
--:-:-:Y:8 IMAD.WIDE R2, R0, 0x4, R2;
--:0:-:-:2 LDGSTS.E [R5], [R2.64+URZ];
01:-:-:-:1 LDGDEPBAR;
--:-:-:Y:6 BAR.SYNC 0x0;
--:-:1:-:2 LDS R6, [R5];
02:-:-:-:1 STG.E [R2], R6;
--:-:-:Y:5 EXIT;
"""
OTHER_REGISTER = FORGOTTEN_COPY.replace("LDS R6, [R5]", "LDS R6, [R9]").replace("BAR.SYNC 0x0;", "BAR.SYNC 0x0;\n"
                                        "--:-:-:Y:8 MOV R9, R5;")  # fmt: skip
NEVER_TRUE = f"""{HEAD}
--:-:-:Y:d ISETP.EQ.AND P0, PT, RZ, RZ, PT;
--:-:-:Y:d ISETP.NE.AND P1, PT, RZ, RZ, PT;
--:-:0:-:2 @P1 LDS R5, [RZ];
--:-:-:-:4 @P0 MOV R5, RZ;
{EXIT}"""


def errors(source):
    return {found.kind for found in turingas.lint(turingas.assemble(source)) if found.severity == "error"}


def run(source, grid=1, block=32, **options):
    return launch(turingas.assemble(source), None, grid, block, [np.zeros(64, "u4")], **options)


# ---- docs/linter.md -------------------------------------------------------------------------------------------------


def never_stored():
    source = f"{HEAD}\n--:-:0:-:2 LDS R2, [RZ];\n01:-:-:-:4 NOP;\n{EXIT}"
    assert not errors(source)
    with pytest.raises(DeviceError, match="never written"):
        run(source, written=True)


UNSET_IN_CALLED = "__device__ __noinline__ int f(const int *p) { return *p; }\n"
UNSET_IN_CALLED += 'extern "C" __global__ void k(int *a) { a[0] = f(a + threadIdx.x) + f(a + 3); }'


def linked(change):
    """A kernel that calls a function in another section, whose words are changed."""
    cubin = turingas.Cubin.from_bytes(nvrtc.compile_source(UNSET_IN_CALLED, "sm_80", ["-rdc=true"]))
    function = cubin.functions[0]
    function.words = [change(word, cubin.arch, n) for n, word in enumerate(function.words)]
    return cubin


def unset_in_a_function():
    def other(word, arch, n):
        text = turingas.decode([word], arch)[0]
        if "LDG" not in text:
            return word
        (new,) = turingas.encode(re.sub(r"\[R\d+", "[R8", text), arch)
        return new

    changed = linked(other)
    assert any("[R8" in line for line in turingas.decode(changed.functions[0].words, changed.arch))
    assert not [f for f in turingas.lint(changed) if f.severity != "note"]


def pending_in_a_function():
    """It returns while its load is under way."""
    cubin = linked(lambda word, arch, n: word & ~(63 << 116))
    assert not [f for f in turingas.lint(cubin) if f.severity != "note"]
    assert "raw" in {h.kind for h in launch(cubin, "k", 1, 32, [np.zeros(64, "u4")], strict=True).hazards}


def out_of_bounds():
    for source in (BEYOND, MISALIGNED):
        assert not errors(source)
        with pytest.raises(DeviceError):
            run(source)


def whose_memory():
    """A block of a cluster stores as if there were none."""
    source = f""".arch sm_90{HEAD}
--:-:0:-:2 S2R R4, SR_TID.X;
01:-:-:Y:8 IMAD.SHL.U32 R5, R4, 0x4, RZ;
--:-:-:-:2 STS [R5], R4;
{EXIT}"""
    assert not errors(source)
    run(source, 2)
    with pytest.raises(DeviceError, match="in block 0 of the cluster"):
        run(source, 2, cluster=2)


def race_in_shared_memory():
    assert not errors(SHARED_RACE)
    assert run(SHARED_RACE, block=64, races=True).races


def race_of_blocks():
    assert not errors(BLOCKS_RACE)
    assert run(BLOCKS_RACE, 2, races="global").races


WAITING = f"""{HEAD}{POINTER}
--:-:0:-:2 S2R R4, SR_CTAID.X;
01:-:-:Y:d ISETP.NE.AND P0, PT, R4, RZ, PT;
--:-:-:-:4 @P0 MOV R6, 0x1;
--:-:-:-:5 @P0 BRA last;
again:
--:-:0:-:2 LDG.E.STRONG.GPU R5, [R2];
01:-:-:Y:d ISETP.EQ.AND P0, PT, R5, RZ, PT;
--:-:-:-:5 @P0 BRA again;
{EXIT}
last:
--:-:-:-:1 STG.E.STRONG.GPU [R2], R6;
{EXIT}"""


def waits_for_a_later_block():
    assert not errors(WAITING)
    run(WAITING, 2)  # both are there
    with pytest.raises(DeviceError, match="does not end|may never end"):
        run(WAITING, 2, lanes=32, workers=1, budget=1000)


def never_ends():
    for source, said in ((ENDLESS, "does not end|may never end"), (WRONG_COUNT, "deadlock")):
        assert not errors(source)
        with pytest.raises(DeviceError, match=said):
            run(source, budget=1000)


def wrong_result():
    """It should have stored 1."""
    source = f"{HEAD}{POINTER}\n--:-:-:Y:8 MOV R4, 0x2;\n--:-:-:-:1 STG.E [R2], R4;\n{EXIT}"
    assert not errors(source)
    assert not run(source, strict=True, races="global").hazards


def copy_through_another_register():
    assert not errors(OTHER_REGISTER)
    assert run(OTHER_REGISTER, races=True).races


def path_that_is_not_taken():
    assert errors(NEVER_TRUE) == {"waw"}
    assert not run(NEVER_TRUE, strict=True).hazards


def a_rare_pair():
    """ptxas leaves two cycles, in the few cases that there are."""
    source = f"""
.arch sm_80
.kernel k
<params>
out, 8
</params>
--:-:-:Y:d UISETP.EQ.U32.AND UP0, UPT, URZ, URZ, UPT;
--:-:-:-:1 UPLOP3.LUT UP1, UPT, UP0, UPT, UPT, 0x80, 0x0;
--:-:-:Y:d VOTEU.ANY UP0, PT;
{EXIT}"""
    assert not errors(source)


def word_without_a_name():
    """The load's result is overwritten by nobody knows what."""
    cubin = turingas.assemble(f"{HEAD}{POINTER}\n--:-:0:-:2 LDG.E R4, [R2];\n01:-:-:-:4 NOP;\n{EXIT}")
    cubin.kernels[0].words[3] = 1 << 105 | 0xFFF
    assert "unknown-word" in {f.kind for f in turingas.lint(cubin)}
    assert not {f.kind for f in turingas.lint(cubin) if f.severity == "error"} & {"raw", "waw"}


def notes(source, arch="sm_90"):
    return {found.kind for found in turingas.lint(turingas.assemble(source, arch=arch))}


def conflict_of_doubles():
    sets = "".join(f"--:-:-:Y:{stall} MOV R{n}, RZ;\n" for n, stall in zip(range(2, 8), "44444d"))
    assert "bank-conflict" in notes(f"{sets}--:-:-:Y:8 FFMA R8, R2, R4, R6;\n{EXIT}", "sm_75")
    assert "bank-conflict" not in notes(f"{sets}--:-:0:-:8 DFMA R8, R2, R4, R6;\n01:-:-:-:4 NOP;\n{EXIT}", "sm_75")


def conflict_through_a_table():
    source = f"""{HEAD}{POINTER}
--:-:0:-:2 S2R R4, SR_TID.X;
01:-:-:Y:8 IMAD.WIDE R2, R4, 0x4, R2;
--:-:0:-:2 LDG.E R4, [R2];
01:-:1:-:2 LDS R5, [R4];
02:-:-:-:4 NOP;
{EXIT}"""
    assert "shared-conflict" not in notes(source.replace(HEAD, HEAD.replace("256", "8192")), "sm_75")
    cubin = turingas.assemble(source.replace(HEAD, HEAD.replace("256", "8192")))
    report = launch(cubin, None, 1, 32, [np.arange(32, dtype="u4") * 128], counters=True)
    assert (report.counters.wavefronts > report.counters.ideal).any()


LOOP = """
.arch sm_90
.kernel k
<params>
out, 8
</params>
--:-:-:-:1 MOV R2, out[0];
--:-:-:Y:8 MOV R3, out[1];
--:-:-:Y:8 MOV R4, RZ;
again:
{body}
--:-:-:Y:8 IADD3 R4, R4, 0x1, RZ;
--:-:-:Y:d ISETP.NE.AND P0, PT, R4, 0x10, PT;
--:-:-:Y:5 @P0 BRA again;
--:-:-:Y:5 EXIT;
"""


def cycles(body):
    (loop,) = summary(Graph(turingas.assemble(LOOP.format(body=body)).kernels[0], ""))
    return loop.alone


def time_of_memory():
    """A load and the wait for it: 2 and 4 cycles, however far the data are; and however many warps are there."""
    assert cycles("--:-:0:-:2 LDG.E R6, [R2];\n01:-:-:-:4 NOP;") == cycles("--:-:0:-:2 LDS R6, [RZ];\n01:-:-:-:4 NOP;")


def other_warps():
    """One warp alone: it is not asked how many there are."""
    assert cycles("--:-:-:-:4 NOP;") - cycles("--:-:-:-:2 NOP;") == 2


def yields():
    for flag in "-Y":
        source = LOOP.format(body="--:-:-:-:4 MOV R5, RZ;\n" + f"--:-:-:{flag}:8 FADD R7, R4, R5;\n" * 4)
        assert not {kind for kind in notes(source) if "yield" in kind}


def dynamic_shared_memory():
    """100 KB of it leave room for two blocks of an SM, which the note on occupancy does not know of."""
    source = f"{HEAD}--:-:-:-:4 MOV R127, RZ;\n{EXIT}"
    cubin = turingas.assemble(source, arch="sm_90")
    said = [f.message for f in turingas.lint(cubin) if f.kind == "occupancy"]
    launch(cubin, None, 1, 32, [np.zeros(64, "u4")], shared=100 << 10)
    assert said == [f.message for f in turingas.lint(cubin) if f.kind == "occupancy"]


#: a kernel for each line of "What the linter cannot see", by how the line begins
LINTER = {
    "uninitialised memory": never_stored,
    "uninitialised registers of device functions": unset_in_a_function,
    "accesses out of bounds or misaligned": out_of_bounds,
    "an address of shared memory that lacks": whose_memory,
    "races in shared memory": race_in_shared_memory,
    "races in global memory": race_of_blocks,
    "blocks that wait for one another": waits_for_a_later_block,
    "loops that do not end": never_ends,
    "whether the result is right": wrong_result,
    "asynchronous copies": copy_through_another_register,
    "values": path_that_is_not_taken,
    "functions in other sections": pending_in_a_function,
    "latencies that compilers' code does not show": a_rare_pair,
    "words that no instruction explains": word_without_a_name,
    "bank conflicts of FP64": conflict_of_doubles,
    "bank conflicts of shared memory": conflict_through_a_table,
    "other warps": other_warps,
    "time": time_of_memory,
    "whether a `Y` pays off": yields,
    "dynamic shared memory": dynamic_shared_memory,
}


# ---- docs/emulator.md -----------------------------------------------------------------------------------------------


def silent(source, grid=1, block=32, **options):
    """Runs it with all that looks for faults, which find none."""
    report = run(source, grid, block, **{"strict": True, "races": "global", **options})
    assert not report.hazards and not report.races
    return report


def other_path():
    """The stall is too short where nobody goes."""
    source = f"""{HEAD}{POINTER}
--:-:-:Y:d ISETP.EQ.AND P0, PT, RZ, 0x1, PT;
--:-:-:-:5 @P0 BRA away;
{EXIT}
away:
--:-:-:-:1 MOV R4, 0x1;
--:-:-:-:1 STG.E [R2], R4;
{EXIT}"""
    silent(source)
    assert errors(source) == {"raw-stall"}


def unset_register():
    silent(NEVER_WRITTEN, written=True)


def unset_global_memory():
    silent(f"{HEAD}{POINTER}\n--:-:0:-:2 LDG.E R4, [R2];\n01:-:-:-:1 STG.E [R2], R4;\n{EXIT}", written=True)


def race_of_blocks_unasked():
    silent(BLOCKS_RACE, 2, races=True)
    assert run(BLOCKS_RACE, 2, races="global").races


SURFACE = """
extern "C" __global__ void k(cudaSurfaceObject_t s) { surf2Dwrite((int)blockIdx.x, s, 0, 0); }
"""


def race_on_a_surface():
    surface = loader.surface(np.zeros((2, 2), np.int32))
    kernel = loader.load(nvrtc.compile_source(SURFACE, "sm_80"), "cpu").kernel("k")
    assert not kernel.launch(2, 1, surface, races="global").races


DEPENDENT = 'extern "C" __global__ void k(const int *in, int *out) { out[threadIdx.x] = in[threadIdx.x]; }'


def begins_early():
    a, b = np.arange(32, dtype="i4"), np.zeros(32, "i4")
    kernel = loader.load(nvrtc.compile_source(DEPENDENT, "sm_90"), "cpu").kernel("k")
    for races, found in ((True, False), ("global", True)):
        kernel.launch(1, 32, a, b, races=races)
        assert bool(kernel.launch(1, 32, b, np.zeros(32, "i4"), early=True, races=races).races) == found


COPIED_OUT = """
extern "C" __global__ void k(const int *in, int *out)
{
    __shared__ __align__(128) int room[32];
    unsigned to = __cvta_generic_to_shared(room);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group; cp.async.wait_group 0;" ::"r"(
                     to + 4 * threadIdx.x), "l"(in + threadIdx.x) : "memory");
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128; cp.async.bulk.commit_group;"
                     "cp.async.bulk.wait_group 0;" ::"l"(out), "r"(to) : "memory");
}
"""


def copied_and_not_fenced():
    kernel = loader.load(nvrtc.compile_source(COPIED_OUT, "sm_90"), "cpu").kernel("k")
    out = np.zeros(32, "i4")
    assert not kernel.launch(1, 32, np.arange(32, dtype="i4"), out, races="global").races
    assert (out == np.arange(32)).all()


def race_within_a_warp():
    silent(ONE_WARP)


FLAGGED = """
extern "C" __global__ void k(int *out)
{
    __shared__ volatile int flag;
    __shared__ int data;
    flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        data = 5;
        __threadfence_block();
        flag = 1;
    } else if (threadIdx.x == 32) {
        while (!flag)
            ;
        __threadfence_block();
        *out = data;
    }
}
"""


def flag_in_shared_memory():
    """It accuses what is right."""
    out = np.zeros(1, "i4")
    kernel = loader.load(nvrtc.compile_source(FLAGGED, "sm_80"), "cpu").kernel("k")
    assert kernel.launch(1, 64, out, races=True).races and out == 5


MBARRIER = """
#if __CUDA_ARCH__ >= 900
#define TEST "mbarrier.try_wait"
#else
#define TEST "mbarrier.test_wait"
#endif
extern "C" __global__ void k(int *out)
{
    __shared__ unsigned long long bar;
    unsigned at = __cvta_generic_to_shared(&bar);
    auto arrive = [&] { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at) : "memory"); };
    auto wait = [&](unsigned parity) {
        for (unsigned done = 0; !done;)
            asm volatile("{ .reg .pred p; " TEST ".parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(at), "r"(parity) : "memory");
    };
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
        if (FENCE) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) arrive();
    if (threadIdx.x >= 32) wait(0);
    if (AGAIN && threadIdx.x == 0) arrive();
    out[threadIdx.x] = 1;
}
"""


def mbarrier(arch, fence, again):
    return nvrtc.compile_source(MBARRIER, arch, [f"-DFENCE={fence}", f"-DAGAIN={again}"])


def races_of(cubin):
    return loader.load(cubin, "cpu").kernel("k").launch(1, 64, np.zeros(64, "i4"), races=True).races


def fence_of_an_mbarrier():
    assert not races_of(mbarrier("sm_90", 0, 0))
    code = []
    for fence in (0, 1):
        words = turingas.Cubin.from_bytes(mbarrier("sm_90", fence, 0)).kernels[0].words
        lines = [line.split("  ", 1)[1] for line in turingas.decode(words, arch="sm_90")]
        code.append([line for line in lines if not re.search("NOP|BRA|BSSY", line)])
    assert code[0] == code[1]


def wait_that_may_be_late():
    """The next phase may be over, too, when the other warp looks: then it waits for ever."""
    assert not races_of(mbarrier("sm_80", 0, 1))
    assert {race.kind for race in races_of(mbarrier("sm_90", 0, 1))} == {"MISSED"}


def order_of_atomics():
    """Whoever comes last stays: here it is always the same."""
    source = f"""{HEAD}{POINTER}
--:-:0:-:2 S2R R4, SR_CTAID.X;
01:0:1:-:2 ATOMG.E.EXCH.STRONG.GPU PT, R5, [R2], R4;
{EXIT}"""
    results = []
    for _ in range(3):
        out = np.zeros(64, "u4")
        assert not launch(turingas.assemble(source), None, 4, 1, [out], races="global").races
        results.append(int(out[0]))
    assert results == [3, 3, 3]


def forgotten_copy():
    assert not run(FORGOTTEN_COPY, 1, strict=True).hazards
    with pytest.raises(DeviceError, match="never written"):
        run(FORGOTTEN_COPY, written=True)
    assert run(FORGOTTEN_COPY, races=True).races
    assert errors(FORGOTTEN_COPY) == {"copy-pending"}


def stale_reuse():
    silent(STALE_REUSE)
    assert errors(STALE_REUSE) == {"reuse-stale"}


def read_only_path():
    source = f"""{HEAD}{POINTER}
--:0:-:-:2 STG.E [R2], RZ;
01:-:0:-:2 LDG.E.CONSTANT.SYS R4, [R2];
01:-:-:-:4 NOP;
{EXIT}"""
    silent(source, races=True)
    assert run(source, races="global").races


def speed():
    """A load from memory takes no longer than its stall counts say."""
    source = f"""{HEAD}{POINTER}
--:-:-:Y:f CS2R.32 R4, SR_CLOCKLO;
--:-:0:-:2 LDG.E R6, [R2];
01:-:-:Y:f NOP;
--:-:-:Y:f CS2R.32 R5, SR_CLOCKLO;
--:-:-:Y:f IADD3 R4, R5, -R4, RZ;
--:-:-:-:1 STG.E [R2], R4;
{EXIT}"""
    out = np.zeros(64, "u4")
    launch(turingas.assemble(source), None, 1, 1, [out])
    assert 0 < out[0] < 100


def last_bits_of_mufu():
    """It is rounded to nearest, which a GPU's is not always."""
    source = f"""{HEAD}{POINTER}
--:-:0:-:2 LDG.E R4, [R2];
01:-:0:-:2 MUFU.RCP R4, R4;
01:-:-:-:1 STG.E [R2], R4;
{EXIT}"""
    x = np.full(64, 3, "f4")
    launch(turingas.assemble(source), None, 1, 1, [x])
    assert x[0] == np.float32(1) / np.float32(3)


def more_than_the_gpu_holds():
    """A cooperative launch of 80 blocks of 1024 threads: a T4 holds 40 of them."""
    run(f"{HEAD}{EXIT}", 80, 1024, cooperative=True)


#: a kernel for each line of "What it cannot see"
DEVICE = {
    "paths that were not run": other_path,
    "uninitialised registers and predicates": unset_register,
    "uninitialised global memory": unset_global_memory,
    "races in global memory": race_of_blocks_unasked,
    "surfaces and textures": race_on_a_surface,
    "a launch that may begin before": begins_early,
    "whether `LDGSTS` needs a fence": copied_and_not_fenced,
    "races within a warp": race_within_a_warp,
    "order that volatile flags": flag_in_shared_memory,
    "a forgotten `fence.mbarrier_init`": fence_of_an_mbarrier,
    "before sm_90, a wait": wait_that_may_be_late,
    "an order of warps, blocks or atomics": order_of_atomics,
    "a missing wait for an asynchronous copy": forgotten_copy,
    "what is in the reuse cache": stale_reuse,
    "data that a read-only path": read_only_path,
    "whether a kernel is fast": speed,
    "the last bits of `MUFU`": last_bits_of_mufu,
    "limits of a launch": more_than_the_gpu_holds,
}

TABLES = {("linter.md", "## What the linter cannot see"): LINTER, ("emulator.md", "## What it cannot see"): DEVICE}


@pytest.mark.parametrize(("page", "title"), TABLES)
def test_each_line_has_a_kernel(page, title):
    text = (DOCS / page).read_text().split(title)[1]
    lines = [line[2:] for line in re.search(r"\|---\|---\|\n((?:\|.*\n)+)", text)[1].splitlines()]
    shown = TABLES[page, title]
    assert [next((begin for begin in shown if line.startswith(begin)), line) for line in lines] == list(shown)


@pytest.mark.parametrize("show", [*LINTER.values(), *DEVICE.values()])
def test_it_is_blind(show):
    if "nvrtc" in show.__code__.co_names or "linked" in show.__code__.co_names:
        if nvrtc.library_path() is None:
            pytest.skip("needs NVRTC")
    show()


def test_instructions_without_semantics():
    """The table of docs/emulator.md has them all."""
    semantics.load()
    known = set(build.SEMANTICS) | set(flow.FLOW)
    missing = {name for arch in NAMES for name in set(instruction_set(arch).mnemonics()) - known}
    page = (DOCS / "emulator.md").read_text()
    table = page[page.index("| not supported |") :].split("\n\n")[0]
    assert set(re.findall(r"`([A-Z0-9_]+)`", table)) == missing

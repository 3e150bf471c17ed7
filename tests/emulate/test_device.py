"""Launches on the CPU device: arguments, limits, modules, errors, counters, several threads."""

from __future__ import annotations

import os

import numpy as np
import pytest

import turingas
from tests.tools import nvrtc
from turingas.emulate import Device, DeviceError, launch
from turingas.emulate.device import patch
from turingas.errors import LaunchError

ADD = """
.arch sm_75
.kernel add
.param out 8
.param in 8
.param n 4
.param scale 4
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:1:-:2 S2R R1, SR_CTAID.X;
03:-:-:-:6 IMAD R0, R1, c[0x0][0x0], R0;
--:-:-:Y:d ISETP.GE.AND P0, PT, R0, c[0x0][0x170], PT;
--:-:-:-:5 @P0 EXIT;
--:-:-:-:6 MOV R2, 0x4;
--:-:-:-:6 IMAD.WIDE R4, R0, R2, c[0x0][0x168];
--:-:-:-:6 IMAD.WIDE R2, R0, R2, c[0x0][0x160];
--:-:0:-:2 LDG.E.SYS R6, [R4];
01:-:-:-:6 FMUL R6, R6, c[0x0][0x174];
--:0:-:-:2 STG.E.SYS [R2], R6;
--:-:-:-:5 EXIT;
.kernel other
--:-:-:-:5 EXIT;
"""


@pytest.fixture(scope="module")
def cubin():
    return turingas.assemble(ADD, arch="sm_75", filename="add.sass")


def arrays(n=100):
    return np.zeros(n, np.float32), np.arange(n, dtype=np.float32)


def test_arrays_are_used_in_place(cubin):
    out, values = arrays()
    report = launch(cubin, "add", 4, 32, [out, values, 100, 2.0])
    assert (out == 2 * values).all()
    assert report.instructions == 4 * 12
    assert report.lane_instructions == 4 * 5 * 32 + 100 * 7


def test_bytes_of_a_cubin_run_as_well(cubin):
    out, values = arrays()
    launch(cubin.to_bytes(), "add", (4, 1), (32, 1, 1), [out, values, np.int32(100), np.float32(3)])
    assert (out == 3 * values).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"args": 3}, "takes 4 arguments and was given 3"),
        ({2: 1 << 40}, r"argument 2 \(n\) of add is 1099511627776, out of range for the 4 bytes"),
        ({2: np.int64(5)}, "int64 of 8 bytes, the parameter has 4"),
        ({2: np.zeros(4)}, r"argument 2 \(n\) of add is an array, but the parameter has 4 bytes"),
        ({1: np.zeros((4, 4), np.float32)[:, ::2]}, "not contiguous.*\n.*ascontiguousarray"),
        ({1: np.array([None])}, "Python objects"),
        ({1: "x"}, "is a str"),
        ({1: 1.5}, None),
        ({3: 1e300}, "out of range for a float of 4 bytes"),
        ({3: b"123"}, "has 3 bytes, the parameter 4"),
        ({"kernel": "mul"}, "no kernel 'mul'\n.*add, other"),
        ({"kernel": None}, "has 2 kernels, so a name is needed"),
        ({"grid": 0}, "grid.x is 0"),
        ({"grid": (1, 70000)}, "grid.y is 70000; it must be 1 to 65535"),
        ({"grid": (1, 1, 1, 1)}, "is not one to three integers"),
        ({"block": (1, 1, 65)}, "block.z is 65"),
        ({"block": (1025,)}, "block.x is 1025"),
        ({"block": (64, 32)}, "has 2048 threads; the limit is 1024"),
        ({"shared": 70000}, "needs 70000 bytes of shared memory .*; sm_75 has 65536"),
        ({"shared": -1}, "-1 bytes of shared memory"),
    ],
)
def test_launches_that_no_device_would_take(cubin, change, message):
    out, values = arrays()
    args = [out, values, 100, 2.0]
    for key, value in change.items():
        if isinstance(key, int):
            args[key] = value
    if "args" in change:
        args.pop()
    options = {"kernel": "add", "grid": 4, "block": 32, "args": args, "shared": 0}
    options.update({key: value for key, value in change.items() if key in ("kernel", "grid", "block", "shared")})
    if message is None:  # a pointer that is a float is the caller's own mistake, and an address as any other
        with pytest.raises(DeviceError, match="behind the end of"):
            launch(cubin, **options)
    else:
        with pytest.raises(LaunchError, match=f"(?s){message}"):
            launch(cubin, **options)
    assert (out == 0).all()


def test_too_many_registers_for_the_block():
    source = ".arch sm_75\n.kernel k\n.registers 128\n--:-:-:-:5 EXIT;\n"
    with pytest.raises(LaunchError, match="1024 threads with 128 registers each does not fit"):
        launch(turingas.assemble(source), "k", 1, 1024, [])


def test_architectures(cubin):
    with pytest.raises(LaunchError, match="the cubin is for sm_75, the device is sm_90"):
        Device("sm_90").load(cubin)
    with pytest.raises(LaunchError, match="unknown architecture"):
        Device("sm_12")
    of_a_family = turingas.assemble(".arch sm_100f\n.kernel k\n--:-:-:-:5 EXIT;\n")
    assert Device("sm_100").load(of_a_family).kernel().name == "k"


def test_an_access_beyond_an_array_names_kernel_thread_address_line_and_instruction(cubin):
    out, values = arrays()
    with pytest.raises(DeviceError) as caught:
        launch(cubin, "add", 4, 32, [out, values, 101, 2.0])
    error = caught.value
    assert (error.block, error.thread) == ((3, 0, 0), (4, 0, 0))
    assert error.place.line == 16
    text = str(error)
    assert "add.sass:16: add+0x0080: LDG.E.SYS R6, [R4]: error: a read of 4 bytes" in text
    assert "argument 1 (in) of add" in text
    assert "block (3, 0, 0), thread (4, 0, 0)" in text
    assert error.report.instructions


def test_a_fault_tells_what_ran_before_it(cubin):
    out, values = arrays(32)
    with pytest.raises(DeviceError) as caught:
        launch(cubin, "add", 1, 32, [out, values[:20].copy(), 32, 2.0])
    report = caught.value.report
    assert (report.instructions, report.lane_instructions) == (8, 8 * 32)


def test_a_read_only_array_is_not_written(cubin):
    out, values = arrays()
    out.flags.writeable = False
    with pytest.raises(DeviceError, match="read-only|not writeable|only be read"):
        launch(cubin, "add", 4, 32, [out, values, 100, 2.0])


def test_one_array_as_two_arguments(cubin):
    _, values = arrays()
    launch(cubin, "add", 4, 32, [values, values, 100, 2.0])
    assert (values == 2 * np.arange(100)).all()


def test_threads_of_the_host_share_the_blocks(cubin):
    n = 4096
    for workers in (1, 2, 5):
        out, values = arrays(n)
        seen = []
        launch(cubin, "add", n // 32, 32, [out, values, n, 2.0], workers=workers, lanes=256,
               progress=lambda done, blocks, lanes, seen=seen: seen.append((done, blocks)))  # fmt: skip
        assert (out == 2 * values).all()
        assert seen[-1] == (n // 32, n // 32)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_error_in_one_block_ends_the_run(cubin):
    n = 4096
    out, values = np.zeros(n, np.float32), np.zeros(n // 2, np.float32)
    with pytest.raises(DeviceError) as caught:
        launch(cubin, "add", n // 32, 32, [out, values, n, 2.0], workers=2, lanes=256)
    assert caught.value.block in ((64, 0, 0), (72, 0, 0))  # both workers find one, and the first to do so is told


def test_counters(cubin):
    out, values = arrays()
    counters = launch(cubin, "add", 4, 32, [out, values, 100, 2.0], counters=True).counters
    assert counters.warps[0] == 4 and counters.lanes[0] == 128
    assert counters.lanes[4] == 28  # @P0 EXIT
    load = 8
    assert counters.requests[load] == 4
    assert counters.sectors[load] == 13  # 400 bytes in pieces of 32
    assert counters.warps[load] == 4 and counters.lanes[load] == 100


def test_variables_of_a_module(compiled):
    source = """
    __device__ int table[4] = {1, 2, 3, 4};
    __device__ int sums[4];
    __constant__ int factor[2] = {10, 100};
    extern "C" __global__ void k(int which) { sums[threadIdx.x] += table[threadIdx.x] * factor[which]; }
    """
    for arch in ("sm_75", "sm_90"):
        device = Device(arch)
        module = device.load(compiled(source, arch))
        module.launch("k", 1, 4, [1])
        module.launch("k", 1, 4, [0])
        assert module.variable("sums").view(np.int32).tolist() == [110, 220, 330, 440]
        module.variable("table").view(np.int32)[:] = 7
        module.launch("k", 1, 4, [0])
        assert module.variable("sums").view(np.int32).tolist() == [180, 290, 400, 510]
        with pytest.raises(LaunchError, match="no variable 'nothing'\n.*sums"):
            module.variable("nothing")


@pytest.fixture(scope="module")
def compiled():
    nvrtc = pytest.importorskip("tests.tools.nvrtc")
    assert nvrtc.library_path() is not None, "NVRTC is not installed: pip install .[test]"
    return nvrtc.compile_source


def test_what_the_driver_would_provide_is_named(compiled):
    source = 'extern "C" __global__ void k(int n) { if (n) free(malloc(n)); }'
    data = compiled(source, "sm_75")
    launch(data, "k", 1, 32, [0])
    with pytest.raises(DeviceError, match="calls malloc"):
        launch(data, "k", 1, 32, [1])


def test_reading_what_was_never_written(compiled):
    source = """
    __global__ void k(int* out, int which) {
        __shared__ int s[64];
        int l[8];
        if (which == 0) s[threadIdx.x] = threadIdx.x;
        if (which < 2) { out[threadIdx.x] = s[threadIdx.x]; return; }
        for (int i = 0; i < which; i++) l[(i * out[0]) & 7] = i;
        out[threadIdx.x] = l[out[1] & 7];
    }
    """
    data = compiled(source.replace("__global__", 'extern "C" __global__'), "sm_75")
    out = np.zeros(32, np.int32)
    launch(data, "k", 1, 32, [out, 0], written=True)
    launch(data, "k", 1, 32, [out, 1])
    with pytest.raises(DeviceError, match="never written") as caught:
        launch(data, "k", 1, 32, [out, 1], written=True)
    assert caught.value.place.text.startswith("LDS")
    out[:2] = 1, 7
    with pytest.raises(DeviceError, match="never written") as caught:
        launch(data, "k", 1, 32, [out, 3], written=True)
    assert "LDL" in caught.value.place.text


def test_the_stack_of_a_recursion(compiled):
    source = """
    __device__ __noinline__ int sum(int n, volatile int* p) {
        int here[8];
        for (int i = 0; i < 8; i++) here[i] = n + i + p[0];
        return n ? sum(n - 1, p) + here[n & 7] : here[p[0]];
    }
    extern "C" __global__ void k(int* out, int n) { out[threadIdx.x] = sum(n, out + threadIdx.x); }
    """
    data = compiled(source, "sm_75")

    def depth(n, **options):
        out = np.zeros(32, np.int32)
        launch(data, "k", 1, 32, [out, n], **options)
        return out

    expected = sum(n + (n & 7) for n in range(1, 101))
    assert (depth(100, stack=16384) == expected).all()
    with pytest.raises(DeviceError):
        depth(100)


@pytest.mark.parametrize("arch, most", [("sm_75", 64), ("sm_80", 163), ("sm_86", 99)])
def test_all_of_shared_memory_and_not_a_byte_more(arch, most):
    """What the system keeps of an SM's memory beside it is nothing that a block could ask for."""
    cubin = turingas.assemble(f".arch {arch}\n.kernel k\n--:-:-:Y:5 EXIT;\n")
    assert launch(cubin, "k", 1, 32, [], most << 10).instructions == 1
    with pytest.raises(LaunchError, match=f"has {most << 10} a block"):
        launch(cubin, "k", 1, 32, [], (most << 10) + 1)


def test_a_cubin_without_variables():
    cubin = turingas.assemble(".arch sm_75\n.kernel k\n--:-:-:Y:5 EXIT;\n")
    with pytest.raises(LaunchError, match="no variable 'x'\nhint: it has none at all"):
        Device("sm_75").load(cubin).variable("x")


@pytest.mark.parametrize("kind, offset", [("32", 13), ("64", 9), ("ABS32_LO_32", 9), ("32", 1 << 63), ("32", -4)])
def test_relocations_stay_in_their_section(kind, offset):
    data = bytearray(16)
    with pytest.raises(LaunchError, match="out of range"):
        patch(data, offset, kind, 1, 0)
    assert not any(data)


def test_a_register_that_the_kernel_does_not_declare():
    cubin = turingas.assemble(".arch sm_75\n.kernel k\n--:-:-:-:4 MOV R2, RZ;\n--:-:-:Y:5 EXIT;\n")
    cubin.kernels[0].words[0] = turingas.encode("--:-:-:-:4 MOV R200, RZ;", "sm_75")[0]
    with pytest.raises(DeviceError, match="MOV R200, RZ: error: R200 is out of range: the kernel has"):
        launch(cubin, "k", 1, 32, [])


@pytest.mark.parametrize("count", ["0x30", "UR4", "0x28"])
def test_registers_that_a_warp_asks_for(count):
    source = f"""
.arch sm_90
.kernel k
.registers 24
--:-:-:Y:d UMOV UR4, 0x30;
--:-:0:-:2 USETMAXREG.TRY_ALLOC.CTAPOOL UP0, {count};
01:-:-:-:6 MOV R40, RZ;
--:-:-:-:5 EXIT;
"""
    with pytest.raises(DeviceError, match="R40 is used, and the warp has 24 registers now"):  # nobody has given any
        launch(turingas.assemble(source), "k", 1, 32, [])


def test_parameters_through_a_pointer():
    source = """
.arch sm_75
.kernel k
.param out 8
.param n 4
--:-:-:-:2 MOV R2, c[0x0][0x40];
--:-:-:-:2 MOV R3, c[0x0][0x44];
--:-:-:-:2 MOV R4, c[0x0][0x160];
--:-:-:-:9 MOV R5, c[0x0][0x164];
--:-:0:-:2 LD.E.SYS R6, [R2+0x168];
01:-:-:-:2 STG.E.SYS [R4], R6;
--:-:-:-:5 EXIT;
"""
    out = np.zeros(1, np.int32)
    launch(turingas.assemble(source), "k", 1, 1, [out, 77])
    assert out[0] == 77
    with pytest.raises(DeviceError, match="constant bank 0"):
        launch(turingas.assemble(source.replace("[R4], R6", "[R2], R6")), "k", 1, 1, [out, 77])


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_constants_through_a_pointer(compiled, arch):
    """-G keeps the pointer: the code adds the generic address of bank 3. A __grid_constant__ parameter is in bank 0."""
    source = """
    struct S { float a[16]; };
    __constant__ float coef[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    __device__ __noinline__ float nth(const float* p, int i) { return p[i]; }
    extern "C" __global__ void constants(float* out) { out[threadIdx.x] = nth(coef, threadIdx.x & 7); }
    extern "C" __global__ void parameter(float* out, const __grid_constant__ S s) {
        out[threadIdx.x] = nth(s.a, threadIdx.x & 15);
    }"""
    data = compiled(source, arch, ("-G",))
    out = np.zeros(32, np.float32)
    launch(data, "constants", 1, 32, [out])
    assert (out == np.arange(32) % 8 + 1).all()
    launch(data, "parameter", 1, 32, [out, np.arange(16, dtype=np.float32).tobytes()])
    assert (out == np.arange(32) % 16).all()


def test_cores_are_known_where_the_system_does_not_tell_affinity(cubin, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # macOS, Windows
    launch(cubin, "other", 4096, 64, [])


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("options", [(), ("-rdc=true",)])
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_variables_and_constants_of_relocatable_code(arch, options):
    """nvcc -rdc=true: variables lie in sections of another type, operands c[3][...] are left to the linker."""
    source = """
    __device__ int count;
    __device__ int table[3] = {5, 6, 7};
    __constant__ int fixed[2] = {9, 10};
    extern "C" __global__ void k(float *x) {
        x[threadIdx.x] *= 2;
        atomicAdd(&count, table[1]);
        x[0] = count + fixed[1];
    }"""
    module = Device(arch).load(turingas.Cubin.from_bytes(nvrtc.compile_source(source, arch, options)))
    x = np.arange(32, dtype=np.float32)
    module.launch("k", 1, 32, [x])
    assert x[:3].tolist() == [202, 2, 4] and module.variable("count").view(np.int32).tolist() == [192]

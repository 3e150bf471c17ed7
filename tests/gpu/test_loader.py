"""The loader on a real GPU (sm_90): launches, arrays of other libraries, streams, graphs, faults, leaks, speed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import loader
import turingas
from loader import timing
from loader.cuda import Buffer, Graph, Stream
from loader.cuda.prepared import configuration
from turingas.errors import LaunchError

pytestmark = pytest.mark.gpu
ARCHS = ("sm_90",)

SOURCE = """
.arch sm_90
# out[i] = scale * in[i] for i < n
.kernel scale
.param out 8
.param in 8
.param n 4
.param factor 4
--:-:0:Y:2   S2R R0, SR_TID.X;
--:-:1:Y:2   S2R R1, SR_CTAID.X;
--:-:-:Y:12  ULDC.64 UR4, c[0x0][0x208];
03:-:-:Y:6   IMAD R0, R1, c[0x0][0x0], R0;
--:-:-:Y:13  ISETP.GE.AND P0, PT, R0, c[0x0][0x220], PT;
--:-:-:Y:5   @P0 EXIT;
--:-:-:Y:6   MOV R8, 0x4;
--:-:-:Y:6   IMAD.WIDE R4, R0, R8, c[0x0][0x218];
--:-:-:Y:6   IMAD.WIDE R2, R0, R8, c[0x0][0x210];
--:-:0:Y:2   LDG.E R6, desc[UR4][R4.64];
01:-:-:Y:6   FMUL R6, R6, c[0x0][0x224];
--:0:-:Y:2   STG.E desc[UR4][R2.64], R6;
--:-:-:Y:5   EXIT;
# counts down n, at eight cycles or so each, then out[0] = 7
.kernel spin
.param out 8
.param n 4
--:-:-:Y:12  ULDC.64 UR4, c[0x0][0x208];
--:-:-:Y:6   MOV R0, c[0x0][0x218];
--:-:-:Y:6   MOV R2, c[0x0][0x210];
--:-:-:Y:6   MOV R3, c[0x0][0x214];
--:-:-:Y:6   MOV R4, 0x7;
again:
--:-:-:Y:6   IADD3 R0, R0, -0x1, RZ;
--:-:-:Y:13  ISETP.NE.AND P0, PT, R0, RZ, PT;
--:-:-:Y:5   @P0 BRA again;
--:0:-:Y:2   STG.E desc[UR4][R2.64], R4;
--:-:-:Y:5   EXIT;
# writes 7 to the shared memory at place, reads it again, gives it to out[0]
.kernel last
.param out 8
.param place 4
--:-:-:Y:12  ULDC.64 UR4, c[0x0][0x208];
--:-:-:Y:6   MOV R0, c[0x0][0x218];
--:-:-:Y:6   MOV R2, c[0x0][0x210];
--:-:-:Y:6   MOV R3, c[0x0][0x214];
--:-:-:Y:6   MOV R4, 0x7;
--:0:-:Y:2   STS [R0], R4;
01:-:0:Y:2   LDS R5, [R0];
01:0:-:Y:2   STG.E desc[UR4][R2.64], R5;
--:-:-:Y:5   EXIT;
# the types of parameters, byte by byte: out gets what lies in the parameter area behind it
.kernel params
.param out 8
.param a 4
.param b 4
.param c 8
.param d 8
--:-:0:Y:2   S2R R0, SR_TID.X;
--:-:-:Y:12  ULDC.64 UR4, c[0x0][0x208];
01:-:-:Y:6   SHF.L.U32 R1, R0, 0x2, RZ;
--:-:0:Y:2   LDC R6, c[0x0][R1+0x218];
--:-:-:Y:6   MOV R8, 0x4;
--:-:-:Y:6   IMAD.WIDE R2, R0, R8, c[0x0][0x210];
01:0:-:Y:2   STG.E desc[UR4][R2.64], R6;
--:-:-:Y:5   EXIT;
"""
N = 1 << 16
SPIN = 2_000_000  # 10 ms or so


def assembled():
    return turingas.assemble(SOURCE, filename="loader.sass")


def check_kernels(module, send, fetch):
    """Launches of all kinds; on the CPU device in tests/loader/test_module.py."""
    values = np.arange(N, dtype=np.float32)
    out, source = send(np.zeros(N, np.float32)), send(values)
    module.kernel("scale").launch((-(-N // 128),), (128, 1), out, source, N, 1.5)
    assert (fetch(out) == np.float32(1.5) * values).all()
    words = send(np.zeros(6, np.uint32))
    module.kernel("params").launch(1, 6, words, -2, np.float32(0.5), 0.25, b"abcdefgh")
    expected = np.concatenate([np.array(v).view("u4").reshape(-1) for v in (
        np.int32(-2), np.float32(0.5), np.array([0.25]), np.frombuffer(b"abcdefgh", "u8"))])  # fmt: skip
    assert (fetch(words) == expected).all()
    for size in (1024, 48 * 1024, 48 * 1024 + 4, 200 * 1024, 227 * 1024):
        out = send(np.zeros(1, np.uint32))
        module.kernel("last").launch(1, 1, out, size - 4, shared=size)
        assert fetch(out)[0] == 7
    with pytest.raises(LaunchError, match="bytes of shared memory"):
        module.kernel("last").launch(1, 1, out, 0, shared=229 * 1024)


@pytest.fixture
def module(gpu):
    with loader.load(assembled(), "cuda:0") as found:
        yield found


def test_the_kernels(module):
    check_kernels(module, Buffer.of, Buffer.numpy)


def test_the_first_gpu_is_the_default(gpu):
    assert "cuda:0" in loader.devices()
    with loader.load(assembled()) as module:
        assert module.device == "cuda:0"


def test_another_architecture(gpu):
    cubin = turingas.assemble(".arch sm_75\n.kernel k\n--:-:-:-:5 EXIT;\n")
    with pytest.raises(LaunchError, match=rf"the cubin is for sm_75, cuda:0 \({gpu.name}\) is sm_90\n.*device='cpu'"):
        loader.load(cubin, "cuda:0")


def launch_scale(module, out, values, factor=2.0, **options):
    module.kernel("scale").launch(-(-N // 128), 128, out, values, N, factor, **options)


def test_torch_on_its_current_stream(module):
    torch = pytest.importorskip("torch")
    with torch.cuda.stream(torch.cuda.Stream()):
        values, out = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
        module.kernel("spin").launch(1, 1, out, SPIN)  # the stream is busy now
        values.fill_(3)
        launch_scale(module, out, values)
        assert not torch.cuda.current_stream().query()  # launch did not wait
        doubled = out + 1  # and this comes behind it
    torch.cuda.synchronize()
    assert (doubled == 7).all()
    for wrong, message in ((values.cpu(), "in the host's memory"), (values[::2], "not contiguous")):
        with pytest.raises(LaunchError, match=rf"argument 1 \(in\) of scale is .*{message}"):
            launch_scale(module, out, wrong)
    parameter = torch.nn.Parameter(torch.ones(N, device="cuda"))
    launch_scale(module, out, parameter, 5.0)
    assert (out == 5).all()
    buffer = Buffer.of(np.arange(4, dtype=np.float32))
    assert torch.as_tensor(buffer, device="cuda").data_ptr() == buffer.address


def test_a_graph_of_torch(module):
    torch = pytest.importorskip("torch")
    values, out = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    launch_scale(module, out, values)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch_scale(module, out, values, 9.0)
    torch.cuda.synchronize()
    assert (out == 2).all()
    graph.replay()
    torch.cuda.synchronize()
    assert (out == 9).all()


def test_cupy_on_its_current_stream(module):
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        values, out = cupy.zeros(N, "f4"), cupy.zeros(N, "f4")
        values.fill(1)  # CuPy compiles a kernel for it
        module.kernel("spin").launch(1, 1, out, SPIN)
        values.fill(3)
        launch_scale(module, out, values)
        assert not stream.done
        assert (out.get() == 6).all()
    with pytest.raises(LaunchError, match="not contiguous"):
        launch_scale(module, out[::2], values)


def test_jax(module, monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    values, out = jax.numpy.arange(N, dtype="float32"), Buffer(N)
    launch_scale(module, out, values + 1)
    assert (out.numpy() == 2 * (np.arange(N) + 1)).all()


def test_streams_and_a_graph(module):
    out, values = Buffer(N).fill(0), Buffer.of(np.ones(N, np.float32))
    with Stream() as stream:
        module.kernel("spin").launch(1, 1, out, SPIN, stream=stream)
        launch_scale(module, out, values, 4.0, stream=stream)
        assert (out.numpy(stream) == 4).all()

    def record(stream):
        launch_scale(module, out, values, 2.0, stream=stream)
        launch_scale(module, out, out, 3.0, stream=stream)

    with Graph(record) as graph:
        assert (out.numpy() == 4).all()
        graph.launch()
        assert (out.numpy() == 6).all()


def test_several_threads(module):
    kernel, wrong, done = module.kernel("scale"), [], []

    def work(factor):
        with Stream() as stream, Buffer(N) as out, Buffer.of(np.ones(N, np.float32)) as values:
            for step in range(50):
                kernel.launch(-(-N // 128), 128, out, values, N, float(factor + step), stream=stream)
                if not (out.numpy(stream) == factor + step).all():
                    wrong.append(factor)
        done.append(factor)  # not where an exception ended the thread

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(done) == 8


def test_a_module_closed_while_its_kernel_runs(gpu):
    out = Buffer(1, np.uint32).fill(0)
    with loader.load(assembled(), "cuda:0") as module:
        module.kernel("spin").launch(1, 1, out, SPIN)
    gpu.synchronize()
    assert out.numpy()[0] == 7


FAULT = """
import sys
import loader
from loader.cuda import Buffer, ContextLost, CudaError
from tests.gpu.test_loader import assembled
module = loader.load(assembled(), "cuda:0")
out, last = Buffer(1), module.kernel("last")
module.kernel("scale").launch(1, 32, 64, 64, 32, 1.0)
try:
    module.synchronize()
except CudaError as error:
    print(error.name, error.code, error.kernel, error.lost, "|", error)
for use in (module.synchronize, out.numpy, lambda: last.launch(1, 1, out, 0)):
    try:
        use()
    except ContextLost as error:
        print("lost", error)
module.close()
"""


def test_a_fault_and_the_lost_context(gpu):
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", FAULT], cwd=root, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    first, *others = run.stdout.splitlines()
    assert first.startswith("CUDA_ERROR_ILLEGAL_ADDRESS 700 scale True | scale: CUDA_ERROR_ILLEGAL_ADDRESS (700): an")
    lost = [line for line in others if line.startswith("lost")]
    assert len(lost) == 3
    assert all("is lost since CUDA_ERROR_ILLEGAL_ADDRESS (700), when scale had been launched" in line for line in lost)


def resident():
    """Bytes of this process in memory."""
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.alone
def test_ten_thousand_loads_and_unloads(gpu):
    cubin, out, values = assembled(), Buffer(N), Buffer.of(np.ones(N, np.float32))

    def cycles(count):
        for _ in range(count):
            with loader.load(cubin, "cuda:0") as module:
                launch_scale(module, out, values)
        gpu.synchronize()

    cycles(200)
    free, host = gpu.call("cuMemGetInfo")[0], resident()
    cycles(10_000)
    print(f"\nGPU {free - gpu.call('cuMemGetInfo')[0]} bytes, host {resident() - host} bytes after 10,000 cycles")
    assert gpu.call("cuMemGetInfo")[0] >= free
    assert resident() - host < 10_000 * 400


@pytest.mark.alone
@pytest.mark.parametrize("library", ["buffer", "torch", "cupy"])
def test_a_launch_takes_microseconds(module, library):
    """Beyond what cuLaunchKernelEx itself takes; the best of some batches, for the machine has other things to do."""
    if library == "buffer":
        out, values = Buffer(N), Buffer(N)
    else:
        made = pytest.importorskip(library)
        out, values = (made.zeros(N, **({"device": "cuda"} if library == "torch" else {})) for _ in range(2))
        if library == "cupy":
            out, values = out.astype("f4"), values.astype("f4")
    kernel, driver = module.kernel("scale"), module.gpu.driver
    kernel.launch(1, 128, out, values, N, 2.0)
    config = configuration(module.gpu, (1, 1, 1, 128, 1, 1, 0))
    ours, bare = [], []
    for _ in range(20):
        for times, launch in (
            (ours, lambda: kernel.launch(1, 128, out, values, N, 2.0)),
            (bare, lambda: driver.cuLaunchKernelEx(config, kernel.handle, kernel._area.table, 0)),
        ):
            start = time.perf_counter()
            for _ in range(400):  # fewer than the driver queues before it waits
                launch()
            times.append((time.perf_counter() - start) / 400)
            module.synchronize()
    whole, least = 1e6 * min(ours), 1e6 * min(bare)
    print(f"\n{library}: {whole:.2f} microseconds a launch, {least:.2f} of them in cuLaunchKernelEx")
    assert whole - least < (10 if library == "cupy" else 6)


@pytest.mark.alone
def test_timing(module):
    """A kernel takes longer when its input is in memory than in the L2, and as long as CUDA says in all."""
    size = 1 << 22
    out, values = Buffer(size), Buffer(size)

    def launch():
        module.kernel("scale").launch(size // 1024, 1024, out, values, size, 2.0)

    cold, warm = timing.measure(launch), timing.measure(launch, flush=False)
    print(f"\ncold {cold}\nwarm {warm}")
    assert cold.median > warm.median > 0.002 and cold.spread < 0.2
    assert 8 * size / (cold.median * 1e-3) < 4.9e12  # the memory of an H200 gives 4.8 TB/s
    assert cold.before is not None and 200 < cold.before.sm < 2500
    spin = timing.measure(lambda: module.kernel("spin").launch(1, 1, out, SPIN), runs=5, stream=0)
    batch = timing.measure(lambda: module.kernel("spin").launch(1, 1, out, SPIN // 10), runs=5, batch=10)
    print(f"spin {spin}\nbatch {batch}")
    assert abs(10 * batch.median / spin.median - 1) < 0.05
    pairs = [(size // 1024, 1024, Buffer(size), Buffer(size), size, 2.0) for _ in range(4)]  # 128 MB together
    rotated = timing.measure(module.kernel("scale").launch, pairs)
    print(f"rotated {rotated}")
    assert rotated.median > warm.median

"""The loader on a GPU, as far as it can be seen without one: over a driver that runs kernels on the CPU device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import loader
import turingas
from loader import cuda, timing
from loader.cuda import Buffer, CudaError, Graph, Stream
from tests.docs.pages import DOCS, ROOT, listings
from tests.loader.conftest import N, arrays
from tests.loader.driver import Driver
from turingas.errors import LaunchError, LaunchWarning
from turingas.isa.arch import ARCHS


def test_a_warning_names_the_callers_line(driver):
    source = ".kernel k\n.param out 8\n.param a 4\nMOV R0, c[0x0][0x168];\nFADD R0, R0, 1;\nMOV R2, c[0x0][0x160];\n"
    source += "MOV R3, c[0x0][0x164];\nSTG.E.SYS [R2], R0;\nEXIT;\n"
    kernel = loader.load(turingas.assemble(source), "cuda:0").kernel()
    with pytest.warns(LaunchWarning, match="reads its bits as a float") as seen:
        kernel.launch(1, 1, Buffer(1), 2)
    assert [one.filename for one in seen] == [__file__]


def test_devices_and_the_default(driver, cubin):
    assert loader.devices() == ["cpu", "cuda:0", "cuda:1"]
    assert [loader.load(cubin, device).device for device in (None, "cuda", "cuda:1", "cpu")] == [
        "cuda:0", "cuda:0", "cuda:1", "cpu",
    ]  # fmt: skip


@pytest.mark.parametrize("grid", [2, (2,), [2, 1], np.int64(2)])
def test_a_launch(driver, cubin, grid):
    with loader.load(cubin) as module, arrays()[0] as out, arrays()[1] as values:
        assert module.kernel("add").launch(grid, (32, 1), out, values, N, 2.0) is None
        assert (out.numpy() == 2 * np.arange(N)).all()
    assert out.freed and values.freed


CLUSTERS = """
.arch sm_90
.kernel rank
<params>
out, 8
</params>
S2R R0, SR_CgaCtaId;
S2R R2, SR_CTAID.X;
MOV R4, 0x4;
IMAD.WIDE.U32 R2, R2, R4, out;
STG.E [R2], R0;
EXIT;
"""


def test_clusters_and_cooperative_launches(install):
    """What the driver is told; and what no driver would take is told before."""
    gpus = install(Driver(1, 9, 0))
    kernel, out = loader.load(turingas.assemble(CLUSTERS)).kernel(), Buffer(16, np.int32)
    for cluster, cooperative in ((4, False), ([4, 1, 1], False), (16, True), (None, True)):
        out.fill(0xFF)
        kernel.launch(16, 1, out, cluster=cluster, cooperative=cooperative)
        size = {None: 1, 16: 16}.get(cluster if isinstance(cluster, int | None) else 4, 4)
        assert out.numpy().tolist() == [n % size for n in range(16)]
    assert [told.get("cluster") for told in gpus.told] == [(4, 1, 1), (4, 1, 1), (16, 1, 1), None]
    assert [told.get("cooperative") for told in gpus.told] == [None, None, True, True]
    with pytest.raises(LaunchError, match="must be a multiple of 3"):
        kernel.launch(16, 1, out, cluster=3)


@pytest.mark.parametrize("able", [True, False])
def test_a_launch_that_may_begin_early(install, cubin, monkeypatch, able):
    """Where the architecture can, as sm_90 can (and here sm_75), the driver is told so; else nothing changes."""
    assert [name for name, one in ARCHS.items() if one.early_launches] == list(ARCHS)[list(ARCHS).index("sm_90") :]
    monkeypatch.setitem(ARCHS, "sm_75", replace(ARCHS["sm_75"], early_launches=able))
    driver = install(Driver())
    kernel, stream = loader.load(cubin).kernel("add"), Stream()
    for scale, options in ((2.0, {"early": True}), (3.0, {"early": True, "stream": stream}), (4.0, {"early": False})):
        for _ in range(2):
            out, values = arrays()
            kernel.launch(2, 32, out, values, N, scale, **options)
            stream.synchronize()
            assert (out.numpy() == scale * np.arange(N)).all()
    assert driver.early == (4 if able else 0) and len(driver.launches) == 6
    assert [launch[3] for launch in driver.launches] == [0, 0, stream.handle, stream.handle, 0, 0]
    here = [np.zeros(N, np.float32), np.ones(N, np.float32)]
    loader.load(cubin, "cpu").kernel("add").launch(2, 32, *here, N, 2.0, early=True)
    assert (here[0] == 2).all()


@pytest.mark.parametrize(
    ("n", "scale"), [(N, 2), (np.int32(N), np.float32(2)), (np.uint32(N), b"\0\0\0\x40"), (N, np.float32(2).view("i4"))]
)
def test_numbers_by_the_size_of_their_parameters(driver, cubin, n, scale):
    out, values = arrays()
    loader.load(cubin).kernel("add").launch(2, 32, out, values, n, scale)
    factor = 2 if not isinstance(scale, int) else np.int32(2).view(np.float32)
    assert (out.numpy() == factor * np.arange(N, dtype=np.float32)).all()


def test_a_pointer_may_be_a_number(driver, cubin):
    out, values = arrays()
    loader.load(cubin).kernel("add").launch(2, 32, out.address, np.uint64(values.address), N, 3.0)
    assert (out.numpy() == 3 * np.arange(N)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"args": 3}, "takes 4 arguments and was given 3\n.*scale \\(4 bytes\\)"),
        ({2: 1 << 40}, r"argument 2 \(n\) of add is 1099511627776, out of range for the 4 bytes"),
        ({2: -(1 << 31) - 1}, "out of range for the 4 bytes"),
        ({2: np.int64(5)}, "int64 of 8 bytes, the parameter has 4"),
        ({2: np.zeros(4)}, r"argument 2 \(n\) of add is an array, but the parameter has 4 bytes"),
        ({2: "x"}, r"argument 2 \(n\) of add is a str"),
        ({3: 1e300}, r"argument 3 \(scale\) of add is 1e\+300, out of range for a float"),
        ({3: b"123"}, "has 3 bytes, the parameter 4"),
        ({1: np.arange(N)}, r"argument 1 \(in\) of add is a ndarray in the host's memory.*\n.*loader.cuda.Buffer"),
        ({1: None}, r"argument 1 \(in\) of add is a NoneType"),
        ({"grid": 0}, "grid.x is 0"),
        ({"grid": (1, 70000)}, "grid.y is 70000; it must be 1 to 65535"),
        ({"block": (1, 1, 65)}, "block.z is 65"),
        ({"block": (64, 32)}, "has 2048 threads; the limit is 1024"),
        ({"shared": 70000}, "needs 70000 bytes of shared memory .*; sm_75 has 65536"),
        ({"shared": -1}, "-1 bytes of shared memory"),
        ({"shared": 1.5}, "1.5 bytes of shared memory"),
        ({"counters": True}, "counters: only the CPU device"),
        ({"stream": "fast"}, "stream is a str"),
    ],
)
def test_what_is_refused_before_anything_runs(driver, cubin, change, message):
    kernel = loader.load(cubin).kernel("add")
    for before in (False, True):  # the first launch of its kind, and one that was prepared for
        out, values = arrays()
        args, options = [out, values, N, 2.0], {"grid": 2, "block": 32}
        if before:
            kernel.launch(2, 32, *args)
            out.fill(0)
        for key, value in change.items():
            if isinstance(key, int):
                args[key] = value
            elif key != "args":
                options[key] = value
        launched = len(driver.launches)
        with pytest.raises(LaunchError, match=f"(?s){message}"):
            kernel.launch(options.pop("grid"), options.pop("block"), *args[: change.get("args")], **options)
        assert len(driver.launches) == launched and not out.numpy().any()


def test_a_block_that_the_registers_do_not_allow(driver):
    source = ".arch sm_75\n.kernel k\n.registers 128\n--:-:-:-:5 EXIT;\n"
    with pytest.raises(LaunchError, match="a block of 1024 threads; k can have 512 on sm_75\n.*128 registers"):
        loader.load(turingas.assemble(source)).kernel().launch(1, 1024)


def test_an_array_on_another_gpu(driver, cubin):
    out, values = arrays("cuda:1")
    with pytest.raises(LaunchError, match=r"argument 0 \(out\) of add is on cuda:1, the kernel on cuda:0"):
        loader.load(cubin, "cuda:0").kernel("add").launch(2, 32, out, values, N, 2.0)
    loader.load(cubin, "cuda:1").kernel("add").launch(2, 32, out, values, N, 2.0)
    assert (out.numpy() == 2 * np.arange(N)).all()
    with pytest.raises(LaunchError, match="is on cuda:1, the kernel on the CPU device"):
        loader.load(cubin, "cpu").kernel("add").launch(2, 32, out, values, N, 2.0)


def test_more_shared_memory_is_asked_for_once(driver, cubin):
    kernel = loader.load(cubin).kernel("other")
    for shared in (1024, 48 * 1024):
        kernel.launch(1, 1, shared=shared)
    assert not driver.calls["cuFuncSetAttribute"]
    for shared in (50_000, 65536, 49_153):
        kernel.launch(1, 1, shared=shared)
    assert driver.calls["cuFuncSetAttribute"] == 1
    assert driver.launches[-1][2] == 49_153


def test_nothing_hidden_in_a_launch(driver, cubin):
    """Of the driver's functions a launch calls two."""
    out, values = arrays()
    kernel = loader.load(cubin).kernel("add")
    driver.thread.stack = [1000]  # the context is current, as it is where PyTorch or the runtime API has been used
    kernel.launch(2, 32, out, values, N, 2.0)
    driver.calls.clear()
    kernel.launch(2, 32, out, values, N, 2.0)
    assert driver.calls == {"cuCtxGetCurrent": 1, "cuLaunchKernelEx": 1}


def test_types_that_take_turns(driver, cubin, monkeypatch):
    """With the same grid: each mix of types is prepared once, and no other's numbers are taken for its own."""
    out, values = arrays()
    kernel = loader.load(cubin).kernel("add")
    mixes = [(out, values, N, 2.0), (out, values, np.int32(N), 3.0), (out, values, N, np.float32(4)),
             (out, values.address, N, 5.0)]  # fmt: skip
    for args in mixes:
        kernel.launch(2, 32, *args)
        assert (out.numpy() == float(args[3]) * np.arange(N)).all()
    monkeypatch.setattr(kernel, "_sizes", None)
    for args in mixes[::-1] + mixes:
        kernel.launch(2, 32, *args)
        assert (out.numpy() == float(args[3]) * np.arange(N)).all()
    for args, message in (((out, values, N), "takes 4 arguments and was given 3"),
                          ((out, values, N, 2.0, 1), "takes 4 arguments and was given 5")):  # fmt: skip
        monkeypatch.undo()
        with pytest.raises(LaunchError, match=message):
            kernel.launch(2, 32, *args)


def test_grids_and_streams_that_take_turns(driver, cubin):
    """Each launch has its own, though what is written for the arguments is the same."""
    out, values = arrays()
    kernel, random = loader.load(cubin).kernel("add"), np.random.default_rng(0)
    with Stream() as one, Stream() as two:
        for _ in range(60):
            grid, stream = int(random.integers(2, 6)), (None, one, two, one.handle)[random.integers(4)]
            n = np.int32(N) if random.integers(2) else N
            kernel.launch(grid, 32, out.fill(0), values, n, 2.0, stream=stream)
            assert driver.launches[-1][1][0] == grid
            assert driver.launches[-1][3] == (0 if stream is None else getattr(stream, "handle", stream))
            assert (out.numpy() == 2 * np.arange(N)).all()


def test_the_callers_context_stays(driver, cubin):
    out, values = arrays("cuda:1")
    driver.thread.stack = [1000]
    loader.load(cubin, "cuda:1").kernel("add").launch(2, 32, out, values, N, 2.0)
    assert driver.thread.stack == [1000]


def test_contexts_that_do_not_compare(driver, cubin, monkeypatch):
    """As objects of old cuda-python, which are equal to themselves alone."""

    class Context:
        def __init__(self, number):
            self.number = number

        def __int__(self):
            return self.number

    number = driver.do_cuCtxGetCurrent
    monkeypatch.setattr(driver, "do_cuCtxGetCurrent", lambda: Context(number()), raising=False)
    monkeypatch.setattr(driver, "here", lambda: driver.devices[number() - 1000])
    kernel, (out, values) = loader.load(cubin).kernel("add"), arrays()
    for stack in ([0], [1000], [1001]):
        driver.thread.stack = stack[:]
        kernel.launch(2, 32, out.fill(0), values, N, 2.0)
        assert driver.thread.stack == stack and (out.numpy() == 2 * np.arange(N)).all()


# ---- architectures, drivers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "gpu", "runs"),
    [("sm_75", (7, 5), True), ("sm_70", (7, 5), True), ("sm_75", (7, 0), False), ("sm_80", (8, 6), True),
     ("sm_80", (9, 0), False), ("sm_90a", (9, 0), True), ("sm_90", (9, 0), True), ("sm_100f", (10, 3), True),
     ("sm_103f", (10, 0), False), ("sm_100f", (11, 0), False), ("sm_120f", (12, 1), True), ("sm_100a", (10, 3), False)],
)  # fmt: skip
def test_which_cubins_a_gpu_runs(install, arch, gpu, runs):
    install(Driver(1, *gpu))
    assert cuda.device(0).runs(arch) is runs


def test_a_cubin_for_another_architecture(install, cubin):
    install(Driver(1, 9, 0))
    with pytest.raises(LaunchError, match=r"for sm_75, cuda:0 \(Fake 0\) is sm_90\n.*device='cpu'"):
        loader.load(cubin)
    assert loader.load(cubin, "cpu").device == "cpu"


def test_a_driver_that_is_too_old(driver, cubin):
    driver.version = 11080
    driver.fails["cuModuleLoadData"] = 200
    with pytest.raises(CudaError, match="driver is of CUDA 11.8, the cubin of CUDA 12.9: CUDA_ERROR_INVALID_IMAGE"):
        loader.load(cubin)
    driver.version = 13000
    with pytest.raises(CudaError, match="^CUDA_ERROR_INVALID_IMAGE \\(200\\): what 200 means \\(cuModuleLoadData on"):
        loader.load(cubin)


def test_cuda_python_before_12_6(install, cubin):
    install(Driver(), "cuda.cuda")
    assert loader.load(cubin).device == "cuda:0"


def test_no_gpu_no_driver_no_cuda_python(install, cubin, monkeypatch):
    install(Driver(0))
    assert loader.devices() == ["cpu"] and loader.load(cubin).device == "cpu"
    with pytest.raises(LaunchError, match="no device 'cuda:0': the driver does not start: CUDA_ERROR_NO_DEVICE: what"):
        loader.load(cubin, "cuda:0")
    install(Driver(1)).missing = RuntimeError("libcuda.so not found")
    assert loader.devices() == ["cpu"]
    with pytest.raises(LaunchError, match="there is no driver: libcuda.so not found\n.*device='cpu'"):
        loader.load(cubin, "cuda:0")
    install(None)  # import raises ImportError then
    assert loader.devices() == ["cpu"]
    with pytest.raises(LaunchError, match="cuda-python is not installed.*\n.*pip install cuda-python"):
        loader.load(cubin, "cuda:0")
    install(Driver(2))
    with pytest.raises(LaunchError, match="no device 'cuda:2'\n.*there are: cpu, cuda:0, cuda:1"):
        loader.load(cubin, "cuda:2")
    for name in ("gpu", "cuda:x", "cuda:-1", ""):
        with pytest.raises(LaunchError, match="there is no device"):
            loader.load(cubin, name)


def test_a_graph(driver, cubin):
    kernel = loader.load(cubin).kernel("add")
    out, values = arrays()

    def record(stream):
        kernel.launch(2, 32, out, values, N, 2.0, stream=stream)
        kernel.launch(2, 32, values, out, N, 0.5, stream=stream)
        kernel.launch(2, 32, out, values, N, 5.0, stream=stream)

    with Graph(record) as graph:
        assert not out.numpy().any()
        graph.launch()
        assert (out.numpy() == 5 * np.arange(N)).all()
    with pytest.raises(LaunchError, match="closed"):
        graph.launch()
    held = len(driver.handles)
    with pytest.raises(ZeroDivisionError):
        Graph(lambda stream: 1 / 0)
    assert not driver.streams and not driver.captured and len(driver.handles) == held + 1  # the number of its stream


def test_timing(driver, cubin):
    kernel = loader.load(cubin).kernel("add")
    out, values = arrays()
    held = len(driver.handles), driver.calls["cuMemFree"]
    found = timing.measure(lambda: kernel.launch(2, 32, out, values, N, 2.0), runs=5, warmup=2, batch=3)
    assert len(found.times) == 5 and len(driver.launches) == 2 + 1 + 5 * 3
    assert 0 < min(found.times) <= found.median <= max(found.times) and found.spread >= 0
    assert (len(driver.handles), driver.calls["cuMemFree"]) == (held[0], held[1] + 1)
    assert "ms (" in str(found) and "5 runs" in str(found)
    fills = driver.calls["cuMemsetD8Async"]
    other = Buffer(N, np.float32)
    inputs = [(2, 32, out, values, N, 2.0), (2, 32, other, values, N, 3.0)]
    timing.measure(kernel.launch, inputs, runs=4, warmup=1, flush=True)
    assert driver.calls["cuMemsetD8Async"] >= fills + 4
    assert (out.numpy() == 2 * np.arange(N)).all() and (other.numpy() == 3 * np.arange(N)).all()
    with pytest.raises(LaunchError, match="at least 2, 1 and 1"):
        timing.measure(lambda: None, runs=1)


def test_figures_of_a_timing():
    found = timing.Timing((4.0, 1.0, 2.0, 3.0, 5.0), timing.Clocks(1500, 3201), timing.Clocks(1980, 3201))
    assert (found.median, found.quartiles, found.spread) == (3.0, (2.0, 4.0), 2 / 3)
    assert str(found) == "3 ms (1 to 5, 5 runs), SM 1980 MHz, memory 3201 MHz (SM 1500 MHz before)"


def test_listings_of_the_document(driver, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = (ROOT / "examples" / "copy.sass").read_text()
    (tmp_path / "copy.cubin").write_bytes(turingas.assemble(source, arch="sm_75").to_bytes())
    found = {}
    exec("\n".join(one.text for one in listings(DOCS / "loader.md") if one.language == "python"), found)
    assert (found["target"].numpy() == np.arange(1024)).all()

"""The loader on a GPU, as far as it can be seen without one: over a driver that runs kernels on the CPU device."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import types
from dataclasses import replace

import numpy as np
import pytest

import loader
import turingas
from loader import Given, cuda, timing
from loader import arrays as arrays_of
from loader.cuda import Buffer, CudaError, Graph, Stream, gpu
from tests.docs.pages import DOCS, ROOT, listings
from tests.emulate.test_device import ADD
from tests.loader.driver import Driver
from turingas.errors import LaunchError, LaunchWarning
from turingas.isa.arch import ARCHS

N = 64


@pytest.fixture(scope="module")
def cubin():
    return turingas.assemble(ADD, filename="add.sass")


@pytest.fixture
def install(monkeypatch):
    """Puts a driver in the place of cuda-python's, and takes it away again."""

    def put(driver, name="cuda.bindings.driver"):
        for known in gpu.DRIVERS:
            monkeypatch.setitem(sys.modules, known, driver if known == name else None)
        forget()
        return driver

    yield put
    forget()


def forget():
    gc.collect()  # what tests before left goes back to the driver that it came from
    gc.freeze()  # what is left is in use, and need not be looked through the next time
    cuda.driver.cache_clear()
    cuda.count.cache_clear()
    gpu._devices.clear()


@pytest.fixture
def driver(install):
    return install(Driver())


def test_a_warning_names_the_callers_line(driver):
    source = ".kernel k\n.param out 8\n.param a 4\nMOV R0, c[0x0][0x168];\nFADD R0, R0, 1;\nMOV R2, c[0x0][0x160];\n"
    source += "MOV R3, c[0x0][0x164];\nSTG.E.SYS [R2], R0;\nEXIT;\n"
    kernel = loader.load(turingas.assemble(source), "cuda:0").kernel()
    with pytest.warns(LaunchWarning, match="reads its bits as a float") as seen:
        kernel.launch(1, 1, Buffer(1), 2)
    assert [one.filename for one in seen] == [__file__]


def arrays(device="cuda:0"):
    return Buffer(N, np.float32, device).fill(0), Buffer.of(np.arange(N, dtype=np.float32), device)


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


def test_kernels_of_several_modules(driver, cubin):
    """In one queue: the context is looked at once, and each of the modules must be there."""
    out, values = arrays()
    modules = [loader.load(cubin) for _ in range(2)]
    ready = [module.kernel("add").prepare(2, 32, *args, N, 3.0) for module, args in
             zip(modules, ((Given(0), Given(1)), (Given(1), Given(0))))]  # fmt: skip
    launch = modules[0].queue(ready)
    driver.thread.stack = [1000]
    driver.calls.clear()
    launch(0, out.address, values.address)
    assert driver.calls == {"cuCtxGetCurrent": 1, "cuLaunchKernelEx": 2}
    assert (out.numpy() == 3 * np.arange(N)).all() and (values.numpy() == 9 * np.arange(N)).all()
    modules[1].close()
    with pytest.raises(LaunchError, match="the module is closed"):
        launch(0, out.address, values.address)


def together(driver):
    """Two kernels of a queue: the second takes what the first has made."""
    modules = [loader.load(turingas.assemble(ADD.replace(".kernel add", f".kernel {name}"))) for name in ("a", "b")]
    args = (Given(0), Given(1), N, 2.0), (Given(2), Given(0), N, 3.0)
    kernels = [module.kernel(name) for module, name in zip(modules, "ab")]
    ready = [kernel.prepare(2, 32, *more) for kernel, more in zip(kernels, args)]
    return modules, ready, modules[0].queue_of_tuples(ready, together=True)


def test_launches_together(driver):
    """From the third call on a stream on they are a graph. There are two, as y often lies at two places in turn: one is
    changed when what is given is what neither has."""
    modules, _, *queue = together(driver)
    driver.thread.stack = [1000]

    def calls(stream, *given):
        given[0].fill(0)
        given[2].fill(0)
        driver.calls.clear()
        queue[0](stream, tuple(one.address for one in given))
        assert driver.thread.stack == [1000]
        found = {name.removeprefix("cu"): count for name, count in driver.calls.items() if name != "cuCtxGetCurrent"}
        assert (given[2].numpy() == 6 * np.arange(N)).all() and (given[0].numpy() == 2 * np.arange(N)).all()
        return found

    before = dict(driver.handles)
    sets = [(*arrays(), Buffer(N, np.float32)) for _ in range(5)]
    launched, change = {"GraphLaunch": 1}, {"GraphExecKernelNodeSetParams": 2}
    another = {**change, "GraphInstantiate": 1, "ThreadExchangeStreamCaptureMode": 2}
    with Stream() as stream:
        for handle in (0, stream.handle):
            assert calls(handle, *sets[0]) == {"LaunchKernelEx": 2}
            found = calls(handle, *sets[1])
            assert found["LaunchKernelEx"] == 4 and found["GraphInstantiate"] == 1
            for which, changed in ((1, {}), (2, another), (1, {}), (2, {}), (3, change), (2, {}), (3, {}), (1, change)):
                assert calls(handle, *sets[which]) == {**launched, **changed}
        assert [one[3] for one in driver.launches] == [0] * 20 + [stream.handle] * 20
        driver.fails["cuGraphLaunch"] = 1
        with pytest.raises(CudaError, match=r"INVALID_VALUE \(1\): what 1 means \(cuGraphLaunch on"):
            calls(0, *sets[1])
        del driver.fails["cuGraphLaunch"]
        driver.fails["cuGraphExecKernelNodeSetParams"] = 1
        for which in (4, 4, 2, 4):
            with pytest.raises(CudaError, match="cuGraphExecKernelNodeSetParams on"):
                calls(0, *sets[which])
        assert calls(0, *sets[1]) == launched
        del driver.fails["cuGraphExecKernelNodeSetParams"]
        for which, changed in ((4, change), (1, {}), (4, {}), (2, change)):  # it was not known what the graph has
            assert calls(0, *sets[which]) == {**launched, **changed}
    modules[1].close()
    with pytest.raises(LaunchError, match="the module is closed"):
        calls(0, *sets[1])
    queue.clear()
    gc.collect()
    left = [one for handle, one in driver.handles.items() if handle not in before and isinstance(one, list)]
    assert not [one for one in left if one and isinstance(one[0], tuple)]  # graphs are given back
    assert driver.given_back == [2] * 4  # relaxed: another thread may be recording


@pytest.mark.parametrize("what", ["cuStreamBeginCapture", "cuGraphInstantiate", "cuGraphExecKernelNodeSetParams"])
def test_launches_that_cannot_be_recorded(driver, what):
    """They go one by one, and it is tried once."""
    _, _, launch = together(driver)
    driver.fails[what] = 1
    for number in range(4):
        (there, values), (third, _) = arrays(), arrays()
        driver.calls.clear()
        launch(0, (there.address, values.address, third.address))
        assert (third.numpy() == 6 * np.arange(N)).all() and driver.calls[what] == (number == 1)


@pytest.mark.parametrize("func", [None, 0])
def test_a_graph_whose_nodes_are_not_known(driver, func):
    """Of a driver that is older than a function of cuda-python, or says nothing of the kernel."""
    def node(node):
        if func is None:
            raise RuntimeError("function cuGraphKernelNodeGetParams_v2 is not found")
        return types.SimpleNamespace(func=func, kernelParams=0)

    driver.do_cuGraphKernelNodeGetParams = node
    node.__annotations__["return"] = "Any"
    _, _, launch = together(driver)
    for _ in range(4):
        (there, values), (third, _) = arrays(), arrays()
        launch(0, (there.address, values.address, third.address))
        assert (third.numpy() == 6 * np.arange(N)).all()
    assert driver.calls["cuGraphKernelNodeGetParams"] == 1 and not driver.calls["cuGraphLaunch"]


def test_a_launch_that_cannot_be_recorded(driver):
    """What was recorded before it is given back."""
    _, _, launch = together(driver)
    real = driver.do_cuLaunchKernelEx

    def refused(config, handle, *more):
        if driver.captured.get(config.hStream):  # the second
            return driver.CUresult.CUDA_ERROR_INVALID_VALUE
        return real(config, handle, *more)

    driver.do_cuLaunchKernelEx = refused
    for _ in range(4):
        (there, values), (third, _) = arrays(), arrays()
        launch(0, (there.address, values.address, third.address))
        assert (third.numpy() == 6 * np.arange(N)).all()
    assert driver.calls["cuStreamEndCapture"] == driver.calls["cuGraphDestroy"] == 1


def test_more_streams_than_graphs(driver):
    """The others go on one by one, and nothing is recorded time and again."""
    _, _, launch = together(driver)
    streams = [Stream() for _ in range(10)]
    for _ in range(4):
        for stream in streams:
            (there, values), (third, _) = arrays(), arrays()
            launch(stream.handle, (there.address, values.address, third.address))
            assert (third.numpy() == 6 * np.arange(N)).all()
    assert driver.calls["cuGraphInstantiate"] == driver.calls["cuGraphLaunch"] == 2 * 8  # two for each


def test_one_launch_is_no_graph(driver, cubin):
    """Nor is one kernel twice."""
    kernel = loader.load(cubin).kernel("add")
    ready = [kernel.prepare(2, 32, Given(0), Given(1), N, 2.0)] * 2
    for count in (1, 2):
        launch = kernel.module.queue_of_tuples(ready[:count], together=True)
        for _ in range(4):
            out, values = arrays()
            launch(0, (out.address, values.address))
            assert (out.numpy() == 2 * np.arange(N)).all()
    assert not driver.calls["cuGraphLaunch"]


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_a_prepared_launch(driver, cubin, device):
    """It keeps numbers of its own, and takes the stream and what is Given each time."""
    kernel = loader.load(cubin, device).kernel("add")
    driver.thread.stack = [1000]  # of another GPU
    ready = [kernel.prepare(2, (32, 1), Given(0), Given(1), N, float(scale)) for scale in (2, 3)]
    second = kernel.prepare(2, 32, Given(2), Given(0), N, 3.0)
    twice, thrice, both = (kernel.module.queue(which) for which in (ready[:1], ready[1:], [ready[0], second]))
    with Stream(device if device != "cpu" else "cuda:0") as stream:
        streams = [0, stream.handle, 0]
        for factor, launch, handle in zip((2, 3, 2), (twice, thrice, twice), streams):
            if device == "cpu":
                out, values = np.zeros(N, np.float32), np.arange(N, dtype=np.float32)
                launch(None, out, values)
            else:
                there, values = arrays(device)
                launch(handle, there.address, values.address)
                kernel.launch(2, 32, *arrays(device), N, 7.0)  # has an area of its own
                out = there.numpy()
            assert (out == factor * np.arange(N)).all()
    if device == "cpu":
        third = np.zeros(N, np.float32)
        both(None, out, values, third)
        assert (third == 3 * out).all() and (out == 2 * values).all()
    else:
        assert [launch[3] for launch in driver.launches[::2]] == streams and driver.thread.stack == [1000]
        third = Buffer(N, np.float32, device)
        driver.thread.stack = [1001]
        driver.calls.clear()
        both(0, there.address, values.address, third.address)
        assert driver.calls == {"cuCtxGetCurrent": 1, "cuLaunchKernelEx": 2}
        assert (third.numpy() == 6 * np.arange(N)).all()
        with Stream(device) as stream:  # a prepared launch may stand in several queues
            for which, handle in ((twice, stream.handle), (both, 0), (both, stream.handle), (twice, 0)):
                which(handle, there.address, values.address, *[third.address] * (which is both))
                told = [launch[3] for launch in driver.launches[-2 if which is both else -1 :]]
                assert set(told) == {handle}
        a, b = Given(0), Given(1)
        kernel.module.queue([kernel.prepare(2, 32, a, values.address, N, 2.0)])(0, there.address)
        for args, message in (
            ((a, b, N, 2.0, 1), "takes 4 arguments and was given 5"), ((a, N, 2.0), "takes 4 arguments"),
            ((a, b, N, 1e300), "out of range"), ((a, b, 1 << 40, 2.0), "out of range"),
            ((a, b, b, 2.0), "n.* has 4 bytes and is not a pointer"),
        ):  # fmt: skip
            with pytest.raises(LaunchError, match=message):
                kernel.prepare(2, 32, *args)
        with pytest.raises(LaunchError, match="numbers begin with 0"):
            Given(-1)
        for sizes in ((0, 32), (2, 2048)):
            with pytest.raises(LaunchError):
                kernel.prepare(*sizes, a, b, N, 2.0)
        kernel.module.close()
        with pytest.raises(LaunchError, match="the module is closed"):
            twice(0, there.address, values.address)
        with pytest.raises(LaunchError, match="the module is closed"):
            kernel.prepare(2, 32, Given(0), Given(1), N, 2.0)


def test_prepared_launches_and_threads(driver, cubin):
    """All share one area of parameters; under a lock each thread's launch has its own arguments."""
    kernel, lock, wrong = loader.load(cubin).kernel("add"), threading.Lock(), []
    launch = kernel.module.queue([kernel.prepare(2, 32, Given(0), Given(1), N, 2.0)])

    def work(start):
        out, values = Buffer(N), Buffer.of(np.arange(start, start + N, dtype=np.float32))
        for _ in range(20):
            out.fill(0)
            with lock:
                launch(0, out.address, values.address)
            wrong.extend(out.numpy() != 2 * np.arange(start, start + N))

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 4 * 20 * N and not any(wrong)


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


# ---- faults ------------------------------------------------------------------------------------------------------


def test_a_fault_is_told_once_and_then_that_the_context_is_lost(driver, cubin):
    module = loader.load(cubin)
    out, values = arrays()
    kernel, other = module.kernel("add"), module.kernel("other")
    kernel.launch(3, 32, out, values, 3 * 32, 2.0)
    with pytest.raises(CudaError) as caught:
        module.synchronize()
    error = caught.value
    assert (error.name, error.code, error.meaning, error.kernel, error.lost) == (
        "CUDA_ERROR_ILLEGAL_ADDRESS", 700, "what 700 means", "add", True,
    )  # fmt: skip
    assert "add: CUDA_ERROR_ILLEGAL_ADDRESS (700): what 700 means" in str(error) and "device='cpu'" in str(error)
    uses = [module.synchronize, lambda: other.launch(1, 1), out.numpy, lambda: Buffer(4), lambda: loader.load(cubin)]
    for use in uses:
        with pytest.raises(cuda.ContextLost, match=r"0 is lost since CUDA_ERROR_ILLEGAL_ADDRESS \(700\), when add"):
            use()
    module.close()
    out.free()
    loader.load(cubin, "cpu").kernel("other").launch(1, 1)


def test_a_fault_found_at_the_next_launch_is_the_one_befores(driver, cubin):
    module = loader.load(cubin)
    out, values = arrays()
    add, other = module.kernel("add"), module.kernel("other")
    add.launch(3, 32, out, values, 3 * 32, 2.0)
    with pytest.raises(CudaError, match="^add: .*add was the last kernel launched before"):
        other.launch(1, 1)


def test_an_error_that_is_no_fault(driver, cubin):
    kernel = loader.load(cubin).kernel("other")
    driver.fails["cuLaunchKernelEx"] = 1
    with pytest.raises(CudaError, match=r"^other: CUDA_ERROR_INVALID_VALUE \(1\): what 1 means \(cuLaunchKernelEx on"):
        kernel.launch(1, 1)
    driver.fails.clear()
    kernel.launch(1, 1)


# ---- life and death ----------------------------------------------------------------------------------------------


def test_modules_and_memory_go_back(driver, cubin):
    with loader.load(cubin) as module:
        kernel = module.kernel("other")
        assert module.kernel("other") is kernel
    for use in (lambda: kernel.launch(1, 1), lambda: module.kernel("add"), lambda: module.variable("x")):
        with pytest.raises(LaunchError, match="the module is closed"):
            use()
    module.close()
    assert driver.calls["cuModuleUnload"] == 1
    loader.load(cubin).kernel("add")
    gc.collect()
    assert driver.calls["cuModuleUnload"] == 2
    out = Buffer(8)
    out.free()
    out.free()
    for use in (Buffer.numpy, lambda b: b.fill(0), lambda b: b.__cuda_array_interface__):
        with pytest.raises(LaunchError, match="given back"):
            use(out)
    assert driver.calls["cuMemFree"] == driver.calls["cuMemAlloc"] == 1


def test_a_closed_module_is_not_asked_for_anything(driver, cubin):
    """Its handle and those of its kernels mean nothing to the driver any more."""
    module = loader.load(cubin)
    kernel = module.kernel("other")
    kernel.launch(1, 1)
    module.close()
    driver.calls.clear()
    for use in (lambda: kernel.launch(1, 1, shared=60_000), lambda: kernel.attribute("NUM_REGS")):
        with pytest.raises(LaunchError, match="the module is closed"):
            use()
    assert not driver.calls


@pytest.mark.parametrize("use", [lambda m, k: m.kernel("add"), lambda m, k: m.variable("x"),
                                 lambda m, k: k.launch(1, 1, shared=60_000)])  # fmt: skip
def test_a_module_closed_while_another_thread_waits_for_it(driver, cubin, use):
    module = loader.load(cubin)
    kernel, refused = module.kernel("other"), []

    def work():
        try:
            use(module, kernel)
        except LaunchError as error:
            refused.append(error.message)

    driver.calls.clear()
    thread = threading.Thread(target=work)
    with module._lock:  # as close() has it
        thread.start()
        thread.join(0.05)
        module.closed = True
    thread.join()
    assert refused == ["the module is closed"] and not driver.calls


def test_threads_share_a_kernel(driver, cubin):
    """Each gets its own arguments, and one that closes the module does so between launches."""
    kernel = loader.load(cubin).kernel("add")
    results, refused = {}, []

    def work(scale):
        out, values = arrays()
        for _ in range(20):
            try:
                kernel.launch(2, 32, out, values, N, float(scale))
            except LaunchError:
                refused.append(scale)
                return
            results[scale] = results.get(scale, True) and bool((out.numpy() == scale * np.arange(N)).all())

    threads = [threading.Thread(target=work, args=(scale,)) for scale in range(1, 9)]
    for thread in threads:
        thread.start()
    threads[0].join()
    kernel.module.close()
    for thread in threads:
        thread.join()
    assert all(results.values()) and 1 in results and 1 not in refused
    assert len({*results, *refused}) == 8  # no thread ended in another way


def test_interrupted(driver, cubin):
    """While a launch waits for another thread's, and while it is with the driver: Ctrl-C stays what it is, and the
    lock and the thread's context are as before."""
    out, values = arrays("cuda:1")
    kernel = loader.load(cubin, "cuda:1").kernel("add")
    kernel.launch(2, 32, out, values, N, 2.0)
    lock, held, ends, main = kernel.module._lock, threading.Event(), threading.Event(), threading.get_ident()

    def hold():
        with lock:
            held.set()
            while not ends.wait(0.05):
                signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=hold)
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            held.wait()
            kernel.launch(2, 32, out, values, N, 3.0)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ends.set()
        thread.join()
        signal.signal(signal.SIGINT, before)

    def interrupted(launch):
        raise KeyboardInterrupt

    driver.run, driver.thread.stack = interrupted, [1000]
    with pytest.raises(KeyboardInterrupt):
        kernel.launch(2, 32, out, values, N, 3.0)
    assert driver.thread.stack == [1000]
    del driver.run
    thread = threading.Thread(target=lambda: kernel.launch(2, 32, out, values, N, 5.0))
    thread.start()
    thread.join(10)
    assert not thread.is_alive() and (out.numpy() == 5 * np.arange(N)).all()


def test_an_array_that_gives_nothing(driver, cubin, monkeypatch):
    """As PyTorch's tensors without memory, which say so by a RuntimeError; an error of the driver stays one."""
    class Odd:
        def address(self):
            raise RuntimeError("there is none")

    reads = arrays_of.Kind(lambda odd, stream: odd.address(), quick="{array}.address()")
    monkeypatch.setitem(arrays_of.KINDS, Odd, reads)
    out, values = arrays()
    kernel = loader.load(cubin).kernel("add")
    with pytest.raises(LaunchError, match=r"argument 1 \(in\) of add, a Odd, does not give its memory: there is none"):
        kernel.launch(2, 32, out, Odd(), N, 2.0)
    driver.fails["cuLaunchKernelEx"] = 1
    with pytest.raises(CudaError, match="INVALID_VALUE"):
        kernel.launch(2, 32, out, values, N, 2.0)


def test_threads_share_a_kernel_of_the_cpu_device(cubin):
    kernel, results = loader.load(cubin, "cpu").kernel("add"), {}

    def work(scale):
        out, values = np.zeros(N, np.float32), np.arange(N, dtype=np.float32)
        for _ in range(5):
            kernel.launch(2, 32, out, values, N, float(scale))
        results[scale] = (out == scale * values).all()

    threads = [threading.Thread(target=work, args=(scale,)) for scale in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(results.values())


VARIABLE = '__device__ int table[3] = {5, 6, 7};\nextern "C" __global__ void k() { table[1] += 1; }\n'


def test_variables(driver):
    from tests.tools import nvrtc

    if nvrtc.library_path() is None:
        pytest.skip("NVRTC is not installed")
    with loader.load(nvrtc.compile_source(VARIABLE, "sm_75")) as module:
        module.kernel("k").launch(1, 1)
        name = next(name for name in driver.handles[module._handle].globals if "table" in name)
        variable = module.variable(name)
        assert (variable.numpy().view(np.int32) == [5, 7, 7]).all()
        with pytest.raises(LaunchError, match="no variable 'x'"):
            module.variable("x")
    with pytest.raises(LaunchError, match="given back"):
        variable.numpy()


# ---- buffers -----------------------------------------------------------------------------------------------------


def test_buffers(driver):
    array = np.arange(12, dtype=np.int16).reshape(3, 4)
    with Buffer.of(array) as buffer:
        assert (buffer.shape, buffer.dtype, buffer.nbytes) == ((3, 4), np.int16, 24)
        interface = buffer.__cuda_array_interface__
        assert interface["data"] == (buffer.address, False) and interface["shape"] == (3, 4)
        assert np.dtype(interface["typestr"]) == np.int16
        buffer.copy_from(array.T.copy().T + 1)  # any strides
        assert not driver.copying and "cuMemcpyHtoD" not in driver.calls  # which may return before the GPU has it
        into = np.zeros((3, 4), np.int16)
        buffer.copy_to(into)
        assert (into == array + 1).all()
        with Stream() as stream:
            assert (buffer.copy_from(array, stream).numpy(stream=stream) == array).all()
        with Buffer.of(array + 5) as other, Buffer.of(array[:2]) as smaller:
            assert (buffer.copy_from(other).numpy() == array + 5).all() and (other.numpy() == array + 5).all()
            with pytest.raises(LaunchError, match="of another shape"):
                buffer.copy_from(smaller)
        with pytest.raises(LaunchError, match="given back"):
            buffer.copy_from(other)
        buffer.copy_from(array)
        for wrong in (array[:2], array.astype(np.int32), array.T):
            with pytest.raises(LaunchError, match=r"the array is .*, the buffer int16\[3, 4\]"):
                buffer.copy_from(wrong)
        with pytest.raises(LaunchError, match="read-only or not contiguous"):
            buffer.copy_to(np.zeros((4, 3), np.int16).T)
    assert Buffer.of(np.zeros((0, 3))).numpy().shape == (0, 3)
    with pytest.raises(LaunchError, match="no buffer of shape"):
        Buffer(-1)
    with pytest.raises(LaunchError, match="no buffer of shape .* and type >f4"):
        Buffer.of(np.zeros(3, ">f4"))


def test_out_of_memory(driver):
    driver.fails["cuMemAlloc"] = 2
    with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        Buffer(1 << 20)


# ---- streams, graphs, time ---------------------------------------------------------------------------------------


class Foreign:
    """An array with __cuda_array_interface__ that names a stream."""

    def __init__(self, buffer, stream, **changes):
        self.interface = {**buffer.__cuda_array_interface__, "stream": stream, **changes}

    @property
    def __cuda_array_interface__(self):
        return self.interface


def test_streams(driver, cubin):
    kernel = loader.load(cubin).kernel("add")
    out, values = arrays()
    with Stream() as one, Stream() as two:
        kernel.launch(2, 32, out, values, N, 1.0)
        kernel.launch(2, 32, out, Foreign(values, one.handle), N, 1.0)
        kernel.launch(2, 32, out, Foreign(values, one.handle), N, 1.0, stream=two)
        kernel.launch(2, 32, out, values, N, 1.0, stream=two.handle)
        kernel.launch(2, 32, out, values, N, 1.0, stream=types.SimpleNamespace(cuda_stream=77))
        kernel.launch(2, 32, out, values, N, 1.0, stream=types.SimpleNamespace(ptr=78))
        assert [launch[3] for launch in driver.launches] == [0, one.handle, two.handle, two.handle, 77, 78]
    assert not driver.streams


def test_foreign_arrays(driver, cubin):
    kernel = loader.load(cubin).kernel("add")
    out, values = arrays()
    kernel.launch(2, 32, Foreign(out, None, shape=(8, 8), strides=(32, 4)), Foreign(values, None), N, 4.0)
    assert (out.numpy() == 4 * np.arange(N)).all()
    for changes, message in (
        ({"strides": (8,), "shape": (32,)}, "is not contiguous"),
        ({"shape": (0,)}, "is an array without elements"),
        ({"data": (123, False)}, "is a Foreign in the host's memory"),
        ({"mask": out}, "has a mask"),
    ):
        with pytest.raises(LaunchError, match=rf"argument 1 \(in\) of add,? {message}"):
            kernel.launch(2, 32, out, Foreign(values, None, **changes), N, 4.0)


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

"""Launches made ready once, and queued again and again, several as a graph too: over a driver on the CPU device."""

from __future__ import annotations

import gc
import threading
import types

import numpy as np
import pytest

import loader
import turingas
from loader import Given
from loader.cuda import Buffer, CudaError, Stream
from tests.emulate.test_device import ADD
from tests.loader.conftest import N, arrays
from turingas.errors import LaunchError


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


def test_what_of_a_graph_is_changed(driver):
    """Kernels of which what they are given is another, and no others, whichever of the two graphs it is."""
    _, _, launch = together(driver)
    at = [arrays() for _ in range(3)]
    given = [at[0][0], at[0][1], Buffer(N, np.float32)]
    others = [at[1][0], Buffer.of(np.arange(N, dtype=np.float32)[::-1]), Buffer(N, np.float32)]

    def changed(*which):
        """``which`` of them are the others: how many kernels are changed."""
        those = [(others if n in which else given)[n] for n in range(3)]
        those[0].fill(0), those[2].fill(0)
        driver.calls.clear()
        launch(0, tuple(one.address for one in those))
        wanted = those[1].numpy()
        assert (those[0].numpy() == 2 * wanted).all() and (those[2].numpy() == 6 * wanted).all()
        return driver.calls["cuGraphExecKernelNodeSetParams"]

    assert [changed(), changed()] == [0, 2]  # recorded, and changed to see that it can be
    # the first of the kernels takes 0 and 1, the second 2 and 0; of two graphs the older one is changed
    assert [changed(1), changed(2), changed(1), changed(0, 1), changed(1, 2)] == [1, 1, 0, 2, 1]
    assert [changed(0, 1), changed(1, 2), changed(0, 1)] == [0, 0, 0]


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

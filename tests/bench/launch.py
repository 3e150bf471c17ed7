"""What the forms of a launch cost the host, on a GPU: ``python -m tests.bench.launch``.

Microseconds a call, medians of blocks of calls in which all forms take turns; in brackets with the wait for the GPU
behind them, so that it shows where the GPU is the slower one. By cuda-python, by ctypes and, where there is a compiler,
in C: what is left there is the driver's. First of empty kernels, by their parameters; then of the two kernels that a
layer by HGMMA launches for x in NCHW, and of larger layers, with both kernels as a graph or one by one; and of the one
kernel for x in NHWC.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import statistics
import subprocess
import tempfile
import time
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import loader
import turingas
from kernels_sass import conv
from kernels_sass.bench import host
from loader import cuda
from loader.bench import results
from loader.bench.measure import torch
from loader.cuda import Buffer, CudaError, Stream, prepared

BLOCK, ROUNDS = 100, 15
END, POINTER, SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_...
MAP = ", 128, 64\n"
MANY = f"a{MAP}b{MAP}c{MAP}x, 8\ny, 8\nz, 8\n" + "".join(f"n{n}, 4\n" for n in range(20)) + "v, 12\n"
#: parameters as .sass has them, and dynamic shared memory
KERNELS = {
    "20 bytes in 3": ("a, 8\nb, 8\nn, 4\n", 0),
    "60 bytes in 13": ("a, 8\nb, 8\n" + "".join(f"n{n}, 4\n" for n in range(11)), 0),
    "500 bytes in 1": ("a, 500, 64\n", 0),
    "500 bytes in 27": (MANY, 0),
    "500 bytes in 27, 200 kB shared": (MANY, 200 << 10),
}  # fmt: skip
SOURCE = """
typedef int (*Launch)(void *, void *, void **, void **);
int times(int n, Launch launch, void *config, void *kernel, void **table, void **extra)
{
    for (int error; n--;)
        if ((error = launch(config, kernel, table, extra)))
            return error;
    return 0;
}
int both(int n, Launch launch, void *one, void *first, void **table, void *two, void *second, void **other)
{
    for (int error; n--;)
        if ((error = launch(one, first, table, 0)) || (error = launch(two, second, other, 0)))
            return error;
    return 0;
}
"""
Way = Callable[[], Any]


class Loop:
    """A way whose calls are a loop of its own."""

    def __init__(self, run: Callable[[int], Any]) -> None:
        self.run = run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("json", type=Path, nargs="?", help="where the times go")
    file = parser.parse_args().json
    gpu = cuda.device(0)
    gpu.driver.cuCtxPushCurrent(gpu.context)
    found: dict[str, Any] = {**results.facts("tests.bench.launch", gpu, ()), "host": host.host()}
    c, launch = compiled(), gpu.driver.cuGetProcAddress(b"cuLaunchKernelEx", 12000, 0)[1]
    for title, of in (("empty kernels", empty), ("the two kernels of a layer", layer), ("larger layers", larger),
                      ("layers of one kernel", single), ("calls besides", besides)):  # fmt: skip
        print(f"-- {title}")
        found[title] = rows = {}
        for name, (us, done) in measured(gpu, of(gpu, c, int(launch))).items():
            rows[name] = round(us, 2), round(done, 2)
            print(f"{name:75} {us:6.2f} us ({done:.2f})", flush=True)
        if file is not None:
            results.keep(file, found)


def measured(gpu: cuda.Device, ways: dict[str, Way | Loop]) -> dict[str, tuple[float, float]]:
    random = np.random.default_rng(0)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    broken = set()
    for number in range(-1, ROUNDS):
        for name in random.permutation(list(ways)):
            if name in broken:
                continue
            way = ways[name]
            gpu.synchronize()
            start = time.perf_counter()
            if isinstance(way, Loop):
                error = way.run(BLOCK)
            else:
                for _ in range(BLOCK):
                    error = way()
            spent = time.perf_counter() - start
            gpu.synchronize()
            whole = time.perf_counter() - start
            code = error[0] if isinstance(error, tuple) else error
            if isinstance(code, int) and code:
                print(f"{name}: the driver says {code}")
                broken.add(name)
            if number >= 0:
                times[name].append((1e6 * spent / BLOCK, 1e6 * whole / BLOCK))
    return {name: (statistics.median(one for one, _ in every), statistics.median(two for _, two in every))
            for name, every in times.items() if name not in broken}  # fmt: skip


def compiled() -> Any:
    """SOURCE, for calls that leave Python's lock alone."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loops.c"), Path(folder, "loops.so")
        source.write_text(SOURCE)
        try:
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"no loops in C: {error}")
            return None
        return ctypes.CDLL(str(library))


def packed(area: bytes) -> tuple[int, Any]:
    """A parameter buffer as ``extra`` takes it, and what must live as long."""
    buffer, size = ctypes.create_string_buffer(bytes(area), len(area)), ctypes.c_size_t(len(area))
    table = (ctypes.c_void_p * 5)(POINTER, ctypes.addressof(buffer), SIZE, ctypes.addressof(size), END)
    return ctypes.addressof(table), (buffer, size, table)


KEPT: list[Any] = []


def by_ctypes(kind: Any, launch: int, *given: Any) -> Way:
    """A launch by ctypes; ``kind``: CFUNCTYPE, or PYFUNCTYPE, which keeps Python's lock."""
    function = kind(ctypes.c_int, *[ctypes.c_void_p] * 4)(launch)
    return lambda: function(*given)


def empty(gpu: cuda.Device, c: Any, launch: int) -> dict[str, Way | Loop]:
    ways: dict[str, Way | Loop] = {}
    driver, stream = gpu.driver, Stream(gpu)
    KEPT.append(stream)
    for what, (params, shared) in KERNELS.items():
        source = f".kernel empty\n<params>\n{params}</params>\n--:-:-:-:5 EXIT;\n"
        kernel: Any = loader.load(turingas.assemble(source, arch=conv.arch_of(gpu)), str(gpu)).kernel()
        if shared:
            kernel._sizes(1, 32, shared)  # asks for it
        nbytes = kernel._code.param_bytes
        area, handle = prepared.Area(kernel.params, nbytes), kernel.handle
        extra, kept = packed(bytes(nbytes))
        sizes = 1, 1, 1, 32, 1, 1, shared
        plain = prepared.configuration(gpu, sizes)
        early = prepared.configuration(gpu, sizes, prepared.launch_attributes(gpu, True, None, False))
        apart = prepared.configuration(gpu, sizes)
        apart.hStream = stream.handle
        KEPT.extend((area, kept, plain, early, apart, kernel))
        ways |= {
            f"{what}: cuLaunchKernelEx": lambda a=(plain, handle, area.table, 0): driver.cuLaunchKernelEx(*a),
            f"{what}: cuLaunchKernelEx, own stream": lambda a=(apart, handle, area.table, 0): driver.cuLaunchKernelEx(
                *a),
            f"{what}: cuLaunchKernelEx, extra": lambda a=(plain, handle, 0, extra): driver.cuLaunchKernelEx(*a),
            f"{what}: cuLaunchKernelEx, early": lambda a=(early, handle, area.table, 0): driver.cuLaunchKernelEx(*a),
            f"{what}: cuLaunchKernelEx, early, extra": lambda a=(early, handle, 0, extra): driver.cuLaunchKernelEx(*a),
            f"{what}: cuLaunchKernel": lambda a=(handle, *sizes, 0, area.table, 0): driver.cuLaunchKernel(*a),
            f"{what}: cuLaunchKernel, extra": lambda a=(handle, *sizes, 0, 0, extra): driver.cuLaunchKernel(*a),
        }
        here, there, where = plain.getPtr(), early.getPtr(), int(handle)
        for name, kind in (("CFUNCTYPE", ctypes.CFUNCTYPE), ("PYFUNCTYPE", ctypes.PYFUNCTYPE)):
            ways[f"{what}: ctypes, {name}"] = by_ctypes(kind, launch, here, where, area.table, 0)
        if c is not None:
            every = {"": (here, area.table, 0), ", extra": (here, 0, extra), ", early": (there, area.table, 0)}
            for name, (config, table, more) in every.items():
                pointers = [ctypes.c_void_p(one) for one in (launch, config, where, table, more)]
                ways[f"{what}: C{name}"] = Loop(lambda n, pointers=pointers: c.times(n, *pointers))
        ways |= graphs(gpu, stream, [(plain, handle, area.table)], f"{what}: ", "")
    return ways


def graphs(
    gpu: cuda.Device, stream: Stream, steps: list[Any], before: str, behind: str
) -> dict[str, Way | Loop]:
    """Launches as a graph, as it is and with the parameters of each set anew."""
    driver = gpu.driver
    graph, launched = recorded(gpu, stream, steps)
    KEPT.append((graph, stream))
    error, nodes, count = driver.cuGraphGetNodes(graph, len(steps))
    every = [(node, driver.cuGraphKernelNodeGetParams(node)[1]) for node in nodes[:count]]

    def again() -> Any:
        for node, params in every:
            driver.cuGraphExecKernelNodeSetParams(launched, node, params)
        return driver.cuGraphLaunch(launched, 0)

    return {f"{before}a graph{behind}": lambda: driver.cuGraphLaunch(launched, 0),
            f"{before}a graph with parameters set{behind}": again}  # fmt: skip


def layer(gpu: cuda.Device, c: Any, launch: int) -> dict[str, Way | Loop]:
    """x in NCHW, 16 channels and filters, as `turingas bench host` has it."""
    made = conv.Conv2d(np.ones((16, 16, 3, 3), np.float32), layout="NCHW", device=str(gpu), kernel="hgmma")
    x, y, other = (Buffer.of(np.ones((1, 16, 4, 4), np.float32), gpu) for _ in range(3))
    seen = steps_of(lambda: made(x, None, y))
    driver, ways, both = gpu.driver, dict[str, Way | Loop](), itertools.cycle((y, other))
    ways["Conv2d, Buffers, out="] = lambda: made(x, None, y)
    ways["Conv2d, Buffers, two out= in turn"] = lambda: made(x, None, next(both))
    (k1, _, t1), (k2, _, t2) = seen
    c1, c2 = (without(gpu, config, config.attrs) for _, config, _ in seen)  # which no call of the layer changes
    h1, h2 = k1.handle, k2.handle

    def pair(one: Any, two: Any, a: Any, b: Any) -> Way:
        ex = driver.cuLaunchKernelEx
        return lambda: (ex(one, h1, *a), ex(two, h2, *b))[1]

    areas = [area_of(kernel, table) for kernel, _, table in seen]
    extras = [packed(one) for one in areas]
    KEPT.extend((extras, made, seen))
    e1, e2 = (one for one, _ in extras)
    plain = [without(gpu, config) for _, config, _ in seen]
    ways["both"] = pair(c1, c2, (t1, 0), (t2, 0))
    ways["both, extra"] = pair(c1, c2, (0, e1), (0, e2))
    ways["both, not early"] = pair(*plain, (t1, 0), (t2, 0))
    ways["both, the second early"] = pair(plain[0], c2, (t1, 0), (t2, 0))
    ways["both, not early, extra"] = pair(*plain, (0, e1), (0, e2))
    ways["the first alone"] = lambda: driver.cuLaunchKernelEx(c1, h1, t1, 0)
    ways["the second alone"] = lambda: driver.cuLaunchKernelEx(c2, h2, t2, 0)
    of_ctypes = [by_ctypes(ctypes.PYFUNCTYPE, launch, config.getPtr(), int(kernel.handle), table, 0)
                 for kernel, config, table in ((k1, c1, t1), (k2, c2, t2))]  # fmt: skip
    ways["both, ctypes, PYFUNCTYPE"] = lambda: (of_ctypes[0](), of_ctypes[1]())[1]
    if c is not None:
        given = [ctypes.c_void_p(one) for one in (launch, c1.getPtr(), int(h1), t1, c2.getPtr(), int(h2), t2)]
        ways["both, C"] = Loop(lambda n: c.both(n, *given))
        p1, p2 = (one.getPtr() for one in plain)
        other = [ctypes.c_void_p(one) for one in (launch, p1, int(h1), t1, p2, int(h2), t2)]
        ways["both, not early, C"] = Loop(lambda n: c.both(n, *other))
        ways["both, one call of C by ctypes"] = lambda: c.both(1, *given)
    stream = Stream(gpu)
    for name, (one, two) in {"early": (c1, c2), "not early": plain}.items():
        ways |= graphs(gpu, stream, [(one, h1, t1), (two, h2, t2)], "both, ", f", {name}")
    return ways


def steps_of(call: Callable[[], Any]) -> list[Any]:
    """The launches that the first call of a layer makes ready: kernel, configuration, table of parameters."""
    seen: list[Any] = []

    def noting(steps: Any, *rest: Any) -> Any:
        seen[:] = list(steps)
        return queue(steps, *rest)

    queue = prepared.written.queue
    with unittest.mock.patch.object(prepared.written, "queue", noting):
        call()
    return seen


def single(gpu: cuda.Device, c: Any, launch: int) -> dict[str, Way | Loop]:
    """Layers of one kernel, which may begin before the one ahead has ended, but not in a graph of its own."""
    ways, driver, stream = dict[str, Way | Loop](), gpu.driver, Stream(gpu)
    for n, channels, size in ((1, 16, 4), (1, 64, 56), (1, 256, 14), (8, 256, 14)):
        weight = np.ones((channels, channels, 3, 3), np.float32)
        made = conv.Conv2d(weight, layout="NHWC", device=str(gpu), kernel="hgmma")
        x, y = (Buffer.of(np.ones((n, size, size, channels), np.float32), gpu) for _ in range(2))
        ((kernel, config, table),) = steps_of(lambda: made(x, None, y))  # noqa: B023
        KEPT.append((made, x, y))
        own, name = without(gpu, config, config.attrs), f"{n}, {channels} channels, {size} x {size}, NHWC: "
        ways[f"{name}Conv2d, Buffers, out="] = lambda made=made, x=x, y=y: made(x, None, y)
        ways[f"{name}cuLaunchKernelEx"] = lambda a=(own, kernel.handle, table, 0): driver.cuLaunchKernelEx(*a)
        ways |= graphs(gpu, stream, [(own, kernel.handle, table)], name, "")
    return ways


def larger(gpu: cuda.Device, c: Any, launch: int) -> dict[str, Way | Loop]:
    """Layers of ResNet with several images, for which the GPU needs longer than the host."""
    ways: dict[str, Way | Loop] = {}
    for n, channels, size in ((1, 64, 56), (8, 64, 56), (1, 256, 14), (8, 256, 14), (32, 256, 14)):
        weight = np.ones((channels, channels, 3, 3), np.float32)
        x, y = (Buffer.of(np.ones((n, channels, size, size), np.float32), gpu) for _ in range(2))
        for name, fails in (("a graph", False), ("one by one", True)):
            made = conv.Conv2d(weight, layout="NCHW", device=str(gpu), kernel="hgmma")
            with (unittest.mock.patch.object(prepared, "Recorded", refused if fails else prepared.Recorded),
                  unittest.mock.patch.object(conv.implicit_plan, "SHORT", 1e9)):  # fmt: skip
                for _ in range(3):
                    made(x, None, y)
            ways[f"{n}, {channels} channels, {size} x {size}: {name}"] = lambda made=made, x=x, y=y: made(x, None, y)
    return ways


def refused(*given: Any) -> Any:
    raise CudaError("no graph", "", 0, "")


def area_of(kernel: Any, table: int) -> bytes:
    """The parameters that a table points to, one behind the other as they lie."""
    made = bytearray(kernel._code.param_bytes)
    for param, place in zip(kernel.params, (ctypes.c_void_p * len(kernel.params)).from_address(table)):
        made[param.offset : param.offset + param.size] = ctypes.string_at(place, param.size)
    return bytes(made)


def without(gpu: cuda.Device, config: Any, attributes: Any = ()) -> Any:
    """The configuration with these attributes alone."""
    return prepared.configuration(gpu, [getattr(config, name) for name in prepared.SIZES], attributes)


def recorded(gpu: cuda.Device, stream: Stream, steps: list[Any]) -> tuple[Any, Any]:
    """A graph of launches, and what is launched of it."""
    driver = gpu.driver
    gpu.call("cuStreamBeginCapture", stream.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    for config, handle, table in steps:
        config.hStream = stream.handle
        driver.cuLaunchKernelEx(config, handle, table, 0)
        config.hStream = 0
    graph = gpu.call("cuStreamEndCapture", stream.handle)
    return graph, gpu.call("cuGraphInstantiate", graph, 0)


def besides(gpu: cuda.Device, c: Any, launch: int) -> dict[str, Way | Loop]:
    driver = gpu.driver
    x = Buffer(64, np.float32, gpu)
    context, config = gpu.context, prepared.configuration(gpu, (1, 1, 1, 32, 1, 1, 0))
    place = ctypes.c_void_p()
    current = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(
        int(driver.cuGetProcAddress(b"cuCtxGetCurrent", 12000, 0)[1]))
    at = ctypes.addressof(place)

    def streamed() -> None:
        config.hStream = 0

    ways: dict[str, Way | Loop] = {
        "cuCtxGetCurrent": lambda: driver.cuCtxGetCurrent(),
        "cuCtxGetCurrent, compared": lambda: driver.cuCtxGetCurrent()[1] != context and 1,
        "cuCtxGetCurrent, ctypes": lambda: current(at),
        "nothing": lambda: None,
        "hStream": streamed,
    }
    if library := torch():
        t, w = library.ones(1, 16, 4, 4, device=str(gpu)), library.ones(16, 16, 3, 3, device=str(gpu))
        library.set_grad_enabled(False)
        library.backends.cudnn.benchmark, library.backends.cudnn.allow_tf32 = True, False
        made = conv.libraries.library_of("x", t).again(t, (1, 16, 4, 4))
        ours = conv.Conv2d(np.ones((16, 16, 3, 3), np.float32), layout="NCHW", device=str(gpu), kernel="hgmma")
        y = library.empty_like(t)
        kind = conv.libraries.library_of("x", t)
        stream = library.cuda.current_stream().cuda_stream
        ways |= {
            "PyTorch": lambda: library.nn.functional.conv2d(t, w, None, 1, 1),
            "Conv2d, hgmma, NCHW": lambda: ours(t),
            "Conv2d, hgmma, NCHW, out=": lambda: ours(t, None, y),
            "y of a tensor": made,
            "where x lies": lambda: kind.seen(t, "float32") and None,
            "the current stream": lambda: kind.kind.current(0),
            "recorded": lambda: conv.partial.Partial.of(gpu).recorded(stream),
        }
    KEPT.extend((x, place))
    return ways


if __name__ == "__main__":
    main()

"""Conv2d on a real GPU: arrays of every library, layouts, streams, graphs, threads, what a call costs."""

from __future__ import annotations

import threading
import timeit

import numpy as np
import pytest

import loader
from kernels_sass.conv import Conv2d, code, cost, launch
from kernels_sass.conv import shape as sizes
from loader.cuda import Buffer, Graph
from loader.reference.problem import arrange, relative_error
from tests.gpu.test_winograd import KERNELS
from tests.kernels_sass.cases import Case
from turingas.errors import LaunchError

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"


@pytest.fixture(scope="module", autouse=True)
def gpu():
    assert DEVICE in loader.devices(), "no GPU"


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request):
    """What Conv2d takes for it."""
    return KERNELS[request.param]


@pytest.mark.parametrize("layout", sizes.LAYOUTS)
@pytest.mark.parametrize("pad", [0, 1])
def test_numpy_there_and_back(kernel, layout, pad):
    for one in ((1, 1, 3, 3, 1), (33, 17, 9, 12, 70), (64, 64, 14, 14, 128), (2, 200, 7, 7, 65)):
        case = Case(*one, pad, layout)
        with case.conv(True, True, device=DEVICE, **kernel) as conv:
            assert relative_error(conv(case.x, case.residual), case.y(1, 1, 1)) < 1e-6, sizes
    with case.conv(device=DEVICE, **kernel) as conv:
        assert relative_error(conv(case.x), case.y()) < 1e-6


def test_random_shapes(kernel):
    random = np.random.default_rng(0)
    for _ in range(60):
        n, c, h, w, k = (int(random.integers(1, most)) for most in (70, 150, 40, 40, 200))
        pad, layout = int(random.integers(2)), sizes.LAYOUTS[random.integers(3)]
        case = Case(n, c, h + 2, w + 2, k, pad, layout)
        with case.conv(True, device=DEVICE, **kernel) as conv:
            assert relative_error(conv(case.x), case.y(bias=True)) < 1e-6, (n, c, h + 2, w + 2, k, pad, layout)


def test_more_than_4_gib(kernel):
    """Images from before and behind the place where the batch is parted."""
    shape = sizes.Shape(1400, 64, 112, 112, 64)
    assert len(list(shape.parts())) == 2
    case = Case(2, 64, 112, 112, 64)
    x, y = Buffer(shape.x_shape), Buffer(shape.y_shape)
    image = case.x[0].nbytes
    for n in (0, 699, 700, 1399):
        x.gpu.call("cuMemcpyHtoD", x.address + n * image, case.x.ctypes.data, image)
    with case.conv(device=DEVICE, **kernel) as conv:
        conv(x, out=y)
    for n in (0, 699, 700, 1399):
        found = np.empty(case.y().shape[1:], np.float32)
        y.gpu.call("cuMemcpyDtoH", found.ctypes.data, y.address + n * found.nbytes, found.nbytes)
        assert relative_error(found, case.y()[0]) < 1e-6
    for one in (x, y):
        one.free()


def test_torch(kernel):
    torch = pytest.importorskip("torch")
    for layout in sizes.LAYOUTS:
        case = Case(5, 20, 9, 8, 70, 1, layout)
        weight, bias = (torch.nn.Parameter(torch.from_numpy(one).cuda()) for one in (case.weight, case.bias))
        x, residual = (torch.from_numpy(one).cuda() for one in (case.x, case.residual))
        with torch.cuda.stream(torch.cuda.Stream()), Conv2d(weight, bias, 1, "relu", layout, **kernel) as conv:
            y = conv(x, residual)
            assert y.device == x.device and relative_error(y.cpu().numpy(), case.y(1, 1, 1)) < 1e-6
            out = torch.empty_like(y)
            assert conv(x, out=out) is out and relative_error(out.cpu().numpy(), case.y(1, 0, 1)) < 1e-6
            assert conv(x, residual, residual) is residual
            assert relative_error(residual.cpu().numpy(), case.y(1, 1, 1)) < 1e-6
    nchw = Case(5, 20, 9, 8, 70)
    last = torch.from_numpy(nchw.x).cuda().contiguous(memory_format=torch.channels_last)
    with pytest.raises(LaunchError, match="channels_last"):
        nchw.conv(**kernel)(last)
    y = Conv2d(nchw.weight, layout="NHWC", **kernel)(last.permute(0, 2, 3, 1))
    assert relative_error(arrange(y.cpu().numpy(), "NHWC", "NCHW"), nchw.y()) < 1e-6
    with pytest.raises(LaunchError, match="requires gradients"):
        nchw.conv(**kernel)(last.clone().requires_grad_())


def test_torch_waits_for_nothing(kernel):
    torch = pytest.importorskip("torch")
    case = Case(32, 64, 28, 28, 64)
    x, pinned = torch.zeros(case.x.shape, device="cuda"), torch.from_numpy(case.x).pin_memory()
    conv = Conv2d(torch.from_numpy(case.weight).cuda(), **kernel)
    conv(x) + 1  # PyTorch loads its kernels when they are first used, and waits for that
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)
        x.copy_(pinned, non_blocking=True)
        y = conv(x)
        more = y + 1
        assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()
    assert relative_error(more.cpu().numpy() - 1, case.y()) < 1e-5


def test_a_graph_of_torch(kernel):
    torch = pytest.importorskip("torch")
    case = Case(8, 64, 14, 14, 64)
    conv, x = Conv2d(case.weight, device=DEVICE, **kernel), torch.zeros(case.x.shape, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = conv(x)
    x.copy_(torch.from_numpy(case.x))
    graph.replay()
    torch.cuda.synchronize()
    assert relative_error(y.cpu().numpy(), case.y()) < 1e-6


@pytest.mark.parametrize("splits", [1, 2])
def test_one_shape_on_streams_and_in_a_graph(kernel, splits):
    """A prepared shape, of one kernel and two: the current stream changes from call to call, one call is recorded, and
    others come between its replays."""
    torch = pytest.importorskip("torch")
    cases = [Case(2, 64, 14, 14, 64, seed=seed) for seed in range(3)]
    xs = [torch.from_numpy(case.x).cuda() for case in cases]
    conv = Conv2d(cases[0].weight, device=DEVICE, splits=splits, **kernel)
    wanted = [conv(x) for x in xs]
    graph, fed = torch.cuda.CUDAGraph(), xs[0].clone()
    with torch.cuda.graph(graph):
        out = conv(fed)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    for turn in range(60):
        with torch.cuda.stream(streams[turn % 3]):
            found = [conv(x) for x in xs]
        fed.copy_(xs[turn % 3])
        graph.replay()
        torch.cuda.synchronize()
        assert all(map(torch.equal, found, wanted)) and torch.equal(out, wanted[turn % 3])


def test_a_graph_of_the_loader(kernel):
    case = Case(8, 64, 14, 14, 64)
    x, y, u = Buffer.of(case.x), Buffer(case.residual.shape), Buffer(sizes.filter_floats(64, 64))
    kernels = code.Kernels.of(code.arch_of(x.gpu), *kernel.values())
    module, w = kernels.load(DEVICE), Buffer.of(case.weight)
    shape = sizes.Shape(8, 64, 14, 14, 64, kernel=kernels.main)

    def record(stream):
        launch.transform(module, w, u, 64, 64, stream=stream)
        launch.convolve(module, shape, x, u, y, sms=cost.sms(DEVICE), stream=stream)

    Graph(record).launch()
    assert relative_error(y.numpy(), case.y()) < 1e-6


def test_cupy(kernel):
    cupy = pytest.importorskip("cupy")
    case = Case(5, 20, 9, 8, 70, 1, "CHWN")
    with cupy.cuda.Stream(non_blocking=True):
        conv = Conv2d(cupy.asarray(case.weight), cupy.asarray(case.bias), 1, "relu", "CHWN", **kernel)
        y = conv(cupy.asarray(case.x), cupy.asarray(case.residual))
        assert type(y) is cupy.ndarray and relative_error(y.get(), case.y(1, 1, 1)) < 1e-6


def test_threads_with_streams_of_their_own(kernel):
    torch = pytest.importorskip("torch")
    cases = [Case(n, 16, 10, 10, 64, seed=0) for n in (1, 2, 3, 4)]
    conv, errors = Conv2d(torch.from_numpy(cases[0].weight).cuda(), **kernel), {}

    def work(n):
        case = Case(n + 1, 16, 10, 10, 64, seed=0)
        exact = Conv2d(cases[0].weight, arch="sm_75")(case.x)  # on the CPU device
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.from_numpy(case.x).cuda()
            found = [conv(x) for _ in range(50)]
            errors[n] = max(relative_error(y.cpu().numpy(), exact) for y in found)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(errors) == [0, 1, 2, 3] and max(errors.values()) < 1e-6


@pytest.mark.alone
def test_memory_comes_back():
    torch = pytest.importorskip("torch")
    weight = np.ones((512, 512, 3, 3), np.float32)  # U: 16 MB
    Conv2d(weight, device=DEVICE).close()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(5):
        with Conv2d(weight, np.ones(512, np.float32), device=DEVICE):
            pass
        Conv2d(weight, device=DEVICE)  # forgotten
    assert torch.cuda.mem_get_info()[0] > before - (20 << 20)


@pytest.mark.alone
def test_what_a_call_costs(kernel, request):
    """Of Python and the driver: 1 x 1 images, which take the GPU as long as nothing."""
    torch = pytest.importorskip("torch")
    x = torch.ones((1, 8, 1, 1), device="cuda")
    conv = Conv2d(np.ones((64, 8, 3, 3), np.float32), device=DEVICE, **kernel)
    out = conv(x)

    def some():
        for _ in range(50):
            conv(x, out=out)

    best = 1e9
    for _ in range(20):
        torch.cuda.synchronize()
        best = min(best, timeit.timeit(some, number=1) / 50)
    print(f"{request.node.name}: {best * 1e6:.1f} us a call")
    assert best < 15e-6

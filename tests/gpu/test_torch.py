"""turingas::conv2d and convert on a real GPU with PyTorch: graphs, streams, threads, several GPUs, whole networks."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from kernels_sass.bench import networks  # noqa: E402
from kernels_sass.torch import Conv2d, conv2d, convert  # noqa: E402
from kernels_sass.torch.models import random_inputs, random_model  # noqa: E402
from loader import cuda  # noqa: E402
from tests import inductor  # noqa: E402

inductor.apart()


@pytest.fixture(autouse=True)
def exactly():
    """TF32 off, no gradients."""
    before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    with torch.no_grad():
        yield
    torch.backends.cudnn.allow_tf32 = before


def given(device="cuda", n=4, c=32, size=28, k=64, **more):
    random = torch.Generator(device).manual_seed(0)
    shapes = (n, c, size, size), (k, c, 3, 3), (k,), (n, k, size, size)
    return [torch.randn(shape, device=device, generator=random, **more) for shape in shapes]


def exact(x, weight, bias, residual):
    y = torch.nn.functional.conv2d(x.double(), weight.double(), bias.double(), padding=1)
    return (y + residual).relu()


def off(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("last", [False, True])
def test_numbers(last):
    arguments = given()
    if last:
        arguments[0] = arguments[0].contiguous(memory_format=torch.channels_last)
    y = conv2d(*arguments, 1, True)
    assert off(y, exact(*arguments)) < 2e-6 and y.is_contiguous(memory_format=torch.channels_last) == last


def test_opcheck():
    with torch.enable_grad():
        learned = [one.requires_grad_() for one in given(n=1, c=8, size=6, k=8)]
        found = torch.library.opcheck(torch.ops.turingas.conv2d.default, (*learned, 1, True))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_compile(mode):
    torch._dynamo.reset()
    model, x = random_model("resnet18").cuda(), random_inputs("resnet18", 2)[0].cuda()
    made, _ = convert(model, x)
    exact = copy.deepcopy(model).double()  # made has parameters of model itself
    wanted, compiled = exact(x.double()), torch.compile(made, fullgraph=True, mode=mode)
    for _ in range(4):  # in which graphs are captured and replayed
        assert off(compiled(x), wanted) < 1e-5


def test_captured_graph():
    """It keeps its filters, whatever becomes of them; the next call has the new ones."""
    x, weight, bias, residual = given()
    conv2d(x, weight, bias, residual, 1, True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = conv2d(x, weight, bias, residual, 1, True)
    wanted = exact(x, weight, bias, residual)
    weight.mul_(2)
    assert off(conv2d(x, weight, bias, residual, 1, True), exact(x, weight, bias, residual)) < 2e-6
    y.fill_(float("nan"))
    graph.replay()
    assert off(y, wanted) < 2e-6


def test_streams_and_threads():
    """Each thread on a stream of its own, behind work that its x waits for."""
    x, weight, bias, residual = given()
    wanted = exact(x, weight, bias, residual)
    torch.cuda.synchronize()

    def work(number):
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            mine = torch.zeros_like(x)
            torch.cuda._sleep(1_000_000)
            mine.copy_(x)
            y = conv2d(mine, weight, bias, residual, 1, True)
        stream.synchronize()
        return off(y, wanted)

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, range(16))) < 2e-6


def test_several_gpus():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    layer = Conv2d(32, 64, 3, padding=1)
    for number in (1, 0, 1):
        device = f"cuda:{number}"
        layer, x = layer.to(device), given(device)[0]
        wanted = torch.nn.functional.conv2d(x.double(), layer.weight.double(), layer.bias.double(), padding=1)
        assert off(layer(x), wanted) < 2e-6


def test_autocast_and_inference_mode():
    arguments = given()
    with torch.inference_mode(), torch.autocast("cuda", torch.float16):
        y = conv2d(arguments[0].half(), *arguments[1:], 1, True)
        assert y.dtype is torch.float32 and off(y, exact(arguments[0].half(), *arguments[1:])) < 2e-6


def test_export_and_aot_inductor(tmp_path):
    model, x = random_model("resnet18", width=32).cuda(), random_inputs("resnet18", 2, scale=4)[0].cuda()
    made, _ = convert(model, x)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(made.traced, (x,), dynamic_shapes=({0: batch},))
    loaded = torch._inductor.aoti_load_package(
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "made.pt2"), inductor_configs=inductor.PACKAGED
        )
    )
    for n in (2, 5):
        x = random_inputs("resnet18", n, scale=4)[0].cuda()
        assert off(loaded(x), copy.deepcopy(model).double()(x.double())) < 1e-5


@pytest.mark.alone
def test_tune():
    """Each layer of ours has been timed both ways, and who is there is the faster."""
    model, x = random_model("resnet18").cuda(), random_inputs("resnet18", 8)[0].cuda()
    made, report = convert(model, x, tune=True)
    timed = [row for row in report.rows if row.ms]
    assert len(timed) == (21 if cuda.device(0).arch == "sm_90" else 13)  # all, where there is HGMMA
    assert all(0 < ms < 10 for row in timed for ms in row.ms.values())
    for row in timed:
        assert row.by.startswith("turingas") == min(row.ms, key=row.ms.__getitem__).startswith("turingas")
    assert off(made(x), model.double()(x.double())) < 1e-5


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_networks(name):
    """Everybody is right, and recorded; ours and PyTorch."""
    asked = networks.Asked(who=("eager", "ours", "ours, linear"), runs=20)
    entry = networks.setting(name, 2, cuda.device(0), asked)
    for row in entry["rows"]:
        assert row["status"] == "ok" and row["how"] == "graph" and row["error"] < 1e-5, row
        assert row["top1"] in (None, 1), row


@pytest.mark.alone
def test_more_than_4_gib():
    """Layers of the UNet with 128 images and of the decoder with 32, whose results take more."""
    x, weight = torch.randn(524288, 320, device="cuda"), torch.randn(2560, 320, device="cuda")
    y = torch.ops.turingas.linear(x, weight, None, "none")
    assert all(off(y[rows], x[rows].double() @ weight.double().T) < 1e-5 for rows in (slice(64), slice(-64, None)))
    narrow = torch.randn(320, 2560, device="cuda")
    z = torch.ops.turingas.linear(y, narrow, None, "none")
    assert all(off(z[rows], y[rows].double() @ narrow.double().T) < 1e-5 for rows in (slice(64), slice(-64, None)))
    del x, y, z
    torch.cuda.empty_cache()
    for size, padding in ((3, 1), (1, 0)):
        weight = torch.randn(128, 256, size, size, device="cuda")
        for order in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(32, 256, 512, 512, device="cuda").contiguous(memory_format=order)
            y = conv2d(x, weight, None, None, padding)
            for image in (slice(1), slice(-1, None)):
                exactly = torch.nn.functional.conv2d(x[image].double(), weight.double(), padding=padding)
                assert off(y[image], exactly) < 1e-5
            del x, y
            torch.cuda.empty_cache()

"""Tensors whose memory does not hold their numbers: conjugates and views with the sign changed, which PyTorch computes
when its own operators read them. All that takes memory refuses them, also behind tensors like them that it took."""

from __future__ import annotations

import dataclasses
import importlib
import struct

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import loader  # noqa: E402
from kernels_sass.conv import Conv2d, libraries  # noqa: E402
from kernels_sass.gemm import gemm  # noqa: E402
from loader import arrays  # noqa: E402
from loader.cuda import packer  # noqa: E402
from tests.emulate.test_device import ADD  # noqa: E402
from tests.loader.conftest import install  # noqa: E402, F401
from tests.loader.driver import Driver  # noqa: E402
from turingas import assemble  # noqa: E402
from turingas.errors import LaunchError  # noqa: E402

N = 64
CONJUGATE = r"is the conjugate of what its memory holds .*\nhint: pass x.resolve_conj\(\)"
NEGATED = r"is a view with the sign changed .*\nhint: pass x.resolve_neg\(\)"


def complexes():
    return torch.ones(N // 2, dtype=torch.complex64)


#: a plain tensor, another with the same type, sizes, strides and memory, and what is said of that
ODD = {
    "conjugate": (complexes, lambda x: x.conj(), CONJUGATE),
    "conjugate, both": (complexes, lambda x: torch._neg_view(x).conj(), CONJUGATE),
    "negated": (lambda: torch.ones(N), torch._neg_view, NEGATED),
    "negated, complex": (complexes, torch._neg_view, NEGATED),
    "imaginary part": (lambda: torch.ones(1), lambda x: torch.ones(1, dtype=torch.complex64).conj().imag, NEGATED),
}


@pytest.fixture
def gpu(install, monkeypatch):  # noqa: F811
    """Tensors in the host's memory say that they are there; nothing runs."""
    driver = install(Driver(gpus=1, major=9, minor=0))
    driver.run = lambda launch: None

    def read(x, stream):
        address, nbytes, place, contiguous = arrays._torch(x, stream)
        return address, nbytes, place + 1, contiguous

    kind = arrays.Kind(read, lambda x: 0, arrays.TORCH.replace("{here}", "{here} - 1"), lambda place: 0,
                       arrays.torch_alike(torch), arrays.TORCH_MET)  # fmt: skip
    made = libraries._torch(kind)

    def seen(x, dtype):
        address, place = made.seen(x, dtype)
        return address, place + 1

    for one in (torch.Tensor, torch.nn.Parameter):
        monkeypatch.setitem(arrays.KINDS, one, kind)
        monkeypatch.setitem(libraries.LIBRARIES, one, dataclasses.replace(made, seen=seen))
    return driver


@pytest.fixture
def kernel(gpu, install):  # noqa: F811
    install(Driver(gpus=1)).run = lambda launch: None
    return loader.load(assemble(ADD), "cuda:0").kernel("add")


def passed(kernel):
    """The two addresses of the last launch."""
    return struct.unpack_from("<QQ", kernel._area.bytes)


@pytest.mark.parametrize("guards", [True, False])
@pytest.mark.parametrize("what", ODD)
def test_launches_refuse_them(kernel, what, guards, monkeypatch):
    """The first launch, and those after launches of tensors like them; also where PyTorch cannot tell many at once."""
    if not guards:
        monkeypatch.setattr(packer.Packer, "again", lambda self, left, *tensors: (packer.never, 0))
    make, turn, message = ODD[what]
    out, good = torch.zeros(N), make()
    for times in (0, 3):
        for _ in range(times):
            kernel.launch(2, 32, out, good, N, 2.0)
            assert passed(kernel) == (out.data_ptr(), good.data_ptr())
        for given in ((out, turn(good)), (turn(good), out)):
            with pytest.raises(LaunchError, match=rf"(?s)argument \d \((in|out)\) of add,? {message}"):
                kernel.launch(2, 32, *given, N, 2.0)
    with pytest.raises(LaunchError, match=rf"(?s)argument 1 \(in\) of add {message}"):
        kernel.prepare(2, 32, out, turn(good), N, 2.0)


def test_tensors_that_change(kernel):
    """Sizes, dtypes, modes, and what is asked again: the addresses are right, and all that is wrong is told."""
    out, asked, real = torch.zeros(N), [], packer.Packer.again
    packer.Packer.again = lambda self, left, *tensors: asked.append(left) or real(self, left, *tensors)
    try:
        for n in range(packer.ALIKE + 3):
            for _ in range(3):
                good = torch.ones(N + n, dtype=torch.float32 if n % 3 else torch.float16)
                kernel.launch(2, 32, out, good, N, 2.0)
                assert passed(kernel) == (out.data_ptr(), good.data_ptr())
            for bad in (torch._neg_view(good), good[::2], good[:0]):
                with pytest.raises(LaunchError, match=r"argument 1 \(in\) of add"):
                    kernel.launch(2, 32, out, bad, N, 2.0)
        assert asked == list(range(packer.ALIKE, 0, -1))
        with torch.inference_mode():
            kernel.launch(1, 32, out, torch.ones(N), N, 2.0)
            kernel.launch(1, 32, out, torch.ones(N), N, 2.0)
        assert asked[packer.ALIKE :] == [packer.ALIKE]  # a grid of its own
    finally:
        packer.Packer.again = real
    gone = torch.ones(N)
    kernel.launch(1, 32, out, gone, N, 2.0)
    kernel.launch(1, 32, out, gone, N, 2.0)
    gone.untyped_storage().resize_(0)
    with pytest.raises(LaunchError, match=r"argument 1 \(in\) of add, a Tensor, has no memory"):
        kernel.launch(1, 32, out, gone, N, 2.0)


@pytest.mark.parametrize("what", ODD)
def test_the_cpu_device_refuses_them(what):
    make, turn, message = ODD[what]
    kernel, out, good = loader.load(assemble(ADD), "cpu").kernel("add"), torch.zeros(N), make()
    if good.numel() > 1:
        kernel.launch(2, 32, out, good, N, 2.0)
        assert torch.equal(out, 2 * (torch.view_as_real(good) if good.is_complex() else good).reshape(-1))
    for given in ((out, turn(good)), (turn(good), out)):
        with pytest.raises(LaunchError, match=rf"(?s)argument \d \((in|out)\) of add {message}"):
            kernel.launch(2, 32, *given, N, 2.0)


def test_tensor_maps_refuse_them():
    image = torch.ones(8, 32)
    assert loader.tensor_map(image, (8, 32)).memory.size == 8 * 32 * 4
    with pytest.raises(LaunchError, match=f"(?s)^the array {NEGATED}"):
        loader.tensor_map(torch._neg_view(image), (8, 32))


@pytest.mark.parametrize("kernel", [None, "hgmma"])
def test_conv2d_on_a_gpu(gpu, kernel):
    """Also where a tensor of the same shape came before, which ``seen`` alone is asked of."""
    layer = Conv2d(np.ones((8, 8, 3, 3), np.float32), kernel=kernel, device="cuda:0")
    x, y = torch.ones(1, 8, 4, 4), torch.ones(1, 8, 4, 4)
    for _ in range(3):
        layer(x, y)
        layer(x, None, y)
    for name, given in (("x", (torch._neg_view(x),)), ("residual", (x, torch._neg_view(y))),
                        ("out", (x, None, torch._neg_view(y)))):  # fmt: skip
        with pytest.raises(LaunchError, match=f"(?s)^{name} {NEGATED}"):
            layer(*given)


def test_gemm_on_a_gpu(gpu, monkeypatch):
    multiply = importlib.import_module("kernels_sass.gemm")
    for name, value in (("PLANS", {}), ("_place", lambda array: 0), ("_taken", lambda array: array)):
        monkeypatch.setattr(multiply, name, value)
    a, b, bias, out = torch.ones(8, 8), torch.ones(8, 8), torch.ones(8), torch.zeros(8, 8)
    for _ in range(3):
        gemm(a, b, out, bias=bias)
    for name in ("A", "B", "bias", "out"):
        given = {"A": a, "B": b, "bias": bias, "out": out}
        given[name] = torch._neg_view(given[name])
        with pytest.raises(LaunchError, match=f"(?s)^{name} {NEGATED}"):
            gemm(given["A"], given["B"], given["out"], bias=given["bias"])

"""What launches and calls of Conv2d, gemm and Linear cost the host beside the driver, without a GPU:
``python -m tests.bench.host``.

cuda-python finds a driver in C that does nothing (libcuda.c, compiled by cc), and the ways of `turingas bench host` are
timed over it, in microseconds of the processor, so that what else runs on the machine counts little. Where PyTorch is
installed its tensors in the host's memory say that they are on the GPU.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TURNS, CALLS = 15, 4000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "libcuda.so.1")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(Path(__file__).parent / "libcuda.c")],
                       check=True)  # fmt: skip
        there = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        command = [sys.executable, "-m", "tests.bench.host", "timed"]
        environment = {**os.environ, "LD_LIBRARY_PATH": there, "OMP_NUM_THREADS": "1"}
        sys.exit(subprocess.run(command, env=environment).returncode)


def timed() -> None:
    from kernels_sass import conv
    from kernels_sass.bench import host
    from kernels_sass.conv import libraries
    from kernels_sass.gemm import gemm, prepare
    from loader import cuda
    from loader.bench import measure
    from loader.cuda import Buffer

    gpu = cuda.device(0)
    assert gpu.name == "no GPU", f"there is {gpu.name}: `turingas bench host` measures it"
    torch = pytorch()
    measure.torch = lambda: torch  # type: ignore[assignment]
    gpu.driver.cuCtxPushCurrent(gpu.context)
    rows: dict[str, Callable[[], Any]] = dict(host.launches(gpu)[0])
    rows["cuCtxGetCurrent, compared"] = lambda: gpu.driver.cuCtxGetCurrent()[1] != gpu.context
    for kernels in (1, 2):
        for added in ((), ("bias", "residual")):
            ways, _, _ = host.layers(host.Setting("NCHW", kernels, added), gpu)
            what = f"{kernels} kernel{'s' * (kernels > 1)}{''.join(f', {one}' for one in added)}"
            rows |= {f"{name}: {what}": way for name, way in ways.items() if name not in (host.SAME, host.ALONE)}
    for layout, kernels in (("NHWC", 1), ("NCHW", 2)):  # by products; pack.sass brings NCHW into order
        layer = conv.Conv2d(np.zeros((16, 32, 3, 3), np.float32), layout=layout, device="cuda:0", kernel="hgmma")
        shape = [{"N": 1, "C": 32, "H": 4, "W": 4}[axis] for axis in layout]
        what, buffer, out = f"HGMMA, {kernels} kernel{'s' * (kernels > 1)}", *(
            Buffer.of(np.zeros(size, np.float32), gpu) for size in (shape, [16 if n == 32 else n for n in shape]))
        rows[f"{host.BUFFERS}: {what}"] = lambda layer=layer, x=buffer, y=out: layer(x, out=y)
        if torch is not None:
            tensor = torch.zeros(*shape)
            rows[f"{host.OURS}: {what}"] = lambda layer=layer, x=tensor: layer(x)
    a, b, c = (Buffer.of(np.zeros(size, np.float32), gpu) for size in ((1, 768), (768, 768), (1, 768)))
    ready = prepare(b, transpose_b=True)
    rows["gemm of Buffers, one row, B prepared"] = lambda: gemm(a, ready, c)
    rows["gemm of Buffers, one row"] = lambda: gemm(a, b, c, transpose_b=True)
    if torch is not None:
        x = torch.zeros(1, 16, 4, 4)
        rows["new_empty of PyTorch"] = lambda: x.new_empty(1, 16, 4, 4)
        rows["y as Conv2d makes it"] = libraries.library_of("x", x).again(x, (1, 16, 4, 4))
        torch.set_grad_enabled(False)
        operator: Any = importlib.import_module("kernels_sass.torch.operator")
        operator.kernels_on_cpu = lambda: True  # tensors on a GPU do not ask
        for what, setting in host.PRODUCTS.items():
            ways, _, _ = host.linears(setting, "cpu")
            rows |= {f"{name}: {what}": ways[name] for name in (host.LINEAR, host.FUNCTION, host.GEMM)}
    best = dict.fromkeys(rows, 1e9)
    for _ in range(TURNS):
        for name, way in rows.items():
            start = time.process_time()
            for _ in range(CALLS):
                way()
            best[name] = min(best[name], (time.process_time() - start) / CALLS * 1e6)
    for name, us in best.items():
        print(f"{name:55} {us:6.2f} us")


def pytorch() -> Any:
    """PyTorch, whose tensors pass for a GPU's: only the number of the place that they tell differs, so all that is
    called is what is called for theirs."""
    try:
        import torch
    except ImportError:
        return None
    from kernels_sass.conv import libraries
    from loader import arrays

    def place(tensor: Any) -> int:
        return int(tensor.get_device() + 1)

    def seen(x: Any, dtype: str) -> libraries.Seen:
        address, there = ask(x, dtype)
        return address, there + 1

    def stream(tensor: Any) -> int:
        return 0 if place(tensor) < 0 else raw(place(tensor))

    raw: Callable[[int], int] = [0].__getitem__  # _cuda_getCurrentRawStream cannot be called without a GPU
    kind = arrays.Kind(lambda x, stream: (x.data_ptr(), x.nbytes, place(x), x.is_contiguous()), stream,
                       arrays.TORCH.replace("{here}", "{here} - 1"), raw,
                       arrays.torch_alike(torch), arrays.TORCH_MET)  # fmt: skip
    made = libraries._torch(kind)
    ask = made.seen
    multiply: Any = importlib.import_module("kernels_sass.gemm")
    multiply._place, multiply._taken = lambda array: 0, lambda array: array
    arrays.KINDS[torch.Tensor], libraries.LIBRARIES[torch.Tensor] = kind, dataclasses.replace(made, seen=seen)

    class OnHost:
        """The functions that `bench host` calls, with tensors that stay where they are."""

        nn, channels_last, set_grad_enabled = torch.nn, torch.channels_last, staticmethod(torch.set_grad_enabled)
        from_numpy = staticmethod(lambda array: torch.from_numpy(array))

        @staticmethod
        def zeros(*sizes: int, device: str = "") -> Any:
            return torch.zeros(*sizes)

        @staticmethod
        def as_tensor(buffer: Any, device: str) -> Any:
            return torch.zeros(buffer.shape)

    OnHost.from_numpy = staticmethod(lambda array: _Stays(torch.from_numpy(array)))
    return OnHost


class _Stays:
    """A tensor of the ways that are not timed here."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def to(self, device: str) -> Any:
        return self.tensor


if __name__ == "__main__":
    timed() if sys.argv[1:] == ["timed"] else main()

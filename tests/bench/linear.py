"""Linear layers by ``kernels_sass.gemm`` beside PyTorch's, on a GPU: ``python -m tests.bench.linear [FILE]``.

Those of the networks that `turingas bench networks` has, with few rows and many, in float32 with TF32 off. Each as a
CUDA graph of calls with other weights, which together do not fit into the L2: in a network they are not there either.
Both are compared with float64 first. Microseconds a call, medians of rounds in which both take turns. The FILE gets the
times; what is faster with which rows decides what ``convert`` takes (``kernels_sass/torch/table.py``).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from kernels_sass.torch.product import ACTIVATIONS, Linear
from kernels_sass.torch.tune import milliseconds
from loader import cuda
from loader.bench import results

BYTES, MOST = 120 << 20, 24  # of all weights; calls in a graph
ROWS = (1, 2, 8, 16, 32, 64, 77, 128, 197, 256, 512, 616, 1024, 1576, 2464, 4096, 6304, 8192, 25216, 32768)
LARGEST = 1 << 36  # products of a layer, about a millisecond
BOUND = 1e-5  # of the relative L2 error against float64; TF32's would be 3e-4
LAYERS = {
    (512, 1000): ("resnet18, 34", "none"), (1024, 1000): ("densenet121", "none"), (2048, 1000): ("resnet50", "none"),
    (25088, 4096): ("vgg16", "relu"), (4096, 4096): ("vgg16", "relu"), (4096, 1000): ("vgg16", "none"),
    (768, 2304): ("vit_b_16", "none"), (768, 768): ("vit_b_16", "none"), (768, 3072): ("vit_b_16", "gelu"),
    (3072, 768): ("vit_b_16", "none"), (768, 1000): ("vit_b_16", "none"),
    (320, 320): ("unet", "none"), (640, 640): ("unet", "none"), (1280, 1280): ("unet", "none"),
    (320, 1280): ("unet", "none"), (1280, 320): ("unet", "none"), (1280, 640): ("unet", "none"),
    (768, 320): ("unet", "none"), (768, 640): ("unet", "none"), (768, 1280): ("unet", "none"),
    (320, 2560): ("unet", "none"), (640, 5120): ("unet", "none"), (2560, 640): ("unet", "none"),
    (1280, 10240): ("unet", "none"), (5120, 1280): ("unet", "none"),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("FILE", type=Path, nargs="?")
    file = parser.parse_args().FILE
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, Any] = {**results.facts("tests.bench.linear", cuda.device(0), ()), "rows": []}
    for (c, k), (where, activation) in LAYERS.items():
        line = []
        for rows in ROWS:
            if rows * c * k > LARGEST:
                break
            ours, theirs = timed(rows, c, k, activation)
            found["rows"].append({"c": c, "k": k, "rows": rows, "activation": activation, "ours_us": round(ours, 2),
                                  "torch_us": round(theirs, 2)})  # fmt: skip
            line.append(f"{rows}: {theirs / ours:.2f}")
        print(f"{c:>5} -> {k:<5} {activation:4} {where:12} {'  '.join(line)}", flush=True)
        if file is not None:
            results.keep(file, found)


def timed(rows: int, c: int, k: int, activation: str) -> tuple[float, float]:
    """Of ours and PyTorch's."""
    count = max(1, min(MOST, BYTES // (4 * c * k)))
    x, bias = torch.randn(rows, c, device="cuda"), torch.randn(k, device="cuda")
    layers = []
    for _ in range(count):
        layers.append(Linear(c, k, device="meta", activation=activation).eval())
        layers[-1].weight = torch.nn.Parameter(torch.randn(k, c, device="cuda"), False)
        layers[-1].bias = torch.nn.Parameter(bias, False)
    act, linear = ACTIVATIONS[activation], torch.nn.functional.linear
    ways = [lambda: [layer(x) for layer in layers], lambda: [act(linear(x, one.weight, one.bias)) for one in layers]]
    for way, who in zip(ways, ("ours", "PyTorch")):
        for layer, y in zip(layers, way()):
            compare(who, y, x, layer)
    ours, theirs = milliseconds(ways, 1)
    return 1e3 * ours / count, 1e3 * theirs / count


def compare(who: str, y: torch.Tensor, x: torch.Tensor, layer: Linear) -> None:
    """ArithmeticError if y is not what the layer makes of x in float64."""
    given = (one.double() for one in (x, layer.weight, layer.bias))
    exact = ACTIVATIONS[layer.activation](torch.nn.functional.linear(*given))
    error = float((y.double() - exact).norm() / exact.norm())
    if not error <= BOUND:
        raise ArithmeticError(f"{who}, {tuple(x.shape)}, {layer}: a relative L2 error of {error:.1e} against float64")


if __name__ == "__main__":
    main()

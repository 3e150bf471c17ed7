"""What torch.compile's max-autotune chooses from, compiled beforehand.

In this mode Triton compiles many candidates for a convolution, and PyTorch waits for all of them before it comes to the
next one. In float32 without TF32 the largest take long, and meanwhile most processors are idle. Here each layer is
compiled alone, all beside each other, in processes that share Triton's folder; the network finds the candidates there,
and times them and chooses as it would have.
"""

from __future__ import annotations

import importlib
import math
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from loader.bench.contenders import cudnn_settings

MODE = "max-autotune-no-cudagraphs"
THREADS = "TORCHINDUCTOR_COMPILE_THREADS"  # of the environment: how many processes of PyTorch's compile at once
TRITON = "TRITON_CACHE_DIR"  # of the environment: where Triton keeps what it has compiled


def told() -> dict[str, Any]:
    """The options of torch.compile that MODE stands for, and that threads of this process compile the candidates. If
    the processes are there in which Inductor compiles else (once something was compiled before), it asks these, and
    nevertheless compiles each candidate again when its turn to be timed has come: a layer takes minutes then."""
    inductor = importlib.import_module("torch._inductor")
    return {**inductor.list_mode_options(MODE), "compile_threads": 1}


class Layer(NamedTuple):
    """A convolution or a linear layer, and what it is given: ``last``: in channels_last."""

    kind: str  # the class of torch.nn
    arguments: tuple[Any, ...]
    shape: tuple[int, ...]
    last: bool


def layers_of(torch: Any, model: Any, inputs: tuple[Any, ...]) -> list[Layer]:
    """The different ones of a model, which is called once."""
    found: dict[Layer, None] = {}

    def seen(module: Any, given: tuple[Any, ...]) -> None:
        x, bias = given[0], module.bias is not None
        if isinstance(module, torch.nn.Linear):
            found[Layer("Linear", (module.in_features, module.out_features, bias), tuple(x.shape), False)] = None
            return
        arguments = (module.in_channels, module.out_channels, module.kernel_size, module.stride, module.padding,
                     module.dilation, module.groups, bias)  # fmt: skip
        last = not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
        found[Layer("Conv2d", arguments, tuple(x.shape), last)] = None

    taken = torch.nn.Conv2d, torch.nn.Linear
    hooks = [one.register_forward_pre_hook(seen) for one in model.modules() if isinstance(one, taken)]
    try:
        with cudnn_settings(torch, False), torch.no_grad():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return list(found)


def compiled(layers: Sequence[Layer], device: str, until: float = math.inf) -> None:
    """Their candidates lie in Triton's folder then; this process, too, looks there from now on. What cannot be compiled
    alone is left to whoever compiles the network. Processes that are still at it at ``until``, by time.time(), end."""
    os.environ.setdefault(TRITON, str(Path.home() / ".triton" / "cache"))
    processors = int(os.environ.get(THREADS) or os.cpu_count() or 1)
    several = max(1, min(len(layers), processors))
    threads = max(2, 2 * processors // several)
    with ProcessPoolExecutor(several, multiprocessing.get_context("spawn")) as pool:
        for one in [pool.submit(alone, layer, device, threads, until) for layer in layers]:
            one.exception()


def alone(layer: Layer, device: str, threads: int, until: float = math.inf) -> None:
    """Compile a layer, in a process that has not imported PyTorch yet. What it chooses while others use the GPU is kept
    in a folder that goes."""
    if math.isfinite(until):
        clock = threading.Timer(max(0.0, until - time.time()), os._exit, (1,))
        clock.daemon = True
        clock.start()
    folder = tempfile.mkdtemp()
    os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
                   THREADS: str(threads)}  # fmt: skip
    try:
        import torch

        model = getattr(torch.nn, layer.kind)(*layer.arguments).to(device).eval()
        x = torch.randn(layer.shape, device=device)
        if layer.last:
            model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
        with cudnn_settings(torch, False), torch.no_grad():
            torch.compile(model, fullgraph=True, dynamic=False, options=told())(x)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

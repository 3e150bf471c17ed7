"""Which way to compute a layer is the fastest on a GPU: each as a CUDA graph, in turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernels_sass.torch.report import Row
from kernels_sass.torch.table import GELU, GELU_TANH, LINEAR, NORM, RELU, RESIDUAL, Entry, Found
from turingas.errors import LaunchError

CALLS, WARM, ROUNDS = 10, 2, 7  # calls in a graph, at least; rounds before, and those of which the median is taken
LEAST = 0.5  # ms that a graph takes, beside which its start, about a microsecond, is little


class NoGpu(LaunchError):
    """There is nothing to time on."""


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether there is something to time on."""
    return tensor.is_cuda


def fastest(found: Found, able: Sequence[Entry], row: Row) -> list[Entry]:
    """The entries that are faster than PyTorch's own operators, the fastest first, each with what it does not fold in
    done by PyTorch; the times are written into the row, and why ours is not there, if it is not."""
    if not on_gpu(found.weight):
        raise NoGpu("tune=True times layers on a GPU", "move the network and the example there: model.cuda()")
    ways: dict[Entry | None, Callable[[], Any]] = {None: _theirs(found)}
    for entry in able:
        ways[entry] = _way(found, entry)
    times = milliseconds(list(ways.values()))
    order = sorted(zip(times, ways), key=lambda one: one[0])
    for ms, one in order:
        name = one.name if one and one.ours else "PyTorch" + (", folded" if one else "")
        row.ms[name] = float(f"{ms:.4g}")
    faster = [entry for _, entry in order[: [entry for _, entry in order].index(None)] if entry is not None]
    if not faster or not faster[0].ours:
        row.why = "slower"
    return faster


def _inputs(found: Found) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Random x, and what is added if something is, lying as in the example."""
    def like(meta: Any) -> torch.Tensor:
        made = torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=found.weight.device)
        return made.normal_()

    added = next((other for kind, _, other in found.steps if kind == RESIDUAL), None)
    return like(found.x), None if added is None else like(added.meta["tensor_meta"])


def _rest(y: torch.Tensor, added: torch.Tensor | None, steps: Sequence[Any]) -> torch.Tensor:
    """What is left of the steps, by PyTorch."""
    for kind, _, norm in steps:
        if kind == NORM:
            moments = norm.running_mean, norm.running_var
            y = torch.nn.functional.batch_norm(y, *moments, norm.weight, norm.bias, eps=norm.eps)
        elif kind == RESIDUAL:
            y = y + added
        elif kind == RELU:
            y = y.relu_()
        elif kind in (GELU, GELU_TANH):
            y = torch.nn.functional.gelu(y, approximate="tanh" if kind == GELU_TANH else "none")
    return y


def _way(found: Found, entry: Entry) -> Callable[[], Any]:
    x, added = _inputs(found)
    done = entry.steps(found)
    module, rest = entry.make(found, done).eval(), found.steps[len(done) :]
    inside = [added] if any(kind == RESIDUAL for kind, *_ in done) else []
    return lambda: _rest(module(x, *inside), added, rest)


def _theirs(found: Found) -> Callable[[], Any]:
    x, added = _inputs(found)
    if found.kind == LINEAR:
        return lambda: _rest(torch.nn.functional.linear(x, found.weight, found.bias), added, found.steps)
    options = {name: found.arguments[name] for name in ("stride", "padding", "dilation", "groups")}
    return lambda: _rest(torch.nn.functional.conv2d(x, found.weight, found.bias, **options), added, found.steps)


def milliseconds(ways: Sequence[Callable[[], Any]], calls: int = CALLS) -> list[float]:
    """Of a call of each: the median of rounds in which their graphs take turns, of so many calls, or more where these
    take less than LEAST. All of a round is queued behind another graph, so no launch of Python's is in it."""
    cudnn, graphs, counts = torch.backends.cudnn, list[Any](), list[int]()
    before, cudnn.benchmark = cudnn.benchmark, True
    try:
        for way in ways:
            graph, count = _recorded(way, calls), calls
            while (ms := _round([graph])[0]) < LEAST:
                count *= math.ceil(LEAST / ms)
                graph = _recorded(way, count)
            graphs.append(graph)
            counts.append(count)
    finally:
        cudnn.benchmark = before
    rounds = [_round(graphs) for _ in range(WARM + ROUNDS)][WARM:]
    return [statistics.median(times) / count for times, count in zip(zip(*rounds), counts)]


def _recorded(way: Callable[[], Any], calls: int) -> Any:
    """A graph of so many."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            way()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        for _ in range(calls):
            way()
    return graph


def _round(graphs: Sequence[Any]) -> list[float]:
    """Milliseconds of each."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in graphs]
    graphs[-1].replay()
    for graph, (first, last) in zip(graphs, events):
        first.record()
        graph.replay()
        last.record()
    events[-1][1].synchronize()
    return [first.elapsed_time(last) for first, last in events]

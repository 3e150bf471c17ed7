"""Every reference on a GPU: right on the ResNet layers of Yan, Wang, Chu 2020 at its four batch sizes, and its time.

The algorithms that are for one input channel are held against a layer of that kind. compute-sanitizer watches each of
them. TURINGAS_RECORD names a file for the result, as kernels_sass/results/references_sm90.json keeps it.

    python -m tests.gpu.test_references    # every algorithm on two small layers, for compute-sanitizer
"""

from __future__ import annotations

import datetime
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from loader import cuda, nvrtc, timing
from loader.bench import results as kept
from loader.reference import Problem, Runner, algorithms, conv2d, cublas, find
from loader.reference.problem import arrange, rearrange_shape, relative_error, truth
from tests.gpu.sanitizer import TOOLS, watch
from tests.gpu.test_agreement import commit

pytestmark = pytest.mark.gpu

BATCHES = (32, 64, 96, 128)
LAYERS = {  # one image of it
    "Conv2": Problem(1, 64, 56, 56, 64, 3, 3, 1, 1),
    "Conv3": Problem(1, 128, 28, 28, 128, 3, 3, 1, 1),
    "Conv4": Problem(1, 256, 14, 14, 256, 3, 3, 1, 1),
    "Conv5": Problem(1, 512, 7, 7, 512, 3, 3, 1, 1),
    "Gray": Problem(1, 1, 112, 112, 64, 3, 3, 1, 1),
}
SETTINGS = [(layer, n) for layer in LAYERS for n in BATCHES if layer != "Gray" or n == 32]

#: Relative L2 error against float64. A sum of 4608 products in float32 is less exact than the small ones of
#: tests/loader/reference; F(4x4,3x3) multiplies by numbers up to 8; half rounds what goes in.
BOUNDS = {"half": 1e-3, "nonfused": 1e-5}
BOUND = 2e-6


def bound(name: str) -> float:
    """For an algorithm."""
    return next((bound for part, bound in BOUNDS.items() if part in name), BOUND)


#: Milliseconds of openCNN's own code (optSTS64) on an H200, as measured when the project began.
OPENCNN = {
    "Conv2": {32: 0.145, 128: 0.557},
    "Conv3": {32: 0.123, 128: 0.523},
    "Conv4": {32: 0.153, 128: 0.481},
    "Conv5": {32: 0.153, 128: 0.611},
}
SLOWER = 1.1  # a comparison with a reference that is slower than this would flatter what is compared

#: Kernels that only bring the filters into the order that the algorithm takes them in: openCNN is given them so.
REARRANGING = {"winograd_crsk"}


class Recorder(Runner):
    """A runner that keeps the launches, to repeat them."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.launches: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def module(self, name: str, options: Sequence[str] = ()) -> Any:
        return _Recorded(super().module(name, options), self)

    def products(self, *args: Any) -> None:
        """Those of cuBLAS are kept as well: im2col is nothing without them."""
        self.launches.append((_Cublas, args, {}))
        _Cublas.launch(*args)

    def repeat(self) -> None:
        for kernel, args, options in self.launches:
            if kernel.name not in REARRANGING:
                kernel.launch(*args, **options)


class _Cublas:
    name = "cublas"
    launch = staticmethod(cublas.products)


class _Recorded:
    """A module of a Recorder."""

    def __init__(self, module: Any, recorder: Recorder) -> None:
        self.module, self.recorder = module, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def kernel(self, name: str | None = None) -> Any:
        kernel, recorder = self.module.kernel(name), self.recorder

        class Recording:
            def launch(self, *args: Any, **options: Any) -> Any:
                recorder.launches.append((kernel, args, options))
                return kernel.launch(*args, **options)

        return Recording()


@pytest.fixture(scope="module")
def run() -> Iterator[Recorder]:
    if len(loader.devices()) == 1:
        pytest.skip("no GPU")
    with Recorder("cuda:0") as found, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cublas, "products", found.products)
        yield found
    _inputs.cache_clear()


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, Any]]:
    """Milliseconds and errors by setting and algorithm; written down at the end where that is asked for."""
    found: dict[str, Any] = {}
    yield found
    if path := os.environ.get("TURINGAS_RECORD"):
        from tests.gpu.cuda import Gpu

        facts = {"date": datetime.date.today().isoformat(), "commit": commit(), **Gpu().description()}
        facts["nvrtc"] = ".".join(map(str, nvrtc.version()))
        facts["clocks_after"] = str(timing.clocks(cuda.device(0)))
        facts["opencnn_ms"] = {f"{layer}N{n}": ms for layer, times in OPENCNN.items() for n, ms in times.items()}
        Path(path).write_text(kept.text({**facts, "results": found}))


def problem_of(layer: str, n: int) -> Problem:
    return Problem(**{**vars(LAYERS[layer]), "n": n})


@functools.lru_cache(maxsize=1)
def _arrays(layer: str) -> tuple[Any, Any, Any]:
    """x, w and the float64 result at the largest batch: smaller ones are its first images."""
    problem = problem_of(layer, max(BATCHES))
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in (problem.x_shape, problem.w_shape))
    return x, w, truth(x, w, problem)


@functools.lru_cache(maxsize=2)
def _inputs(run: Runner, layer: str, n: int, layout: str) -> tuple[Any, Any, Any]:
    """x and w on the GPU, x in the layout, and the result that is to come in the layout."""
    x, w, exact = _arrays(layer)
    return run.array(arrange(x[:n], "NCHW", layout)), run.array(w), arrange(exact[:n], "NCHW", layout)


@pytest.mark.parametrize("name", algorithms())
@pytest.mark.parametrize(("layer", "n"), SETTINGS)
def test_reference(layer: str, n: int, name: str, run: Recorder, results: dict[str, Any]) -> None:
    problem, entry = problem_of(layer, n), find(name)
    if why := entry.supports(problem):
        assert layer != "Gray" and "channel" in why, why
        return  # that it refuses is what is right here
    x, w, exact = _inputs(run, layer, n, entry.layout)
    y = run.empty(rearrange_shape(problem.y_shape, "NCHW", entry.layout))
    run.launches.clear()
    entry.function(run, problem, x, w, y)
    error = relative_error(run.numpy(y), exact)  # NaN where it left something out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "clocks", lambda gpu: None)  # asking takes longer than all that is timed
        time = timing.measure(run.repeat, runs=10, warmup=2)
        warm = timing.measure(run.repeat, runs=20, warmup=2, flush=False)
    results.setdefault(f"{layer}N{n}", {})[name] = {
        "ms": round(time.median, 5), "ms_warm": round(warm.median, 5), "error": float(f"{error:.2g}")
    }  # fmt: skip
    print(f"{layer}N{n:<3} {name:<36} {time.median:8.4f} ms, L2 warm {warm.median:8.4f} ms, error {error:.1e}")
    assert error <= bound(name)


@pytest.mark.alone
@pytest.mark.parametrize("name", ["winograd", "winograd_opencnn"])
def test_as_fast_as_opencnn(name: str, run: Recorder, results: dict[str, Any]) -> None:
    """Within 10%, or faster."""
    ratios = {}
    for layer, times in OPENCNN.items():
        for n, ms in times.items():
            if name not in results.get(f"{layer}N{n}", {}):
                test_reference(layer, n, name, run, results)
            ratios[f"{layer}N{n}"] = round(results[f"{layer}N{n}"][name]["ms_warm"] / ms, 3)
    print(name, ratios)
    assert max(ratios.values()) <= SLOWER


SMALL = [Problem(3, 9, 6, 7, 67, 3, 3, 1, 1), Problem(2, 1, 9, 8, 5, 3, 3, 1, 1)]


def small() -> None:
    """Every algorithm on small layers that fill no block."""
    rng = np.random.default_rng(9)
    for problem in SMALL:
        x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in (problem.x_shape, problem.w_shape))
        exact = truth(x, w, problem)
        for name in algorithms():
            if not find(name).supports(problem):
                error = relative_error(conv2d(x, w, name, padding=problem.padding, device="cuda:0"), exact)
                print(f"{name:<36} {error:.1e}")
                assert error <= bound(name), name


@pytest.mark.parametrize("tool", TOOLS)
def test_sanitizer(tool: str, run: Recorder) -> None:
    printed = watch(tool, "tests.gpu.test_references", timeout=None)
    assert all(name in printed for name in algorithms())


if __name__ == "__main__":
    small()

"""The way that the references take on a GPU, over a driver that runs kernels on the CPU device."""

from __future__ import annotations

import numpy as np
import pytest

from loader.cuda import Buffer
from loader.reference import Runner, cublas, find, run
from loader.reference.problem import Problem, relative_error, truth
from tests.loader.conftest import install  # noqa: F401  (a fixture)
from tests.loader.driver import Driver
from tests.loader.reference import arrays

LAYERS = [Problem(2, 3, 6, 7, 5, 3, 3, 1, 1), Problem(2, 1, 6, 7, 5, 3, 3, 1, 1)]


@pytest.fixture
def runner(install, monkeypatch):  # noqa: F811
    install(Driver(major=9, minor=0))
    monkeypatch.setattr(cublas, "library", lambda: None)
    with Runner("cuda:0") as found:
        yield found


def result(runner, name):
    problem = next(layer for layer in LAYERS if not find(name).supports(layer))
    x, w = arrays(problem)
    return relative_error(run(find(name), problem, x, w, "NCHW", runner), truth(x, w, problem))


@pytest.mark.parametrize(
    "name", ["direct", "tiled", "im2col", "memory_efficient_half", "memory_efficient_single", "winograd"]
)
def test_every_way_to_launch(runner, name):
    assert result(runner, name) <= find(name).tolerance


def test_runner(runner):
    assert runner.device == "cuda:0" and runner.arch == "sm_90"
    source = np.arange(6, dtype=np.float32).reshape(2, 3).T
    array, empty = runner.array(source), runner.empty((2, 3))
    assert isinstance(array, Buffer) and isinstance(empty, Buffer)
    assert (runner.numpy(array) == source).all() and np.isnan(runner.numpy(empty)).all()
    assert runner.numpy(empty).shape == (2, 3)


def test_a_gpu_is_the_default(runner):
    assert Runner().device == "cuda:0" and Runner("cpu").arch == "sm_75"


def test_im2col_takes_cublas_where_it_is(runner, monkeypatch):
    asked = []

    def products(a, b, c, m, n, depth, first, count):
        asked.append((m, n, depth, first, count))
        left, right = a.numpy().reshape(m, depth), b.numpy().reshape(count, depth, n)
        c.copy_from((left @ right).reshape(c.shape))

    monkeypatch.setattr(cublas, "library", lambda: "there")
    monkeypatch.setattr(cublas, "products", products)
    assert result(runner, "im2col") <= 1e-6 and asked == [(5, 42, 27, 0, 2)]
    assert result(runner, "im2col_own") <= 1e-6 and len(asked) == 1

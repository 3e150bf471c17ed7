"""Problems, their float64 truth, the list of algorithms, and what conv2d refuses."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from loader.reference import Algorithm, Runner, algorithms, conv2d, find, problem, run
from loader.reference.problem import Problem, arrange, check, relative_error, truth


def slow_truth(x, w, p):
    """The sum as it is defined, one product at a time."""
    y = np.zeros(p.y_shape)
    for n, k, i, j in np.ndindex(p.y_shape):
        for c, a, b in np.ndindex(p.c, p.r, p.s):
            row, column = i * p.stride + a - p.padding, j * p.stride + b - p.padding
            if 0 <= row < p.h and 0 <= column < p.w:
                y[n, k, i, j] += float(x[n, c, row, column]) * float(w[k, c, a, b])
    return y


@pytest.mark.parametrize(
    "p",
    [
        Problem(2, 3, 5, 4, 2, 3, 3, 1, 1),
        Problem(1, 2, 7, 6, 3, 2, 4, 2, 0),
        Problem(1, 1, 3, 8, 1, 5, 1, 3, 2),
        Problem(2, 1, 1, 1, 2, 1, 1, 1, 0),
    ],
    ids=str,
)
def test_truth(p):
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal(p.x_shape, np.float32), rng.standard_normal(p.w_shape, np.float32)
    y = truth(x, w, p)
    assert y.shape == p.y_shape and y.dtype == np.float64 and y.flags.c_contiguous
    np.testing.assert_allclose(y, slow_truth(x, w, p), rtol=1e-12, atol=1e-13)


def test_output_size_and_work():
    p = Problem(32, 64, 56, 50, 128, 3, 5, 2, 1)
    assert (p.p, p.q) == (28, 24) and p.y_shape == (32, 128, 28, 24)
    assert p.flops == 2 * 32 * 128 * 28 * 24 * 64 * 15


def test_layouts():
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    assert arrange(x, "NCHW", "CHWN").shape == (3, 4, 5, 2) and arrange(x, "NCHW", "CHWN")[2, 1, 3, 1] == x[1, 2, 1, 3]
    assert arrange(x, "NCHW", "NHWC").shape == (2, 4, 5, 3) and arrange(x, "NCHW", "NHWC")[1, 2, 3, 0] == x[1, 0, 2, 3]
    for layout in problem.LAYOUTS:
        assert (arrange(arrange(x, "NCHW", layout), layout, "NCHW") == x).all()


def test_relative_error():
    exact = np.array([3.0, 4.0])
    assert relative_error(np.array([3, 4], np.float32), exact) == 0
    assert relative_error(np.array([3, 4.5], np.float32), exact) == 0.1
    assert relative_error(np.array([0.25], np.float32), np.zeros(1)) == 0.25


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 1, 4, 4, 1, 3, 3), "n is 0; it must be an integer from 1"),
        ((1, 1, 4, 4, 1, 3, 3, 0), "stride is 0"),
        ((1, 1, 4, 4, 1, 3, 3, 1, -1), "padding is -1; it must be an integer from 0"),
        ((1, 1, 4, 4, 1, 3, 3, 1.5), "stride is 1.5"),
        ((1, 1, 4, 4, 1, 7, 3, 1, 1), "filter of 7 rows is larger than an image of 4 with a padding of 1"),
        ((1, 1, 4, 4, 1, 3, 5), "filter of 5 columns is larger"),
        ((1 << 10, 1 << 10, 1 << 6, 1 << 6, 1, 3, 3), "the input, .*, has 4294967296 elements"),
        ((1, 1, 4, 4, 1, 1, 1, 1, 1 << 20), "the output, .* elements"),
    ],
)
def test_sizes_that_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        Problem(*sizes)


X, W = np.ones((2, 3, 6, 5), np.float32), np.ones((4, 3, 3, 3), np.float32)


def test_padding_unless_said():
    assert check(X, W, stride=np.int64(2)) == check(X, W, stride=2)
    assert check(X, W).padding == 1 and check(X, np.ones((4, 3, 2, 2), np.float32)).padding == 0
    assert conv2d(X, W, device="cpu").shape == (2, 4, 6, 5)


def with_value(array, value):
    array = array.copy()
    array[1, 2, 0, 1] = value
    return array


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, W[:, :2]), r"input has 3 channels \(NCHW = \(2, 3, 6, 5\)\) and the filters have 2"),
        ((X, W, "direct", "NHWC"), "input has 5 channels"),
        ((X[0], W), "x has the shape .3, 6, 5.; it must have four sizes .N, C, H, W."),
        ((X, W[:0]), "w has the shape .0, 3, 3, 3.; it must have four sizes .K, C, R, S., none of them 0"),
        ((X.astype(np.float64), W), "x has the dtype float64; it must be float32"),
        ((X, W.astype(np.float16)), "w has the dtype float16"),
        ((X.tolist(), W), "x is a list; it must be a numpy array"),
        ((with_value(X, np.nan), W), r"x is NaN at \(1, 2, 0, 1\) \(1 such of 180\)"),
        ((X, with_value(W, -np.inf)), r"w is infinite at \(1, 2, 0, 1\)"),
        ((X, W, "none"), "no algorithm 'none'; there are: direct, "),
        ((X, W, "direct", "NCWH"), "no layout 'NCWH'; there are: NCHW, CHWN, NHWC"),
        ((X, W, "direct", "NCHW", 1, 1, "cuda:77"), "no device|there is no driver|cuda-python is not there"),
        ((X, np.ones((4, 3, 3, 1), np.float32)), "3 x 1 is not square: say the padding"),
        ((X, np.ones((4, 3, 7, 7), np.float32), "direct", "NCHW", 1, 0), "larger than an image"),
    ],
)
def test_what_conv2d_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        conv2d(*arguments)


def test_the_list():
    names = algorithms()
    assert {"direct", "tiled", "im2col", "im2col_own"} <= set(names) and [find(name).name for name in names] == names


PAGE = (Path(__file__).parents[3] / "docs/references.md").read_text()


def test_the_page_has_the_list():
    table = PAGE.partition("## Algorithms")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    told = {name: layout.strip() for names, layout in rows for name in re.findall("`(.*?)`", names)}
    assert told == {name: find(name).layout for name in algorithms()}


def test_the_page_runs(capsys):
    exec(PAGE.partition("```python\n")[2].partition("```")[0], {})
    assert capsys.readouterr().out == f"{algorithms()} (2, 8, 14, 14)\n"


def test_an_algorithm_that_leaves_outputs_out():
    def first_half(run, p, x, w, y):
        y[:2] = 1  # of four channels

    entry = Algorithm("half", first_half, "CHWN", lambda p: "")
    with Runner("cpu") as runner, pytest.raises(RuntimeError, match="'half' left 120 of 240 outputs unwritten"):
        run(entry, check(X, W), X, W, "NCHW", runner)


def test_a_runner_keeps_its_modules_until_it_is_closed():
    runner = Runner("cpu")
    module = runner.module("direct.cu")
    assert runner.module("direct.cu") is module is not runner.module("direct.cu", ["-DSIDE=64"])
    assert module.cubin.arch == runner.arch == "sm_75"
    runner.close()
    with pytest.raises(ValueError, match="closed"):
        module.kernel("direct")


def test_a_source_of_another_folder(tmp_path):
    """It may include what lies beside it, and what changes there is seen."""
    (tmp_path / "mine.cu").write_text('#include "mine.h"\nextern "C" __global__ void kern(int *out) { *out = VALUE; }')
    for value in (3, 4):
        (tmp_path / "mine.h").write_text(f"#define VALUE {value}\n")
        with Runner("cpu") as runner:
            out = runner.empty((1,), np.int32)
            runner.module(str(tmp_path / "mine.cu")).kernel("kern").launch(1, 1, out)
            assert runner.numpy(out) == [value]


def test_several_threads():
    def work(seed):
        rng = np.random.default_rng(seed)
        x, w = (rng.standard_normal(shape, np.float32) for shape in (X.shape, W.shape))
        return relative_error(conv2d(x, w, ("direct", "tiled")[seed % 2], device="cpu"), truth(x, w, check(x, w)))

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, range(8))) <= 1e-6


def test_arrays_of_a_runner():
    runner = Runner("cpu")
    source = np.arange(6, dtype=np.float32).reshape(2, 3).T
    array = runner.array(source)
    assert (runner.numpy(array) == source).all() and runner.numpy(array).flags.c_contiguous
    assert np.isnan(runner.numpy(runner.empty((2, 2)))).all()
    assert np.isnan(runner.numpy(runner.empty((2, 2), np.float16))).all()
    assert (runner.numpy(runner.empty((2, 2), np.int32)) == -1).all()


def test_for_another_architecture():
    y = conv2d(X, W, device="cpu", arch="sm_80")
    assert relative_error(y, truth(X, W, check(X, W))) <= 1e-6

"""Fused Winograd convolution on the CPU device: against float64, its memory accesses, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import turingas
from loader.reference import Runner, conv2d, find
from loader.reference.problem import Problem, arrange, truth
from loader.reference.winograd import LAYOUTS, MOST_FILTERS, Plan
from tests.loader.reference import SHAPES, arrays, check, layers

KERNELS = {
    "winograd": "BASELINE",
    "winograd_opencnn_optsts64": "STS64",
    "winograd_opencnn_optsts64_compact": "STS64_COMPACT",
    "winograd_opencnn_optlds64": "LDS64",
}


def draw(rng):
    """Images smaller than a tile and blocks that end within one; even and odd N; channels and filters past a block."""
    n, c, k = (int(rng.choice(sizes)) for sizes in ([1, 2, 3, 5, 8, 33], [1, 2, 7, 8, 9, 17], [1, 3, 16, 64, 65]))
    h, w, padding = int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.integers(0, 2))
    if min(h, w) + 2 * padding < 3:
        return None
    return Problem(n, c, h, w, k, 3, 3, 1, padding)


@pytest.mark.sample(2)
@pytest.mark.parametrize("algorithm", KERNELS)
def test_random_layers(algorithm):
    """A few for each, for the four differ in their last part alone; as many as one asks for with TURINGAS_SHAPES."""
    for problem in layers(list(KERNELS).index(algorithm), draw, SHAPES if SHAPES > 12 else 3):
        check(algorithm, problem)


CORNERS = [
    Problem(1, 1, 1, 1, 1, 3, 3, 1, 1),  # one output, of which a tile has four
    Problem(1, 1, 3, 3, 1, 3, 3, 1, 0),
    Problem(2, 9, 2, 7, 65, 3, 3, 1, 1),  # one more channel and filter than a block has
    Problem(3, 2, 5, 4, 2, 3, 3, 1, 3),  # outputs that see only padding
    Problem(32, 8, 4, 4, 64, 3, 3, 1, 1),  # whole blocks, as the paper has them
]


ALL = [("winograd", p) for p in CORNERS] + [(name, CORNERS[2]) for name in list(KERNELS)[1:]]


@pytest.mark.parametrize(("algorithm", "problem"), ALL, ids=str)
def test_corners(algorithm, problem):
    check(algorithm, problem)


@pytest.mark.parametrize("algorithm", ["winograd_opencnn", "winograd_opencnn_baseline"])
def test_other_names(algorithm):
    check(algorithm, Problem(6, 3, 5, 3, 7, 3, 3, 1, 1))


@pytest.mark.parametrize("algorithm", KERNELS)
def test_every_output_is_exact_for_whole_numbers(algorithm):
    """The method has only halves and quarters: small whole numbers lose nothing."""
    n = 4  # pairs of images are stored together
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 10, (n, 11, 5, 6)).astype(np.float32)
    w = rng.integers(-9, 10, (67, 11, 3, 3)).astype(np.float32)
    y = conv2d(x, w, algorithm, padding=1, device="cpu")
    assert (y == truth(x, w, Problem(n, 11, 5, 6, 67, 3, 3, 1, 1))).all()


@pytest.mark.sample(2)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_shared_memory(layout):
    """No race, no read of what was not written, and no bank conflict but those that openCNN's paper has with LDS.64."""
    problem = Problem(32, 16, 4, 4, 64, 3, 3, 1, 1)
    x, w = arrays(problem)
    with Runner("cpu") as run:
        plan = Plan(run, problem, layout)
        plan.prepare(run.array(w))
        y = run.empty((problem.k, problem.p, problem.q, problem.n))
        report = plan.run(run.array(arrange(x, "NCHW", "CHWN")), y, counters=True, races=True, written=True)
        counters = report.counters
        words = next(k.words for k in plan.module.cubin.kernels if k.name == "winograd")
    code = turingas.decode(words, "sm_75", control=False)
    conflicts = {}
    for i in np.flatnonzero(counters.wavefronts):
        mnemonic = next(part for part in code[i].split() if not part.startswith("@"))
        conflicts[mnemonic] = conflicts.get(mnemonic, 0) + int(counters.wavefronts[i] - counters.ideal[i])
    assert {"STS", "STS.128"} <= set(conflicts) and any(name.startswith("LDS") for name in conflicts)
    wide = [name for name in conflicts if name.startswith("LDS") and name.endswith(".64")]
    assert bool(wide) == (layout == "LDS64")
    blocks, warps, tiles, elements = 4, 8, 4, 16
    assert sum(conflicts[name] for name in wide) == len(wide) * blocks * warps * tiles * elements * 2
    assert not any(count for name, count in conflicts.items() if name not in wide)


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (Problem(1, 1, 5, 5, 1, 5, 5, 1, 1), "filters of 3 x 3, not 5 x 5"),
        (Problem(1, 1, 5, 5, 1, 3, 2, 1, 1), "filters of 3 x 3, not 3 x 2"),
        (Problem(1, 1, 5, 5, 1, 3, 3, 2, 1), "stride 1, not 2"),
    ],
)
@pytest.mark.parametrize("algorithm", KERNELS)
def test_refused(algorithm, problem, why):
    x, w = arrays(problem)
    with pytest.raises(ValueError, match=why):
        conv2d(x, w, algorithm, stride=problem.stride, padding=problem.padding, device="cpu")


def test_most_filters():
    assert find("winograd").supports(Problem(1, 1, 1, 1, MOST_FILTERS, 3, 3, 1, 1)) == ""
    assert "filters" in find("winograd").supports(Problem(1, 1, 1, 1, MOST_FILTERS + 1, 3, 3, 1, 1))

"""Every reference under the CPU device's checks: no race in shared memory, nothing read that was never written.

The stalls and scoreboards of NVIDIA's compiled code are right, so the scoreboard mode finds nothing either.
"""

from __future__ import annotations

import numpy as np
import pytest

from loader.reference import Runner, algorithms, find, run
from loader.reference.problem import Problem, relative_error, truth
from tests.loader.reference import arrays
from turingas.emulate.errors import DeviceError

LAYERS = [Problem(2, 3, 9, 7, 5, 3, 3, 1, 1), Problem(2, 1, 9, 7, 5, 3, 3, 1, 1)]


class Checked(Runner):
    """A runner whose launches are watched; ``faults`` is what was found."""

    def __init__(self, arch):
        super().__init__("cpu", arch)
        self.faults = []

    def module(self, name, options=()):
        module, runner = super().module(name, options), self

        class Kernel:
            def __init__(self, name):
                self.kernel = module.kernel(name)

            def launch(self, *args, **options):
                report = self.kernel.launch(*args, **options, races=True, strict=True, written=True)
                runner.faults += [*report.races, *report.hazards]

        class Module:
            kernel = Kernel

        return Module


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", algorithms())
def test_checked(name):
    entry = find(name)
    problem = next(layer for layer in LAYERS if not entry.supports(layer))
    x, w = arrays(problem)
    with Checked("sm_75") as runner:
        y = run(entry, problem, x, w, "NCHW", runner)
    assert relative_error(y, truth(x, w, problem)) <= entry.tolerance
    assert not runner.faults, runner.faults[0]


RACE = """
extern "C" __global__ void kern(float *out) {
    __shared__ float room[64];
    room[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = room[63 - threadIdx.x];
}
"""


def test_a_race_is_found(tmp_path):
    (tmp_path / "race.cu").write_text(RACE)
    with Checked("sm_75") as runner:
        runner.module(str(tmp_path / "race.cu")).kernel("kern").launch(1, 64, np.zeros(64, np.float32))
    assert "race" in str(runner.faults[0])


def test_what_was_never_written_is_found(tmp_path):
    some = RACE.replace("room[threadIdx.x] =", "if (threadIdx.x > 5) room[threadIdx.x] =")
    (tmp_path / "unwritten.cu").write_text(some)
    with Checked("sm_75") as runner, pytest.raises(DeviceError, match="never written"):
        runner.module(str(tmp_path / "unwritten.cu")).kernel("kern").launch(1, 64, np.zeros(64, np.float32))

"""What the tests of `turingas bench` share: a driver that stands for a GPU, and the command."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from loader.reference.problem import Problem
from tests.loader.driver import Driver
from turingas.cli import main

STANDIN = Path(__file__).parent / "standin.cu"
SMALL = Problem(2, 3, 4, 5, 4, 3, 3, 1, 1)


class Card(Driver):
    """One for benchmarks: small, and quick."""

    def __init__(self, **of):
        super().__init__(**of)
        self.done = set()  # graphs that were launched

    def do_cuGraphLaunch(self, graph, stream):
        """The first time alone, when outputs are checked: the CPU device takes its time."""
        if graph not in self.done:
            super().do_cuGraphLaunch(graph, stream)
            self.done.add(graph)

    def do_cuDeviceGetAttribute(self, kind, device):
        name = self.CUdevice_attribute(kind).name.removeprefix("CU_DEVICE_ATTRIBUTE_")
        known = {"L2_CACHE_SIZE": 512, "MULTIPROCESSOR_COUNT": 2}
        return known[name] if name in known else super().do_cuDeviceGetAttribute(kind, device)


def call(*words):
    return CliRunner().invoke(main, ["bench", *words])


def row(name, group, ms=None, part="all", **more):
    """A row of results; without ms one that was wrong."""
    return {"name": name, "group": group, "part": part, **({"status": "ok", "ms": ms} if ms else {"status": "wrong"}),
            **more}  # fmt: skip

"""Kernels of the same code in one cubin: what is found in one is told of all, and of no other."""

from __future__ import annotations

import pytest

import turingas
from turingas.check import lint as module
from turingas.check.lint import lint, lint_kernel

KERNEL = """
.kernel {name}
.registers {registers}
{more}--:-:-:Y:1  S2R R0, SR_TID.X;
--:-:-:Y:4  IADD3 R1, R0, R0, RZ;
--:-:-:Y:5  EXIT;
"""


def source(*kernels):
    return ".arch sm_90\n" + "".join(
        KERNEL.format(name=name, registers=registers, more=more) for name, registers, more in kernels
    )


@pytest.fixture
def linted(monkeypatch):
    """The names of the kernels that are gone through."""
    names = []
    monkeypatch.setattr(module, "lint_kernel", lambda kernel, file="": names.append(kernel.name) or real(kernel, file))
    real = lint_kernel
    return names


def read_again(text):
    """A cubin as it comes from a file: nothing is known of source lines."""
    return turingas.Cubin.from_bytes(turingas.assemble(text).to_bytes())


def test_twins_are_gone_through_once(linted):
    cubin = read_again(source(("one", 8, ""), ("two", 8, "")))
    found = lint(cubin)
    assert linted == ["one"]
    assert found == [finding for kernel in cubin.texts for finding in lint_kernel(kernel)]
    assert {finding.kernel for finding in found} == {"one", "two"} and any(f.severity == "error" for f in found)


@pytest.mark.parametrize(("registers", "more"), [(9, ""), (8, ".shared 64\n"), (8, ".info MAX_THREADS 32 1 1\n")])
def test_what_differs_is_no_twin(linted, registers, more):
    cubin = read_again(source(("one", 8, ""), ("two", registers, more)))
    found = lint(cubin)
    assert linted == ["one", "two"]
    assert found == [finding for kernel in cubin.texts for finding in lint_kernel(kernel)]


def test_lines_of_a_source_are_told_of_each(linted):
    found = lint(turingas.assemble(source(("one", 8, ""), ("two", 8, ""))))
    assert linted == ["one", "two"] and len({finding.line for finding in found}) > 2

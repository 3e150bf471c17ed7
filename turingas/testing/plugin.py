"""The plugin of pytest: options, a mark and fixtures for tests of CUDA and Triton kernels without a GPU.

pytest loads it wherever TuringAs is installed (``-p no:turingas`` leaves it out), so it imports little.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields
from typing import Any

import pytest

import turingas.testing
from turingas.testing.settings import Settings, current, using

VALUED = {"races": "global"}  # flags that can have this value, too, with =
FLAGS = {
    "strict": "Obey stalls and scoreboards: using a result too early fails the test.",
    "races": "Data races in shared memory fail the test; =global: those in global memory, too.",
    "written": "Reading uninitialised memory fails the test.",
    "stale": "Poison what a copy may still write; with strict: go on with the old value, as a GPU would.",
    "triton": "Launch all Triton kernels on the CPU device, as kernel[grid](...) has them.",
}
VALUES = {
    "arch": (str, "Architecture that kernels are compiled for (sm_80)."),
    "budget": (int, "Most instructions that a warp may run (1000000)."),
}
MARK = "turingas(arch=, strict=, races=, written=, stale=, budget=): how kernels of this test run on the CPU device"


def pytest_addoption(parser: pytest.Parser) -> None:
    """--turingas-NAME, and turingas_NAME in the ini file."""
    group = parser.getgroup("turingas", "kernels on TuringAs's CPU device")
    for name, about in FLAGS.items():
        group.addoption(f"--turingas-{name}", action="store_true", default=None, help=about)
        more = VALUED.get(name)
        if more is None:
            parser.addini(f"turingas_{name}", about, type="bool", default=False)
            continue
        # a name of its own, so that the bare flag does not take the word behind it
        option, dest = f"--turingas-{name}={more}", f"turingas_{name}"
        group.addoption(option, action="store_const", const=more, dest=dest, help="The same, and this.")
        parser.addini(dest, about, default="")
    for name, (kind, about) in VALUES.items():
        group.addoption(f"--turingas-{name}", type=kind, metavar=name.upper(), help=about)
        parser.addini(f"turingas_{name}", about, default="")


def pytest_configure(config: pytest.Config) -> None:
    """The settings of this run, and Triton's driver while modules are imported already."""
    config.addinivalue_line("markers", MARK)
    changes: dict[str, Any] = {name: _asked(config, name) for name in FLAGS if name != "triton"}
    for name, (kind, _) in VALUES.items():
        if value := _asked(config, name):
            try:
                changes[name] = kind(value)
            except ValueError:
                raise pytest.UsageError(f"turingas_{name}: {value!r} is not a number") from None
    stack = ExitStack()
    config.add_cleanup(stack.close)
    if changes != {name: getattr(Settings(), name) for name in changes}:
        changes["arch"] = _arch(changes.get("arch", Settings().arch), "--turingas-arch")
    stack.enter_context(using(**changes))
    if _asked(config, "triton"):
        stack.enter_context(turingas.testing.triton_on_cpu())


def _arch(name: str, where: str) -> str:
    """Its whole name, or what is wrong with it."""
    from turingas.errors import AsmError
    from turingas.isa.arch import arch

    try:
        return arch(name).name
    except AsmError as error:
        raise pytest.UsageError(f"{where}: {error.message}; {error.hint}") from None


def _asked(config: pytest.Config, name: str) -> Any:
    """What the command line says, else the ini file."""
    value = config.getoption(f"turingas_{name}")
    value = config.getini(f"turingas_{name}") if value is None else value
    if name not in VALUED or isinstance(value, bool) or value == VALUED[name]:
        return value
    given = {**dict.fromkeys(("1", "yes", "on", "true"), True), **dict.fromkeys(("", "0", "no", "off", "false"), False)}
    if value.strip().lower() not in given:
        raise pytest.UsageError(f"turingas_{name}: {value!r} is none of true, false, {VALUED[name]}")
    return given[value.strip().lower()]


def pytest_report_header(config: pytest.Config) -> str | None:
    """What is looked for, where it is not the usual."""
    settings = current()
    modes = [name for name in FLAGS if _asked(config, name)]
    if settings == Settings() and not modes:
        return None
    return f"turingas: CPU device, {', '.join([settings.arch, *modes])}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A mark that says what nobody knows ends the run before it begins."""
    known = [one.name for one in fields(Settings)]
    for item in items:
        for mark in item.iter_markers("turingas"):
            wrong = [repr(value) for value in mark.args] + [name for name in mark.kwargs if name not in known]
            if wrong:
                there = ", ".join(f"{name}=" for name in known)
                raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.turingas has no {wrong[0]}; there are {there}")
            if "arch" in mark.kwargs:
                _arch(str(mark.kwargs["arch"]), f"{item.nodeid}: @pytest.mark.turingas")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """The test's own settings, which hold for its fixtures, too."""
    marks: dict[str, Any] = {}
    for mark in item.iter_markers("turingas"):  # the test's own first
        marks = {**mark.kwargs, **marks}
    with ExitStack() as stack:
        if marks:
            stack.enter_context(using(**marks))
            if _asked(item.config, "triton"):
                stack.enter_context(turingas.testing.triton_on_cpu())
        yield


@pytest.fixture
def turingas_device() -> Any:
    """The CPU device with this test's settings: ``cuda``, ``load``, ``triton_launch``, all of turingas.testing."""
    return turingas.testing


@pytest.fixture
def turingas_triton() -> Iterator[Any]:
    """In this test ``kernel[grid](...)`` launches on the CPU device; the fixture's ``reports`` tell of the launches."""
    with turingas.testing.triton_on_cpu() as driver:
        yield driver

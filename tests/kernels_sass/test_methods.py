"""Methods of convolution: what each class says is what its source has; and one more is added in one place."""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
import sys

import pytest

from kernels_sass.conv import Conv2d
from kernels_sass.conv.code import Kernels, choose, method_in
from kernels_sass.conv.cost import CPU_SMS, fastest
from kernels_sass.conv.implicit import NAME
from kernels_sass.conv.launch import launches
from kernels_sass.conv.method import FOLDER, METHODS, Cost, Main, Method, enter, mains
from kernels_sass.conv.methods.hopper import HOPPER
from kernels_sass.conv.shape import Shape
from loader.cuda import Buffer
from tests.kernels_sass.preferring import preferring
from tests.kernels_sass.test_conv2d import Case, error
from tests.loader.conftest import install  # noqa: F401
from turingas.assembler.assembler import expanded
from turingas.check.resources import max_threads
from turingas.errors import LaunchError
from turingas.isa.arch import arch

each = pytest.mark.parametrize(("method", "name"), [(one, name) for one in METHODS.values() for name in one.kernels])


@each
def test_what_a_class_says_is_what_its_source_has(method, name):
    """The main kernel's name, threads, room on an SM; and that a cubin tells which method it is of."""
    kernels = Kernels.of(method.archs[-1], method.name, method.kernels[name].defines)
    main, facts = method.kernels[name], arch(kernels.arch)
    (code,) = (one for one in kernels.cubin.kernels if one.name == name)
    assert kernels.main == name and max_threads(code) == main.threads and method_in(kernels.cubin) is method
    by_registers = facts.registers_per_sm // (code.registers * main.threads)
    by_memory = facts.shared_per_sm // (code.shared_bytes + main.shared)
    assert min(by_registers, by_memory) >= main.an_sm and (main.an_sm == 1 or not method.persistent)
    others = {one.name for one in kernels.cubin.kernels} - {name}
    assert "filter_transform" in others and others <= {"filter_transform", "add_splits", "add_splits4"}


@pytest.mark.parametrize(
    ("method", "name"), [(one, name) for one in METHODS.values() for name, main in one.kernels.items() if main.shared]
)
def test_dynamic_shared_memory_is_what_the_source_counts(method, name):
    """No cubin tells it: the source's own SHARED does. (A kernel of 32 filters needs no more than that of 64.)"""
    main = method.kernels[name]
    text = method.path.read_text() + "\n<code>\nout_ = f'COUNTED_{SHARED}:'\n</code>\n"
    lines = expanded(text, method.archs[-1], main.defines, [FOLDER], str(method.path))
    counted = int(re.search(r"^COUNTED_(\d+):", lines, re.MULTILINE)[1])
    assert counted <= main.shared if main.defines.get("FILTERS") == 32 else counted == main.shared


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_launched_with_its_own_shared_memory(method):
    """And not with that of another method that has a kernel of this name, as Hopper's and the paper's."""
    for name, main in method.kernels.items():
        first, *_ = launches(method, shape_for(name), CPU_SMS)
        assert (first.kernel, first.threads, first.shared) == (name, main.threads, main.shared)


def shape_for(name):
    """Of many images, with as many channels as the kernel can do."""
    for c in (64, 4, 3, 2, 1):
        with contextlib.suppress(LaunchError):
            return Shape(64, c, 56, 56, 1, layout="NHWC", kernel=name)
    raise AssertionError(name)


def test_every_architecture_has_a_method_for_all_sizes():
    names = METHODS["paper"].archs
    assert {choose(name).name for name in names} == {"paper", "hopper"} and choose("sm_90a") is HOPPER
    assert list(METHODS) == sorted(METHODS, key=lambda name: METHODS[name].order)


def test_a_cubin_of_nobody():
    kernels = Kernels.of("sm_80", "direct")
    made = type(kernels.cubin).from_bytes(kernels.cubin.to_bytes())
    for one in made.kernels:
        one.attributes = [info for info in one.attributes if info.name != "MAX_THREADS"]
        one.infos = {}
    with pytest.raises(LaunchError, match="^no method has a kernel 'direct8' with blocks of 0 threads"):
        method_in(made)


def test_nobody_else_names_a_method():
    """But implicit*.py, the host's part of one; Conv2d and what it stands on learn of methods from METHODS."""
    names = {*METHODS, NAME}
    for path in FOLDER.parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & names
        imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        if not path.name.startswith("implicit"):
            assert not said and not [name for name in imported if "conv.methods" in name], path.name


# ---- one more ----------------------------------------------------------------------------------------------------


INVENTED = """
from kernels_sass.conv.method import Cost, Main, Method, enter


class Invented(Method):
    name = "invented"
    file = "invented.sass"
    archs = ("sm_80", "sm_90")
    kernels = {"invented": Main(8, 128, 8, 1, an_sm=3, threads=128, cost=Cost("invented", 1e-3, 1e-3))}
    order = 9

    def able(self, shape):
        return "" if shape.k < 99 else f"is for few filters, not for {shape.k}"

    def suits(self, shape):
        return shape.layout == "NCHW" and shape.k == 13


enter(Invented())
"""


@pytest.fixture
def invented(tmp_path, monkeypatch):
    """direct.sass under another name: its source and its class, and nothing else."""
    text = (FOLDER / "direct.sass").read_text().replace(".kernel direct{FILTERS}", ".kernel invented")
    (tmp_path / "invented.sass").write_text(text)
    (tmp_path / "invented.py").write_text(INVENTED)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("invented")
    yield METHODS["invented"]
    del METHODS["invented"], sys.modules["invented"]


def test_an_invented_method_is_picked(invented, install, monkeypatch):  # noqa: F811
    """By Conv2d: on a GPU where it suits and costs least, on the CPU device by its name."""
    assert [path.name for path in invented.files] == ["invented.sass", "common.py", "sums.sass"]
    case = Case(2, 9, 8, 7, 13)
    y = case.conv(kernel="invented", device="cpu")(case.x, case.residual)
    assert error(y, case.y(residual=True)) < 1e-6
    shape = Shape(2, 9, 8, 7, 13, kernel="invented")
    assert "invented" in mains() and fastest(shape, CPU_SMS, ("winograd", "invented")).kernel == "invented"
    (one,) = launches(HOPPER, shape, CPU_SMS)
    assert (one.kernel, one.threads, one.early) == ("invented", 128, True)
    for driver in preferring(install, monkeypatch):
        for k in (13, 14):
            case = Case(2, 9, 8, 7, k)
            with case.conv(device="cuda:0") as conv:
                assert error(conv(Buffer.of(case.x)).numpy(), case.y()) < 1e-6
            assert (driver.launches[-1][0] == "invented") == (k == 13)
    with pytest.raises(LaunchError, match="^the kernel 'invented' is for few filters, not for 99"):
        Case(1, 1, 4, 4, 99).conv(kernel="invented", device="cpu")
    with pytest.raises(LaunchError, match="^the kernel 'invented' is for sm_80, sm_90, not for sm_75"):
        case.conv(kernel="invented", arch="sm_75")
    with pytest.raises(LaunchError, match="there are: paper, hopper, direct, nhwc, few, small, fold, invented"):
        Conv2d(case.weight, kernel="none")


def test_kernels_of_one_name_have_blocks_of_one_kind():
    class Other(Method):
        name, order, kernels = "other", 8, {"winograd": Main(64, 32, 4, 4, 1, 256, Cost("other", 1, 1))}

    message = "winograd of other makes (64, 32, 4, 4) a block, of paper (64, 32, 2, 2)"
    with pytest.raises(ValueError, match=re.escape(message)):
        enter(Other())
    assert "other" not in METHODS

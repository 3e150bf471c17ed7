"""Methods of convolution: what each class says is what its source has; and one more is added in one place."""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
import sys

import pytest

from kernels_sass.bench.ours import said, way_of
from kernels_sass.conv import Conv2d
from kernels_sass.conv.code import Kernels, choose, main_of
from kernels_sass.conv.cost import CPU_SMS, fastest, microseconds
from kernels_sass.conv.implicit import NAME
from kernels_sass.conv.launch import launches
from kernels_sass.conv.method import FOLDER, METHODS, Kernel, kernels, usual
from kernels_sass.conv.methods.direct import DIRECT
from kernels_sass.conv.methods.hopper import HOPPER
from kernels_sass.conv.shape import Shape
from loader.cuda import Buffer
from tests.kernels_sass.cases import Case, error
from tests.kernels_sass.preferring import costing, preferring
from turingas.assembler.assembler import expanded
from turingas.check.resources import max_threads
from turingas.errors import LaunchError
from turingas.isa.arch import arch

each = pytest.mark.parametrize(("method", "name"), [(one, name) for one in METHODS.values() for name in one.kernels])


@each
def test_what_a_class_says_is_what_its_source_has(method, name):
    """The main kernel's name, threads, room on an SM; and that a cubin tells which method it is of."""
    made = Kernels.of(method.archs[-1], method.name, method.kernels[name].defines)
    main, facts = method.kernels[name], arch(made.arch)
    (code,) = (one for one in made.cubin.kernels if one.name == name)
    assert made.main == main_of(made.cubin) == Kernel(method, name) and max_threads(code) == main.threads
    by_registers = facts.registers_per_sm // (code.registers * main.threads)
    by_memory = facts.shared_per_sm // (code.shared_bytes + main.shared)
    assert min(by_registers, by_memory) >= main.an_sm and (main.an_sm == 1 or not method.persistent)
    others = {one.name for one in made.cubin.kernels} - {name}
    assert "filter_transform" in others and others <= {"filter_transform", "add_splits", "add_splits4"}


@pytest.mark.parametrize(
    ("method", "name"), [(one, name) for one in METHODS.values() for name, main in one.kernels.items() if main.shared]
)
def test_dynamic_shared_memory_is_what_the_source_counts(method, name):
    """No cubin tells it: the source's own SHARED does. (Of Winograd's two kernels that of 32 filters needs less.)"""
    main = method.kernels[name]
    text = method.path.read_text() + "\n<code>\nout_ = f'COUNTED_{SHARED}:'\n</code>\n"
    lines = expanded(text, method.archs[-1], main.defines, [FOLDER], str(method.path))
    counted = int(re.search(r"^COUNTED_(\d+):", lines, re.MULTILINE)[1])
    assert counted < main.shared if name == "winograd32" else counted == main.shared


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_launched_with_its_own_shared_memory(method):
    """And not with that of another method that has a kernel of this name, as Hopper's and the paper's."""
    for name, main in method.kernels.items():
        first, *_ = launches(shape_for(method.kernel(name)), CPU_SMS)
        assert (first.kernel, first.threads, first.shared) == (name, main.threads, main.shared)


def shape_for(kernel):
    """Of many images, with as many channels as the kernel can do."""
    for c in (64, 4, 3, 2, 1):
        with contextlib.suppress(LaunchError):
            return Shape(64, c, 56, 56, 1, layout="NHWC", kernel=kernel)
    raise AssertionError(kernel.name)


def test_every_architecture_has_a_method_for_all_sizes():
    names = METHODS["paper"].archs
    assert {choose(name).name for name in names} == {"paper", "hopper"} and choose("sm_90a") is HOPPER
    assert list(METHODS) == sorted(METHODS, key=lambda name: METHODS[name].order)


def test_a_cubin_of_nobody():
    cubin = Kernels.of("sm_80", "direct").cubin
    made = type(cubin).from_bytes(cubin.to_bytes())
    for one in made.kernels:
        one.attributes = [info for info in one.attributes if info.name != "MAX_THREADS"]
        one.infos = {}
    with pytest.raises(LaunchError, match="^no method has a kernel 'direct8' with blocks of 0 threads"):
        main_of(made)


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


def entered(folder, monkeypatch, name, kernel):
    """A method that has direct.sass under another name, its ``kernel`` too: a source and a class, and nothing else."""
    text = (FOLDER / "direct.sass").read_text().replace(".kernel direct{FILTERS}", f".kernel {kernel}")
    (folder / f"{name}.sass").write_text(text)
    said = INVENTED.replace("Invented", name.title()).replace("invented", name)
    (folder / f"{name}.py").write_text(said.replace(f'{{"{name}": Main', f'{{"{kernel}": Main'))
    monkeypatch.syspath_prepend(folder)
    importlib.import_module(name)
    yield METHODS[name]
    del METHODS[name], sys.modules[name]


@pytest.fixture
def invented(tmp_path, monkeypatch):
    yield from entered(tmp_path, monkeypatch, "invented", "invented")


def test_an_invented_method_is_picked(invented, install, monkeypatch):
    """By Conv2d: on a GPU where it suits and costs least, on the CPU device by its name."""
    assert [path.name for path in invented.files] == ["invented.sass", "common.py", "sums.sass"]
    case = Case(2, 9, 8, 7, 13)
    y = case.conv(kernel="invented", device="cpu")(case.x, case.residual)
    assert error(y, case.y(residual=True)) < 1e-6
    main = invented.kernel("invented")
    shape = fastest(Shape(2, 9, 8, 7, 13), CPU_SMS, (usual(), main))
    assert main in kernels() and shape.kernel == main
    (one,) = launches(shape, CPU_SMS)
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


@pytest.fixture
def namesake(tmp_path, monkeypatch):
    """Its kernel has the name of the paper's and of Hopper's, and another block."""
    yield from entered(tmp_path, monkeypatch, "namesake", "winograd")


def test_a_kernel_named_as_anothers_has_its_own_block(namesake, install, monkeypatch):
    """In sizes, launches and costs, and as a layer, by its name or beside Hopper's of the same name."""
    mine, hoppers, block = namesake.kernel("winograd"), HOPPER.kernel("winograd"), namesake.kernels["winograd"]
    shape, other = (Shape(2, 9, 8, 7, 13, splits=2, kernel=one) for one in (mine, hoppers))
    assert shape.block is block and other.block is HOPPER.kernels["winograd"] and shape != other
    assert (shape.tile, shape.blocks, shape.written.k) == ((8, 1), (1, 4), 32)
    assert (other.tile, other.blocks, other.written.k) == ((2, 2), (1, 2), 128)
    first, _ = launches(shape, CPU_SMS)
    assert (first.grid, first.threads, first.shared) == ((1, 4, 1), 128, 0)
    assert fastest(other, CPU_SMS, (hoppers, mine)).kernel == mine and microseconds(shape, CPU_SMS) < 3
    beside = Kernels.of("sm_90").every(Shape(2, 9, 8, 7, 13))
    assert beside[mine].method is namesake and beside[hoppers].method is HOPPER
    assert main_of(beside[mine].cubin) == mine and main_of(beside[hoppers].cubin) == hoppers

    case = Case(2, 9, 8, 7, 13)
    for splits in (None, 2):
        y = case.conv(kernel="namesake", splits=splits, device="cpu")(case.x, case.residual)
        assert error(y, case.y(residual=True)) < 1e-6
    for driver in preferring(install, monkeypatch):
        for cheap, dear, threads in (("namesake", "winograd", 128), ("winograd", "namesake", 512)):
            costing(monkeypatch, cheap, step=1e-3, job=1e-3)
            costing(monkeypatch, dear, step=1e3)
            driver.launches.clear()
            with case.conv(device="cuda:0") as conv:
                assert error(conv(Buffer.of(case.x)).numpy(), case.y()) < 1e-6
            assert [launch[1][3] for launch in driver.launches if launch[0] == "winograd"] == [threads]


def test_what_results_call_kernels_of_one_name(namesake):
    """Its own source's by their names, another of such a name by its method's too."""
    for source, name, kernel in (
        ("hopper", "winograd", HOPPER.kernel("winograd")), ("hopper", "direct8", DIRECT.kernel("direct8")),
        ("hopper", "winograd of namesake", namesake.kernel("winograd")),
        ("namesake", "winograd", namesake.kernel("winograd")), ("paper", "winograd", usual()),
    ):  # fmt: skip
        assert said(source, 4, kernel) == f"4 x {name}" and way_of(source, f"4 x {name}") == (4, kernel)


@pytest.fixture
def twin(tmp_path, monkeypatch):
    """Its kernel has the name and the threads of that of "direct"."""
    yield from entered(tmp_path, monkeypatch, "twin", "direct8")


def test_a_cubin_of_two(twin):
    """Which of them it is of, nothing in it tells."""
    with pytest.raises(LaunchError, match="^2 methods have a kernel 'direct8' .* of 128 threads\nhint: .*direct, twin"):
        main_of(Kernels.of("sm_80", "twin").cubin)
    assert Kernels.of("sm_80", "twin").main == twin.kernel("direct8")

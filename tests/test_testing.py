"""turingas.testing: pytest's plugin, launches of CUDA and Triton kernels, what the device finds as failures."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import turingas
from turingas import testing
from turingas.errors import LaunchError
from turingas.testing import launch, settings  # now: what a test imports first, pytester forgets
from turingas.testing import triton as on_cpu

triton = pytest.importorskip("triton", reason="Triton compiles the kernels of these tests")
tl = pytest.importorskip("triton.language")
pytest_plugins = ["pytester"]
ROOT = Path(__file__).parent.parent
PLUGIN = (
    "-p",
    "no:turingas",
    "-p",
    "turingas.testing.plugin",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:hypothesispytest",
    "-q",
)
EARLY = """
.kernel early
<params>
out, 8
</params>
  --:-:-:-:1  MOV R4, 7;
  --:-:-:-:6  MOV R2, c[0x0][0x160];
  --:-:-:-:6  MOV R3, c[0x0][0x164];
  --:-:-:-:1  IADD3 R5, R4, 1, RZ;
  --:-:-:-:1  STG.E.SYS [R2], R5;
  --:-:-:-:5  EXIT;
"""


@triton.jit
def scaled(x, out, n, by, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at, mask=at < n) * by, mask=at < n)


@triton.jit
def strided(x, step, out, n, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    tl.store(out + at, tl.load(x + at * step, mask=at < n), mask=at < n)


@triton.jit
def meta(out, one, sixteen, nothing, WHAT: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    if nothing is None:
        tl.store(out + tl.arange(0, B), one + sixteen + WHAT)


# Launches


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90"])
def test_a_triton_kernel(arch):
    x = np.arange(300, dtype=np.float32)
    out = np.zeros_like(x)
    with testing.using(arch=arch, strict=True, races=True):
        report = testing.triton_launch(scaled, lambda m: (triton.cdiv(300, m["B"]),), x, out, 300, 2.5, B=128)
    assert np.array_equal(out, x * 2.5) and report.kernel.arch.rstrip("a") == arch
    assert report.kernel.params[1].name == "out"


def test_grids_and_options_of_triton():
    x, out = np.ones(256, np.float16), np.zeros(256, np.float16)
    one = testing.triton_launch(scaled, 1, x, out, 256, 3.0, B=256, num_warps=1)
    many = testing.triton_launch(scaled, (1, 1), x, out, 256, 3.0, B=256, num_warps=8)
    assert (out == 3).all() and many.instructions > 2 * one.instructions  # 8 warps instead of 1
    with pytest.raises(LaunchError, match="Triton launched nothing"):
        testing.triton_launch(scaled, (0,), x, out, 256, 3.0, B=256)


def test_scalars_are_specialised():
    out = np.zeros(4, np.int32)
    for given in ((1, 16), (2, 17)):
        testing.triton_launch(meta, 1, out, *given, None, WHAT=100, B=4)
        assert (out == sum(given) + 100).all()
    report = testing.triton_launch(meta, 1, out, 1, 16, None, WHAT=100, B=4)
    assert len(report.kernel.params) == 2  # what is 1, and what is None, is a constant: `out` and 16 are left


def test_arrays_that_are_not_contiguous():
    x = np.arange(40, dtype=np.int32).reshape(10, 4)
    out = np.zeros(10, np.int32)
    testing.triton_launch(strided, 1, x[:, 1], 4, out, 10, B=16)
    assert np.array_equal(out, x[:, 1])
    with pytest.raises(testing.KernelFailure, match=r"12 bytes behind the end of 'argument 0 \(x\) of \w+' \(148"):
        testing.triton_launch(strided, 1, x[:, 1], 4, out, 11, B=16)  # one more than there are
    with pytest.raises(LaunchError, match="x runs backwards"):
        testing.triton_launch(strided, 1, x[::-1, 1], 4, out, 10, B=16)


def test_heuristics():
    made = triton.heuristics({"B": lambda args: triton.next_power_of_2(args["n"])})(scaled)
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    testing.triton_launch(made, 1, x, out, 100, 2.0)
    assert np.array_equal(out, x * 2)


def test_autotuned_kernels_take_the_first_configuration(monkeypatch):
    # Triton 3.1's Autotuner looks for PyTorch when it is made, and asks it no more than this
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch") or type(sys)("torch"))
    called = []
    configs = [triton.Config({"B": 64}, num_warps=1, pre_hook=called.append), triton.Config({"B": 128}, num_warps=4)]
    tuned = triton.autotune(configs, key=["n"])(scaled)
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    report = testing.triton_launch(tuned, lambda m: (triton.cdiv(100, m["B"]),), x, out, 100, 2.0)
    assert np.array_equal(out, x * 2) and len(called) == 1 and called[0]["B"] == 64
    assert tuned.configs == configs and report.instructions < 100


def test_tritons_own_driver_comes_back():
    from triton.runtime import driver

    before = driver.active
    with testing.triton_on_cpu() as ours:
        assert driver.active is ours and isinstance(ours, on_cpu.Driver)
    assert driver.active is before


def test_settings():
    with testing.using(arch="sm_90"), testing.using(races=True) as inner:
        assert (inner.arch, inner.races) == ("sm_90", True)
    assert testing.current() == settings.Settings()
    with pytest.raises(TypeError, match="unexpected"), testing.using(fast=True):
        pass


def test_findings_name_the_source():
    with pytest.raises(testing.KernelFailure) as caught, testing.using(strict=True):
        testing.load(turingas.assemble(EARLY, filename="early.sass")).launch(1, 1, np.zeros(1, np.int32))
    assert isinstance(caught.value, launch.KernelFailure) and "raw-stall" in str(caught.value)
    assert caught.value.findings[0].kind == "raw-stall"
    testing.load(turingas.assemble(EARLY)).launch(1, 1, np.zeros(1, np.int32))  # nobody asked


@triton.jit
def product(a, b, c, K, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for first in range(0, K, B):
        left = tl.load(a + at[:, None] * K + (first + at)[None, :])
        acc = tl.dot(left, tl.load(b + (first + at)[:, None] * B + at[None, :]), acc)
    tl.store(c + at[:, None] * B + at[None, :], acc)


@triton.jit
def talks(x, B: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.device_print("x:", tl.load(x + tl.arange(0, B)))


def test_products_with_asynchronous_copies():
    """Pipelined: LDGSTS, and HMMA of each architecture; neither race nor hazard in what Triton makes."""
    random = np.random.default_rng(1)
    a, b = random.integers(-4, 5, (2, 32, 96)).astype(np.float16)
    c = np.zeros((32, 32), np.float32)
    with testing.using(strict=True, races=True):
        testing.triton_launch(product, 1, a, np.ascontiguousarray(b.T), c, 96, B=32, num_stages=3)
    assert np.array_equal(c, a.astype(np.float32) @ b.T.astype(np.float32))


def test_device_print(capsys):
    testing.triton_launch(talks, 1, np.array([7, 8], np.int32), B=2, num_warps=1)
    assert capsys.readouterr().out.startswith("pid (0, 0, 0) idx (0) x: 7\npid (0, 0, 0) idx (1) x: 8\n")


# The plugin


KERNELS = """
    import numpy as np, pytest, triton, triton.language as tl
    from turingas.testing import cuda, load, triton_launch, using

    @triton.jit
    def unguarded(x, y, B: tl.constexpr):
        at = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(y + at, tl.load(x + at))

    RACE = '''extern "C" __global__ void turned(int* x) {
        __shared__ int s[64];
        s[threadIdx.x] = x[threadIdx.x];
        x[threadIdx.x] = s[63 - threadIdx.x];
    }
    '''
"""


def test_a_fault_is_a_failure_with_source_lines(pytester, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(pytester.path / "cache"))  # Triton does not look where a source lies
    pytester.makepyfile(
        KERNELS
        + """
    def test_it(turingas_device):
        turingas_device.triton_launch(unguarded, (2,), np.zeros(100, np.float32), np.zeros(128, np.float32), B=64)
    """
    )
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        ">       turingas_device.triton_launch(unguarded, *",
        "E       turingas.testing.launch.KernelFailure: the kernel unguarded:",
        "E       *_source_lines.py:7: unguarded+0x*: error: a read of 4 bytes*'argument 0 (x)*",
        "E           test_*_source_lines.py:7 | tl.store(y + at, tl.load(x + at))",
        "E         block (1, 0, 0), thread (36, 0, 0)",
    ])  # fmt: skip
    result.stdout.no_fnmatch_line("*site-packages*")
    result.stdout.no_fnmatch_line("*emulate*")


RACING = """
    def test_it():
        x = np.arange(64, dtype=np.int32)
        cuda(RACE).launch(1, 64, x)
"""


@pytest.mark.parametrize(
    "words, ini, mark, failed",
    [
        ((), "", "", 0),
        (("--turingas-races",), "", "", 1),
        ((), "turingas_races = true", "", 1),
        ((), "", "@pytest.mark.turingas(races=True)", 1),
        (("--turingas-races",), "", "@pytest.mark.turingas(races=False)", 0),
        ((), "turingas_races = off", "", 0),
        (("--turingas-races=global",), "", "", 1),
        ((), "turingas_races = global", "", 1),
    ],
)
def test_options(pytester, words, ini, mark, failed):
    pytest.importorskip("nvidia.cuda_nvrtc", reason="NVRTC is not installed")
    pytester.makeini("[pytest]\n" + ini)
    pytester.makepyfile(KERNELS + f"\n    {mark}" + RACING)
    result = pytester.runpytest_inprocess(*PLUGIN, "--strict-markers", *words)
    result.assert_outcomes(failed=failed, passed=1 - failed)
    if failed:
        result.stdout.fnmatch_lines(["*the kernel turned:", "E*source.cu:3: turned+0x*"])


def test_all_options_reach_the_settings(pytester):
    pytester.makeini("[pytest]\nturingas_arch = 86\nturingas_written = 1\nturingas_budget = 77")
    pytester.makepyfile(
        """
        from turingas.testing import current
        import pytest

        def test_one():
            s = current()
            assert (s.arch, s.strict, s.races, s.written, s.stale, s.budget) == ("sm_90", True, False, True, True, 77)

        @pytest.mark.turingas(arch="sm_75")
        class TestMarks:
            @pytest.mark.turingas(races=True, budget=5)
            def test_two(self):
                s = current()
                assert (s.arch, s.races, s.budget, s.written) == ("sm_75", True, 5, True)
        """
    )
    result = pytester.runpytest_inprocess(*PLUGIN[:-1], "--turingas-arch=90", "--turingas-strict", "--turingas-stale")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["turingas: CPU device, sm_90, strict, written, stale"])
    assert testing.current() == testing.Settings()  # of this process


@pytest.mark.parametrize(
    "words, said",
    [
        (["--turingas-arch=sm_1"], "*--turingas-arch:*sm_1*"),
        (["-o", "turingas_budget=many"], "*turingas_budget: 'many' is not a number"),
        (["-o", "turingas_races=local"], "*turingas_races: 'local' is none of true, false, global"),
    ],
)
def test_wrong_options(pytester, words, said):
    result = pytester.runpytest_inprocess(*PLUGIN, *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


@pytest.mark.parametrize(
    ("mark", "said"),
    [("bogus=3", "has no bogus; there are arch=, strict=, races=, written=, stale=, budget="), ("True", "has no True;"),
     ("arch='sm_91'", "sm_91")],
)  # fmt: skip
def test_wrong_marks(pytester, mark, said):
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.turingas({mark})\ndef test_it(): pass")
    result = pytester.runpytest_inprocess(*PLUGIN)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert any("test_it: @pytest.mark.turingas" in line and said in line for line in result.errlines)


def test_a_projects_own_launches(pytester):
    """Functions that launch kernels themselves, as they are."""
    pytester.makepyfile(
        KERNELS
        + """
    class Tensor:  # as PyTorch's
        device, dtype = "cpu", np.dtype(np.float32)
        def __init__(self, n): self.a = np.zeros(n, np.float32); self.shape = (n,)
        def data_ptr(self): return self.a.ctypes.data
        def stride(self): return (1,)
        def element_size(self): return 4

    def copied(x):
        y = Tensor(128)
        unguarded[(2,)](x, y, B=64)
        return y

    def test_it():
        x = Tensor(128)
        x.a[:] = np.arange(128)
        assert copied(x).a[77] == 77
    """
    )
    pytester.runpytest_inprocess(*PLUGIN, "--turingas-triton").assert_outcomes(passed=1)
    text = Path(pytester.path / "test_a_projects_own_launches.py")
    text.write_text(text.read_text().replace("def test_it():", "def test_it(turingas_triton):"))
    pytester.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=1)


class Descriptor:
    """What a TensorDescriptor of Triton's has, from 3.5 on."""

    padding = "zero"

    def __init__(self, base, block):
        self.base, self.shape, self.block_shape = on_cpu.Pointer(base), list(base.shape), block
        self.strides = [step // base.itemsize for step in base.strides]


META = {"swizzle": 2, "elem_size": 4, "elem_type": 7, "block_size": [8, 16], "fp4_padded": False}


def test_a_source_in_one_line():
    x = np.arange(64, dtype=np.float32)
    testing.cuda('extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }').launch(1, 64, x)
    assert (x == 2 * np.arange(64)).all()


def test_descriptors():
    """Triton's signature says a tensor map, and shape and strides; without one the pointer and all of it twice."""
    a = np.arange(40 * 64, dtype=np.float32).reshape(40, 64)
    made = list(on_cpu.flat("tensordesc<fp32[8, 16]>", Descriptor(a, [8, 16]), "a", iter([META])))
    assert [(int(x), x.dtype.itemsize) for x in made[1:]] == [(40, 4), (64, 4), (64, 8), (1, 8)]
    layout = made[0].layout
    assert (layout.dims, layout.strides, layout.box) == ((64, 40), (256,), (16, 8))
    assert (layout.swizzle, layout.dtype, layout.fill) == (64, "float32", "zero")
    before = list(on_cpu.flat("tensordesc<fp32[8, 16]>", Descriptor(a, [8, 16]), "a", iter(())))
    assert before[0] is a and [int(x) for x in before[1:]] == [40, 64, 64, 1, 0, 40, 64, 64, 1]


def test_columns_of_a_descriptor():
    one = Descriptor(np.zeros((2, 6, 10, 16), np.float32), [32, 16])
    one.pixel_box_lower_corner, one.pixel_box_upper_corner, one.element_strides = [-1, 0], [1, -2], None
    layout = on_cpu.tensor_map(one, "a", {**META, "block_size": [32, 16], "is_im2col": True}).layout
    assert (layout.pixels, layout.channels, layout.lower, layout.upper) == (32, 16, (0, -1), (-2, 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [({"fp4_padded": True}, "4-bit"), ({"block_size": [8, 64]}, "more than the swizzle"), ({}, "its array has 10240")],
)
def test_what_no_tensor_map_is(change, said):
    one = Descriptor(np.zeros((40, 64), np.float32), [8, 16])
    one.shape = [41, 64] if not change else one.shape
    with pytest.raises(LaunchError, match=said):
        on_cpu.tensor_map(one, "a", {**META, **change})


def test_the_example(pytester, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples/testing"))
    result = pytester.runpytest_inprocess(
        *PLUGIN, "--turingas-strict", "--turingas-races", "--rootdir", str(ROOT / "examples/testing"),
        str(ROOT / "examples/testing"),
    )  # fmt: skip
    result.assert_outcomes(passed=8)
    sys.modules.pop("kernels", None)


def test_the_workflow_of_the_page():
    from turingas.testing import plugin

    yaml = pytest.importorskip("yaml", reason="comes with mkdocs")
    page = (ROOT / "docs/testing.md").read_text()
    found = yaml.safe_load(page.split("```yaml")[1].split("```")[0])
    commands = [step["run"] for step in found["jobs"]["test"]["steps"] if "run" in step]
    options = [word for word in commands[-1].split() if word.startswith("--")]
    known = {f"--turingas-{name}" for name in (*plugin.FLAGS, *plugin.VALUES)}
    assert options and set(options) <= known
    assert {word for word in page.replace("`", " ").split() if word.startswith("--turingas")} == known

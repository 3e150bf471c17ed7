"""The comparison behind `turingas validate`: what it finds equal, what it finds wrong, how calls are written."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import turingas
from loader import nvrtc, validate
from loader.reference.problem import Problem
from loader.validate import Call, Sides, allowed, compare, judge, numbers, poisoned, unwritten
from loader.validate.device import options_for
from tests.emulate.test_device import ADD
from tests.loader.driver import Driver
from turingas.emulate import DeviceError
from turingas.errors import LaunchError

#: A convolution with x and y as C, H, W, N, which can be made wrong in several ways.
CONV = """
// validate: x:CHWN w y:CHWN N C H W K P Q STRIDE PADDING --grid ceil_div(N*K*P*Q,64) --block 64
extern "C" __global__ void conv(const float *x, const float *w, float *y, int N, int C, int H, int W, int K,
                                int P, int Q, int stride, int padding) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= N * K * P * Q - SKIP) return;
    int n = i % N, q = i / N % Q, p = i / N / Q % P, k = i / N / Q / P;
    float sum = 0;
    for (int c = 0; c < C; c++)
        for (int r = 0; r < 3; r++)
            for (int s = 0; s < 3; s++) {
                int h = p * stride + r - padding, v = q * stride + s - padding;
                if (h >= 0 && h < H && v >= 0 && v < W)
                    sum += x[((c * H + h) * W + v) * N + n] * w[((k * C + c) * 3 + r) * 3 + s];
            }
    y[i] = i == WRONG ? sum + 1 : sum;
    if (SPOIL) ((float *)x)[i] = 0;
}
"""
WORDS = validate.line(CONV)
SHAPE = Problem(2, 3, 5, 4, 3, 3, 3, 1, 1)


def conv(skip=0, wrong=-1, spoil=0):
    return nvrtc.compile(CONV, "sm_75", [f"-DSKIP={skip}", f"-DWRONG={wrong}", f"-DSPOIL={spoil}"], name="conv.cu")


def convolve(cubin, problem=SHAPE, words=WORDS, **more):
    kernel = validate.by_call("conv", Call().changed(words))
    return validate.convolution(cubin, kernel, problem, device="cpu", **more)


# ---- poison and comparison


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i4", "u1", "i8"])
def test_poison(kind):
    array = poisoned((3, 5), kind)
    assert array.shape == (3, 5) and unwritten(array).all()
    assert array.dtype.kind != "f" or np.isnan(array).all()
    array[1, 2] = 0
    assert np.argwhere(~unwritten(array)).tolist() == [[1, 2]]


def test_poison_is_no_result_of_arithmetic():
    with np.errstate(invalid="ignore"):
        made = np.array([np.nan, np.inf - np.inf, -np.nan], np.float32)
    assert not unwritten(made).any()
    assert not unwritten(np.array([0x7FFFFFFF], np.uint32).view(np.float32)).any()  # what GPUs make


def test_compare_gives_the_worst_element():
    wanted = np.arange(24, dtype=np.float64).reshape(2, 3, 4)
    found = wanted.astype(np.float32)
    found[1, 0, 2] += 3
    row = compare("y", "k", found, "float64", wanted, allowed(found, None))
    assert (row.max_abs, row.worst, row.found, row.wanted) == (3, (1, 0, 2), 17, 14)
    assert row.relative == pytest.approx(3 / np.linalg.norm(wanted))
    assert "relative L2" in row.why


def test_the_tolerance_is_that_of_the_type():
    wanted = np.linspace(1, 2, 1000)
    kinds = ("f2", "f4", "f8", "i4")
    assert [allowed(np.zeros(1, kind), None) for kind in kinds] == [1e-3, 1e-6, 1e-12, 0]
    for kind, off in (("f2", 5e-4), ("f4", 5e-7), ("f8", 5e-13)):
        found = (wanted * (1 + off)).astype(kind)
        assert not compare("y", "k", found, "float64", wanted, allowed(found, None)).why, kind
    assert compare("y", "k", (wanted * (1 + 2e-6)).astype("f4"), "float64", wanted, 1e-6).why
    assert not compare("y", "k", (wanted * (1 + 2e-6)).astype("f4"), "float64", wanted, 1e-5).why


def test_one_element_is_not_lost_in_a_large_array():
    wanted = np.random.default_rng(0).standard_normal(1_000_000)
    found = wanted.astype(np.float32)
    found[777] += 5e-4
    row = compare("y", "k", found, "float64", wanted, allowed(found, None))
    assert row.relative < 1e-6 and row.worst == (777,) and "an element is off" in row.why


def test_integers_are_equal_or_wrong():
    wanted = np.arange(10, dtype=np.int64) + (1 << 60)
    assert not compare("y", "k", wanted.copy(), "r", wanted, allowed(wanted, None)).why
    found = wanted.copy()
    found[3] += 1  # float64 sees no difference
    row = compare("y", "k", found, "r", wanted, allowed(found, None))
    assert row.why and row.worst == (3,)


@pytest.mark.parametrize(("found", "wanted", "ok"), [
    (np.nan, 1.0, False), (1.0, np.nan, False), (np.inf, 1.0, False), (np.inf, -np.inf, False),
    (np.nan, np.nan, True), (np.inf, np.inf, True), (0.0, 0.0, True), (-0.0, 0.0, True), (1e-30, 0.0, False),
])  # fmt: skip
def test_what_is_not_finite(found, wanted, ok):
    row = compare("y", "k", np.array([found, 0], np.float32), "r", np.array([wanted, 0]), 1e-6)
    assert (not row.why) == ok


def test_empty_arrays_agree():
    assert not compare("y", "k", np.zeros(0, np.float32), "r", np.zeros(0), 0.0).why


def test_what_neither_wrote_is_no_mismatch_and_what_one_did_not_is():
    both, one = poisoned((8,)), poisoned((8,))
    both[:6] = one[:4] = 1
    assert judge("", "k", "r", [Sides("y", both, both.copy(), None)], None).ok
    result = judge("", "k", "r", [Sides("y", one, both, None)], None)
    assert "y of k: 2 of 8 elements were never written, the first [4]" in result.wrong
    assert judge("", "k", "", [Sides("y", both, None, np.array([1.0] * 6 + [np.nan] * 2))], None).ok
    assert len(judge("", "k", "", [Sides("y", both, None, np.ones(8))], None).wrong) == 2


def test_an_array_that_neither_wrote_is_no_match():
    """Else a launch that does nothing, on either side, would be right."""
    for sides in (poisoned((8,)), None), (poisoned((8,), "i4"), None), (poisoned((8,)), np.full(8, np.nan)):
        found, exact = sides
        result = judge("", "k", "r", [Sides("y", found, found.copy(), exact)], None)
        assert result.wrong == ["y of k: nothing was written, so nothing was compared"]
    six = np.full(4, -6, np.int16)  # the pattern itself
    assert unwritten(six).all() and judge("", "k", "r", [Sides("y", six, six.copy(), None)], None).ok


def test_with_float64_both_are_judged_by_it_alone():
    exact = np.ones(100)
    near = [(exact * (1 + sign * 0.9e-6)).astype(np.float32) for sign in (1, -1)]  # 1.8e-6 from each other
    assert judge("", "k", "r", [Sides("y", *near, exact)], None).ok
    result = judge("", "k", "r", [Sides("y", near[0], near[1] * 2, exact)], None)
    assert len(result.wrong) == 1 and "of r" in result.wrong[0]


# ---- calls as text


@pytest.mark.parametrize(("text", "wanted"), [
    ("7", [7]), ("0x10, N", [16, 3]), ("N*K + 2", [17]), ("ceil_div(N, 2), K % 2, K // 2, -N", [2, 1, 2, -3]),
    ("max(N, K), min(N, K)", [5, 3]), ("(N + 1) * 2", [8]), (" 1.5 ", [1.5]), ("", []),
])  # fmt: skip
def test_expressions(text, wanted):
    assert numbers(text, {"N": 3, "K": 5}) == wanted


@pytest.mark.parametrize("text", [
    "Z", "N.real", "N ** 9", "__import__('os')", "open('x')", "'a'", "1] + [2", "N //", "N // 0", "ceil_div(N)", "[N]",
    "lambda: 1", "N if N else 1", "(" * 500 + ")" * 500, "min(*N)",
])  # fmt: skip
def test_what_is_no_expression(text):
    with pytest.raises(LaunchError):
        numbers(text, {"N": 3})


def test_the_line_in_a_source():
    words = validate.line("# a\n  #validate: x 'N, 2' --grid N*K --kernel two\nEXIT;\n")
    call = Call().changed(words)
    assert call == Call(("x", "N, 2"), grid="N*K", kernel="two")
    assert call.changed(["--grid", "7"]) == Call(("x", "N, 2"), grid="7", kernel="two")
    assert call.changed(["y"]).args == ("y",)
    assert validate.line("# to validate: nothing\n") == []
    for text in ("# validate: x\n// validate: y\n", "# validate: 'x\n"):
        with pytest.raises(LaunchError, match="validate"):
            validate.line(text)
    for words in (["--grids", "1"], ["--grid"]):
        with pytest.raises(LaunchError, match="--grid, --block"):
            Call().changed(words)


def test_arguments():
    random = np.random.default_rng(0)
    names = {"N": 3, "K": 5}
    array, output = validate.value("f32[N*2, K]", names, random)
    assert array.shape == (6, 5) and output and unwritten(array).all()
    array, output = validate.value("i32[K]=arange", names, random)
    assert array.tolist() == [0, 1, 2, 3, 4] and not output
    assert validate.value("u8:N", names, random)[0].dtype == np.uint8
    assert validate.value("N*K", names, random) == (15, False)
    assert validate.value("1.5", {}, random) == (1.5, False)
    for text in ("f32[Z]", "f9[3]", "N, K", "u8:300", "x y"):
        with pytest.raises(LaunchError):
            validate.value(text, names, random)


# ---- convolutions


def test_a_convolution_that_is_right():
    result = convolve(conv())
    assert result.ok, list(result.lines())
    assert [(row.name, row.against) for row in result.rows] == [
        ("conv", "float64"), ("direct", "float64"), ("conv", "direct")]  # fmt: skip
    assert all(row.relative < 1e-6 for row in result.rows)
    assert list(result.lines())[-1] == "match" and result.json()["ok"]


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_90"])
def test_kernels_of_other_architectures(arch):
    cubin = nvrtc.compile("#define SKIP 0\n#define WRONG -1\n#define SPOIL 0\n" + CONV, arch, name="conv.cu")
    assert convolve(cubin).ok


def test_stride_padding_and_no_reference():
    for problem in (Problem(1, 2, 7, 6, 2, 3, 3, 2, 0), Problem(3, 1, 4, 4, 1, 3, 3, 1, 2)):
        result = convolve(conv(), problem, reference=None)
        assert result.ok and len(result.rows) == 1


def test_one_wrong_element_is_found_where_it_is():
    # y is C, H, W, N there: (k, p, q, n) = (1, 2, 3, 1) of sizes (3, 5, 4, 2)
    result = convolve(conv(wrong=((1 * 5 + 2) * 4 + 3) * 2 + 1))
    assert not result.ok
    row = result.rows[0]
    assert row.worst == (1, 1, 2, 3) and row.max_abs == pytest.approx(1, rel=1e-5)
    assert "y of conv, worst at [1,1,2,3], against float64" in result.wrong[0]


def test_an_element_that_was_not_written_is_found():
    result = convolve(conv(skip=1))
    assert "y of conv: 1 of 120 elements were never written, the first [1,2,4,3]" in result.wrong


def test_the_wrong_layout_is_found():
    words = [word.replace(":CHWN", "") for word in WORDS]
    assert not convolve(conv(), words=words).ok


def test_writing_to_an_input_is_refused():
    with pytest.raises(LaunchError, match="conv writes to its input x"):
        convolve(conv(spoil=1))


def test_a_reference_in_a_file(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text("#define SKIP 0\n#define WRONG -1\n#define SPOIL 0\n" + CONV)
    result = convolve(conv(), reference=path)
    assert result.ok and result.rows[1].name == "mine.cu"
    path.write_text(path.read_text().replace("WRONG -1", "WRONG 5"))
    result = convolve(conv(), reference=path)
    assert not result.ok and all("of mine.cu" in text for text in result.wrong)


def test_references_in_half_precision_and_of_large_tiles():
    for name in ("memory_efficient_half", "winograd_nonfused"):
        result = convolve(conv(), reference=name)
        assert result.ok and result.rows[1].name == name, result.wrong


def test_seeds_change_the_inputs():
    found = [convolve(conv(), reference=None, seed=seed).rows[0].found for seed in (0, 1, 0)]
    assert found[0] == found[2] != found[1]


def test_the_tolerance_of_long_sums():
    """Added up term by term, as a plain kernel does, 4608 products are off by more than 1e-6."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((400, 4608), np.float32) for _ in range(2))
    exact = (a.astype(np.float64) * b).sum(axis=1)
    found = np.add.accumulate(a * b, axis=1, dtype=np.float32)[:, -1]
    off = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert 1e-6 < off < validate.accuracy(validate.layer("Conv5", 32)) < 5e-6
    assert validate.accuracy(SHAPE) == 1e-6
    assert convolve(conv(), reference=None).what.endswith("tolerance 1.0e-06")
    assert not convolve(conv(), reference=None, tolerance=1e-8).ok


def test_a_reference_may_be_less_accurate():
    exact, near = np.ones(100), np.full(100, 1 + 5e-5, np.float32)
    assert judge("", "k", "r", [Sides("y", exact.astype(np.float32), near, exact)], None).ok
    assert not judge("", "k", "r", [Sides("y", near, near, exact)], None).ok
    assert judge("", "k", "r", [Sides("y", exact.astype(np.float32), near - 9e-4, exact)], None, least=1e-3).ok
    assert not judge("", "k", "r", [Sides("y", near, exact.astype(np.float32), None)], None).ok


def test_the_layers_of_the_paper():
    assert [validate.describe(validate.layer(name, 32)) for name in ("Conv2", "Conv5")] == [
        "N=32 C=64 H=56 W=56 K=64, 3x3, stride 1, padding 1", "N=32 C=512 H=7 W=7 K=512, 3x3, stride 1, padding 1"]
    asked = validate.problems(["all"], (1, 2, 3, 4, 5), [32, 64], [3, 1], 2, 0)
    assert len(asked) == 9 and asked[-1] == Problem(1, 2, 3, 4, 5, 3, 1, 2, 0)
    with pytest.raises(LaunchError, match="there are: Conv2"):
        validate.layer("Conv1", 1)
    with pytest.raises(LaunchError, match="larger than an image"):
        validate.problems([], (1, 1, 1, 1, 1), [], [3], 1, 0)


HOST = """
LAYOUT = "CHWN"
def supports(p):
    return "" if p.k < 9 else "k is too large"
def launch(run, module, p, x, w, y):
    scratch = run.empty((7,))
    numbers = p.n, p.c, p.h, p.w, p.k, p.p, p.q, p.stride, p.padding
    module.kernel("conv").launch(-(-p.n * p.k * p.p * p.q // 64), 64, x, w, y, *numbers)
"""


def test_a_host_file(tmp_path):
    path = tmp_path / "host.py"
    (tmp_path / "sizes_beside.py").write_text("LIMIT = 9")
    path.write_text("from sizes_beside import LIMIT\n" + HOST.replace("p.k < 9", "p.k < LIMIT"))
    kernel = validate.by_host(path)
    assert "sizes_beside" not in sys.modules
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sizes_beside.py").write_text("LIMIT = 1")
    other = tmp_path / "other" / "host.py"
    other.write_text(path.read_text())
    with pytest.raises(LaunchError, match="cannot do this: k is too large"):
        validate.convolution(conv(), validate.by_host(other), SHAPE, device="cpu")
    assert validate.convolution(conv(), kernel, SHAPE, device="cpu").ok
    with pytest.raises(LaunchError, match="cannot do this: k is too large"):
        validate.convolution(conv(), kernel, Problem(1, 1, 3, 3, 9, 3, 3), device="cpu")


def test_a_host_file_for_several_layouts(tmp_path):
    path = tmp_path / "host.py"
    head = "def launch(run, module, p, x, w, y, layout=LAYOUT):\n    assert layout == 'CHWN', layout\n"
    path.write_text("LAYOUTS = 'CHWN', 'NCHW'\n" + HOST.replace("def launch(run, module, p, x, w, y):\n", head))
    assert validate.convolution(conv(), validate.by_host(path, "CHWN"), SHAPE, device="cpu").ok
    assert validate.by_host(path, "NCHW").layouts == {"x": "NCHW", "w": "KCRS", "y": "NCHW"}
    with pytest.raises(LaunchError, match="AssertionError: NCHW"):
        validate.convolution(conv(), validate.by_host(path, "NCHW"), SHAPE, device="cpu")
    with pytest.raises(LaunchError, match="has no layout 'NHWC'\nhint: its LAYOUTS: CHWN, NCHW"):
        validate.by_host(path, "NHWC")


@pytest.mark.parametrize(("text", "message"), [
    ("x = 1", "has no function launch"),
    ("def launch(*args):\n    1 / 0", "host.py:2: ZeroDivisionError"),
    ("def launch(", "host.py:1: SyntaxError"),
    ("LAYOUT = 'NCW'\ndef launch(*args): pass", "NCW is not a layout"),
    ("def launch(run, module, *args):\n    module.kernel('x')", "no kernel 'x'"),
])  # fmt: skip
def test_a_host_file_that_is_wrong(tmp_path, text, message):
    path = tmp_path / "host.py"
    path.write_text(text)
    with pytest.raises(LaunchError, match=message):
        validate.convolution(conv(), validate.by_host(path), SHAPE, device="cpu")


# ---- any kernel


@pytest.fixture(scope="module")
def add():
    return turingas.assemble(ADD, filename="add.sass")


SCALE = """
extern "C" __global__ void scale(float *out, const float *in, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * by;
}
"""
ARGS = ("f32[64]", "f32[64]=random", "64", "2.5")


def exact(out, values, n, by):
    result = out.astype(np.float64)
    result[:n] = values[:n].astype(np.float64) * by
    return result


def test_any_kernel(add, tmp_path):
    path = tmp_path / "scale.cu"
    path.write_text(SCALE)
    call = Call(ARGS, grid="2", kernel="add")
    result = validate.arrays(add, call, reference=path, truth=exact, device="cpu")
    assert result.ok and len(result.rows) == 4  # the output three times, the input against the reference
    assert validate.arrays(add, call, reference=path, device="cpu").ok
    assert validate.arrays(add, call, truth=exact, device="cpu").ok
    result = validate.arrays(add, Call(ARGS, kernel="add"), truth=exact, device="cpu")
    assert "argument 0 of kernel: 32 of 64 elements were never written, the first [32]" in result.wrong
    path.write_text("// validate: --grid 1 --block 64\n" + SCALE)
    assert validate.arrays(add, call, reference=path, device="cpu").ok
    path.write_text("// validate: f32[4]\n" + SCALE)
    with pytest.raises(LaunchError, match="arguments of its own"):
        validate.arrays(add, call, reference=path, device="cpu")


def test_strict_and_races_reach_the_kernel(tmp_path):
    cubin = turingas.assemble(ADD.replace("--:-:-:-:6 MOV R2", "--:-:-:-:1 MOV R2"), filename="add.sass")
    call = Call(ARGS, grid="2", kernel="add")
    assert validate.arrays(cubin, call, truth=exact, device="cpu").ok
    result = validate.arrays(cubin, call, truth=exact, device="cpu", options={"strict": True})
    assert not result.ok and "[raw-stall]" in result.wrong[0]


@pytest.mark.parametrize(("call", "truth", "error", "message"), [
    (Call(ARGS, kernel="add"), None, LaunchError, "nothing to compare with"),
    (Call(ARGS, kernel="add"), lambda *a: [], LaunchError, "gives 0 arrays; the kernel has 1"),
    (Call(ARGS, kernel="add"), lambda *a: np.zeros(3), LaunchError, r"gives \(3,\) for argument 0"),
    (Call(("f32[64]=0", *ARGS[1:]), kernel="add"), lambda *a: [], LaunchError, "no array to compare"),
    (Call(ARGS[:2], kernel="add"), exact, LaunchError, "takes 4 arguments and was given 2"),
    (Call(ARGS), exact, LaunchError, "2 kernels, so a name is needed"),
    (Call(("f32[64]", "f32[9]=random", "64", "2.0"), kernel="add"), lambda *a: 0, DeviceError, "behind the end"),
])  # fmt: skip
def test_what_is_refused(add, call, truth, error, message):
    with pytest.raises(error, match=message):
        validate.arrays(add, call, truth=truth, device="cpu")


def test_arguments_without_tensors():
    with pytest.raises(LaunchError, match="the arguments of k lack w, y"):
        validate.by_call("k", Call(("x", "N")))
    with pytest.raises(LaunchError, match="KCRN is not a layout"):
        validate.by_call("k", Call(("x", "w:KCRN", "y")))
    with pytest.raises(LaunchError, match="two layouts: w:KCRS, x:CHWN, x:NCHW, y:NCHW"):
        validate.by_call("k", Call(("x", "x:CHWN", "w", "y")))
    assert validate.by_call("k", Call(("x", "x:NCHW", "w", "y"))).layouts == validate.AXES


def test_a_reference_that_there_is_not():
    with pytest.raises(LaunchError, match="no algorithm 'fft'"):
        convolve(conv(), reference="fft")
    with pytest.raises(FileNotFoundError):
        convolve(conv(), reference="nowhere.cu")


def test_a_reference_that_does_not_compile(tmp_path):
    path = tmp_path / "bad.cu"
    path.write_text("// validate: x w y\nint;\nfoo bar;\n")
    with pytest.raises(nvrtc.NvrtcError, match=r"bad.cu\(3\)"):
        convolve(conv(), reference=path)


def test_options_of_the_cpu_device_elsewhere():
    with pytest.raises(LaunchError, match="--strict: the CPU device alone"):
        options_for("cuda:0", {"strict": True})


# ---- on a GPU, over a driver that runs kernels on the CPU device


@pytest.fixture
def gpu(install):  # noqa: F811
    install(Driver(major=9, minor=0))


def test_convolutions_on_a_gpu(gpu):
    defined = ["-DSKIP=2", "-DWRONG=0", "-DSPOIL=0"]
    for device in (None, "cuda", "cuda:0"):
        kernel = validate.by_call("conv", Call().changed(WORDS))
        cubin = nvrtc.compile(CONV, "sm_90", defined, name="conv.cu")
        result = validate.convolution(cubin, kernel, SHAPE, device=device)
        assert "on cuda:0" in result.what and len(result.rows) == 3
        assert result.wrong[-1] == "y of conv: 2 of 120 elements were never written, the first [0,2,4,3]"
        assert result.rows[1].relative < 1e-6


def test_any_kernel_on_a_gpu(gpu):
    cubin = nvrtc.compile(SCALE, "sm_90", name="scale.cu")
    assert validate.arrays(cubin, Call(ARGS, grid="2"), truth=exact, device="cuda:0").ok
    result = validate.arrays(cubin, Call(ARGS, grid="1"), truth=exact, device="cuda:0")
    assert "argument 0 of kernel: 32 of 64 elements were never written, the first [32]" in result.wrong


def test_a_cubin_of_another_architecture_on_a_gpu(gpu, add):
    with pytest.raises(LaunchError, match="sm_75"):
        validate.arrays(add, Call(ARGS, grid="2", kernel="add"), truth=exact, device="cuda:0")

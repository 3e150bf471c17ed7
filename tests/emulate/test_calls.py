"""printf and assert on the CPU device: text, order, results, and what a failed assertion says."""

from __future__ import annotations

import ctypes
import math
import re

import numpy as np
import pytest

import loader
from tests.tools.nvrtc import compile_source
from turingas.emulate import DeviceError

#: format, arguments in C++, and what they are to C's own printf
FORMATS = [
    ("%d %i %5d|%-5d|%05d %+d", "a, -a, a, a, a, a", [7, -7, 7, 7, 7, 7]),
    ("%u %x %X %#x %o %#o", "-a, 255, 255, 255, 8, 8", [(1 << 32) - 7, 255, 255, 255, 8, 8]),
    ("%f %5.2f|%-9.1e|%g %G", "f, f, f, f, 1e-10", [2.5, 2.5, 2.5, 2.5, 1e-10]),
    ("%f %F %e", "1.0 / 0.0, -1.0 / 0.0, 0.0", [float("inf"), float("-inf"), 0.0]),
    ("%s|%6s|%-6s|%.2s", '"one", "two", "", "three"', [b"one", b"two", b"", b"three"]),
    ("%c%c %%", "'x', 'y'", [ord("x"), ord("y")]),
    ("%lld %llx %hd", "-1LL << 40, 1LL << 40, 65537", [-(1 << 40), 1 << 40, 65537]),
    ("%*d|%*.1f|%d", "6, a, 5, f, a", [6, 7, 5, 2.5, 7]),
    ("%a %c %d %.3s", "f, 'q', a, \"last\"", [2.5, ord("q"), 7, b"last"]),
    ("%.3a|%.1a|%.0a|%10.2A|%.15a", "f, 1.97, 1.5, -f, f", [2.5, 1.97, 1.5, -2.5, 2.5]),
    ("%f|%8.2g|%G", ", ".join(["__longlong_as_double(-1)"] * 3), [-math.nan] * 3),
]


def as_c(form, values):
    """What the C library makes of it."""
    kinds = {float: ctypes.c_double, bytes: ctypes.c_char_p, int: ctypes.c_longlong}
    text = ctypes.create_string_buffer(500)
    ctypes.CDLL(None).snprintf(text, 500, form.encode(), *(kinds[type(value)](value) for value in values))
    return text.value.decode()


def source():
    lines = [f'case {n}: result[0] = printf("{form}\\n", {args}); break;' for n, (form, args, _) in enumerate(FORMATS)]
    return f"""extern "C" __global__ void formats(int* result, int which, int a, float f) {{ switch (which) {{
        {" ".join(lines)} }} }}
        extern "C" __global__ void order(int* x) {{
            if (threadIdx.x % 2) printf("%d.%d ", blockIdx.x, threadIdx.x);
            __syncthreads();
            x[threadIdx.x] = printf("");
            assert(x[3] == 0 && "three");
            if (x[4]) x[5] = (int)(long long)malloc(4); }}
        extern "C" __global__ void lacking(int which) {{
            if (which == 0) printf("%hhu %d", which, 1);
            if (which == 1) printf("%zu %d", sizeof(int), 1);
            if (which == 2) printf("%jd %d", 1LL, 1);
            if (which == 3) printf("%td %d", 1LL, 1);
            if (which == 4) printf("%.*f %d", which, 2.5, 1);
            if (which == 5) printf("%5%|%%"); }}
        extern "C" __global__ void trap(int* x) {{ if (threadIdx.x == 3) __trap(); x[threadIdx.x] = 1; }}"""


@pytest.fixture(scope="module", params=["sm_75", "sm_90"])
def kernels(request):
    return loader.load(compile_source(source(), request.param, ("-lineinfo",)), "cpu")


@pytest.mark.parametrize("which", range(len(FORMATS)))
def test_formats(kernels, which, capsys):
    form, args, values = FORMATS[which]
    result = np.zeros(1, np.int32)
    report = kernels.kernel("formats").launch(1, 1, result, which, 7, 2.5)
    assert report.printed == as_c(form, values) + "\n" == capsys.readouterr().out
    assert result[0] == len(values)


@pytest.mark.parametrize("which, form, why", [
    (0, "%hhu", "the sizes h, l and ll, not hh"),
    (1, "%zu", "the sizes h, l and ll, not z"),
    (2, "%jd", "the sizes h, l and ll, not j"),
    (3, "%td", "the sizes h, l and ll, not t"),
    (4, "%.*f", r"a precision of digits, not \*"),
])  # fmt: skip
def test_what_cuda_lacks(kernels, which, form, why):
    """An H100 prints rubbish for these, or for what follows them."""
    with pytest.raises(DeviceError, match=f"printf: {re.escape(form)}: CUDA has {why}\n") as caught:
        kernels.kernel("lacking").launch(1, 1, which)
    assert caught.value.kind == "unsupported"


def test_a_percent_sign_with_a_width(kernels):
    """An H100 leaves it as it is; C prints the sign alone."""
    assert kernels.kernel("lacking").launch(1, 1, 5).printed == "%5%|%"


def test_order(kernels):
    x = np.ones(40, np.int32)
    x[4] = 0
    report = kernels.kernel("order").launch(3, 40, x, strict=True)
    assert report.printed.split() == [f"{block}.{thread}" for block in range(3) for thread in range(1, 40, 2)]
    assert not x.any() and not report.hazards


def test_several_functions_at_once():
    """A warp stands at printf, another one at the end of an assertion."""
    text = 'extern "C" __global__ void both(int n) { if (threadIdx.x == 3) printf("3"); assert(threadIdx.x < n); }'
    made = compile_source(text, "sm_90")
    with pytest.raises(DeviceError) as caught:
        loader.load(made, "cpu").kernel("both").launch(1, 65, 64)
    assert caught.value.kind == "assert" and caught.value.thread == (64, 0, 0)


def test_what_was_printed_before_a_failed_assertion(kernels, capsys):
    x = np.ones(3, np.int32)  # x[3] is out of bounds for a block of 3 threads
    with pytest.raises(DeviceError, match="out of bounds|0 bytes behind"):
        kernels.kernel("order").launch(1, 3, x)
    assert capsys.readouterr().out == "0.1 "
    x = np.full(4, 9, np.int32)
    with pytest.raises(DeviceError) as caught:
        kernels.kernel("order").launch(1, 3, x)
    error = caught.value
    assert error.kind == "assert" and error.message.endswith('order(int *): assertion `x[3] == 0 && "three"` failed')
    assert error.block == (0, 0, 0) and error.thread == (0, 0, 0) and "CALL" in error.place.text


def test_other_functions_are_named(kernels):
    x = np.zeros(40, np.int32)
    x[4] = 1
    with pytest.raises(DeviceError, match="calls malloc, which the CPU device does not have"):
        kernels.kernel("order").launch(1, 4, x)


def test_a_trap(kernels):
    with pytest.raises(DeviceError, match="the kernel trapped") as caught:
        kernels.kernel("trap").launch(1, 32, np.zeros(32, np.int32))
    assert caught.value.kind == "trap" and caught.value.thread == (3, 0, 0)

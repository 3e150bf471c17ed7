"""Source lines of compiled code."""

from __future__ import annotations

import pytest

from tests.tools.nvrtc import compile_source
from turingas import Cubin
from turingas.cubin.elf import Elf
from turingas.cubin.lines import read_lines

SOURCE = """
__device__ __noinline__ float half(float x) {
    return x * 0.5f;
}
extern "C" __global__ void one(float* out, int n) {
    int i = threadIdx.x;
    if (i >= n)
        return;
    out[i] = half(out[i]);
}
extern "C" __global__ void two(float* out) {
    __shared__ float s[32];
    s[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[31 - threadIdx.x];
}
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_instructions_have_the_line_they_were_compiled_from(arch):
    cubin = Cubin.from_bytes(compile_source(SOURCE, arch, ["-lineinfo"], name="lines.cu"))
    wanted = {"one": {"EXIT", "LDG", "STG", "FMUL"}, "two": {"LDG", "STS", "BAR", "LDS", "STG"}}
    truth = {
        ("one", "LDG"): 9, ("one", "FMUL"): 3, ("one", "STG"): 9, ("two", "LDG"): 13, ("two", "STS"): 13,
        ("two", "BAR"): 14, ("two", "LDS"): 15, ("two", "STG"): 15,
    }  # fmt: skip
    from turingas.isa.isa import instruction_set

    for kernel in cubin.kernels:
        assert len(kernel.lines) == len(kernel.words)
        found = {}
        for word, (file, line) in zip(kernel.words, kernel.lines):
            form = instruction_set(arch).explain(word)
            if form is not None and form.base in wanted[kernel.name] and line:
                assert file.endswith("lines.cu")
                found[kernel.name, form.base] = line
        assert found.items() >= {key: line for key, line in truth.items() if key[0] == kernel.name}.items()


def test_without_line_information_there_is_none():
    cubin = Cubin.from_bytes(compile_source(SOURCE, "sm_75"))
    assert all(kernel.lines == [] for kernel in cubin.kernels)


def test_a_broken_table_is_no_obstacle():
    data = bytearray(compile_source(SOURCE, "sm_75", ["-lineinfo"]))
    elf = Elf.from_bytes(bytes(data))
    section = elf.section(".debug_line")
    full = read_lines(elf)
    assert full
    for cut in range(0, len(section.data), 7):
        section.data = bytes(section.data)[:cut] + b"\xff" * (len(section.data) - cut)
        read_lines(elf)

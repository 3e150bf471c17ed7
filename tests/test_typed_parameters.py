"""Parameters with types: in source, in the cubin, at a launch."""

from __future__ import annotations

import struct
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import loader
import turingas
from turingas.cli import main
from turingas.cubin import notes
from turingas.cubin.elf import Elf
from turingas.disassembler import check
from turingas.emulate import launch
from turingas.errors import LaunchError, LaunchWarning
from turingas.launch import float_parameters, scalar

AXPY = """\
.kernel axpy
<params>
x, {pointer}
n, {integer}
a, {number}
</params>
--:-:0:-:1  S2R R0, threadIdx.x;
--:-:-:-:5  MOV R1, 0x4;
01:-:-:-:6  IMAD.WIDE R2, R0, R1, x;
--:-:2:-:2  LDG.E R4, [R2{wide}];
04:-:-:-:4  FMUL R4, R4, a;
--:-:-:-:5  IADD3 R5, R0, n, RZ;
--:-:-:-:1  STG.E [R2{wide}], R4;
--:-:-:Y:5  EXIT;
"""


def made(pointer: str = "f32*", integer: str = "s32", number: str = "f32") -> turingas.Cubin:
    return turingas.assemble(AXPY.format(pointer=pointer, integer=integer, number=number, wide=""), arch="sm_75")


def test_the_cubin_keeps_them() -> None:
    data = made().to_bytes()
    cubin = turingas.Cubin.from_bytes(data)
    assert [(p.name, p.type, p.size, p.offset) for p in cubin.kernel("axpy").params] == [
        ("x", "f32*", 8, 0), ("n", "s32", 4, 8), ("a", "f32", 4, 12),
    ]  # fmt: skip
    listing = turingas.disassemble(data)
    assert ".param x f32* offset=0x0\n.param n s32 offset=0x8\n.param a f32 offset=0xc" in listing
    assert check(data) == [] and turingas.assemble(listing).to_bytes() == data


def test_a_cubin_without_types_has_no_note() -> None:
    elf = Elf.from_bytes(made("8", "4", "4").to_bytes())
    assert elf.section(notes.SECTION) is None
    assert turingas.Cubin.from_bytes(elf.to_bytes()).kernel("axpy").params[0].type == ""


def test_notes_that_do_not_fit_are_passed_over() -> None:
    cubin = made()
    for bad in (b"\xff" * 40, b"", notes.pack(cubin.texts)[:-5], notes.pack(cubin.texts).replace(b"a:f32", b"a:f64")):
        other = turingas.Cubin.from_bytes(made("8", "4", "4").to_bytes())
        notes.apply(bad, other.texts)
        assert [p.type for p in other.kernel("axpy").params] == ["", "", ""]


def test_typed_parameters_are_aligned() -> None:
    source = "<params>\na, u8\nb, f16\nc, u64\nd, 4\n</params>\n--:-:-:Y:5 EXIT;"
    params = turingas.assemble(source).kernels[0].params
    assert [(p.offset, p.size) for p in params] == [(0, 1), (2, 2), (8, 8), (16, 4)]


@pytest.mark.parametrize("line", ["a, f31", "a, f32**", "a, int"])
def test_unknown_types(line: str) -> None:
    with pytest.raises(turingas.AsmError, match="is neither a number of bytes nor a type"):
        turingas.assemble(f"<params>\n{line}\n</params>\n--:-:-:Y:5 EXIT;")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (2, "f32", struct.pack("<f", 2)), (True, "f64", struct.pack("<d", 1)), (2.5, "f16", struct.pack("<e", 2.5)),
        (-1, "s32", b"\xff" * 4), (255, "u8", b"\xff"), (np.float32(2), "f32", struct.pack("<f", 2)),
        (np.int32(-2), "s32", struct.pack("<i", -2)), (4096, "ptr", struct.pack("<Q", 4096)),
    ],
)  # fmt: skip
def test_what_a_type_takes(value: object, kind: str, expected: bytes) -> None:
    assert scalar(value, len(expected), "argument 0", kind) == expected


@pytest.mark.parametrize(
    ("value", "size", "kind"),
    [
        (2.5, 4, "s32"), (-1, 4, "u32"), (1 << 31, 4, "s32"), (np.int32(2), 4, "f32"), (np.float32(2), 4, "u32"),
        (1.5, 8, "ptr"), (1e39, 4, "f32"), (-1, 8, "f32*"),
    ],
)  # fmt: skip
def test_what_a_type_refuses(value: object, size: int, kind: str) -> None:
    with pytest.raises(LaunchError, match="argument 0 is"):
        scalar(value, size, "argument 0", kind)


def test_launches_convert() -> None:
    x = np.arange(32, dtype=np.float32)
    launch(made(), "axpy", 1, 32, [x, 1, 2])
    assert x[:3].tolist() == [0, 2, 4]
    with pytest.raises(LaunchError, match=r"argument 1 \(n\) of axpy is the float 2.5, the parameter is s32"):
        launch(made(), "axpy", 1, 32, [x, 2.5, 2])
    with pytest.raises(LaunchError, match=r"argument 0 \(x\) of axpy is an array of f64, the parameter is f32\*"):
        launch(made(), "axpy", 1, 32, [x.astype(np.float64), 1, 2])
    with pytest.raises(LaunchError, match="argument 2 .* is an array, but the parameter is f32"):
        launch(made(), "axpy", 1, 32, [x, 1, x])


def test_an_int_that_is_read_as_a_float_is_a_warning() -> None:
    x = np.ones(32, np.float32)
    untyped = made("8", "4", "4")
    assert float_parameters(untyped.kernel("axpy")) == {2}
    with pytest.warns(LaunchWarning, match=r"argument 2 \(a\) of axpy is the int 2, .* as a float: 2.8e-45"):
        launch(untyped, "axpy", 1, 32, [x, 1, 2])
    with pytest.warns(LaunchWarning) as seen:
        launch(untyped, "axpy", 1, 32, [x, 1, 2])
        loader.load(untyped, "cpu").kernel("axpy").launch(1, 32, x, 1, 2)
    assert [one.filename for one in seen] == [__file__] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(untyped, "axpy", 1, 32, [x, 1, 2.0])
        launch(untyped, "axpy", 1, 32, [x, 1, 0])
        launch(untyped, "axpy", 1, 32, [x, 1, np.int32(2)])
        launch(made(), "axpy", 1, 32, [x, 1, 2])


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_of_compiled_code(arch: str) -> None:
    """A parameter that goes through a register or a uniform register first."""
    from tests.tools import nvrtc

    if nvrtc.library_path() is None:
        pytest.skip("NVRTC is not installed")
    source = 'extern "C" __global__ void k(float *x, float a, int n, float b) { x[threadIdx.x + n] = x[0] * a + b; }'
    cubin = turingas.Cubin.from_bytes(nvrtc.compile_source(source, arch))
    assert float_parameters(cubin.kernel("k")) <= {1, 3} and 1 in float_parameters(cubin.kernel("k"))


def test_run_says_it(tmp_path) -> None:
    for name, number in (("typed", "f32"), ("plain", "4")):
        (tmp_path / f"{name}.sass").write_text(AXPY.format(pointer="8", integer="4", number=number, wide=""))
    run = ["run", "--block", "32", str(tmp_path / "typed.sass"), "f32[32]=arange", "1", "2"]
    result = CliRunner().invoke(main, run)
    assert result.exit_code == 0 and "0 2 4 6" in result.output and "warning" not in result.output
    run[3] = str(tmp_path / "plain.sass")
    assert "warning: argument 2 (a) of axpy is the int 2" in CliRunner().invoke(main, run).output

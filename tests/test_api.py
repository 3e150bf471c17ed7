"""The public face: names, what the docstrings claim, labels, comments, control codes, errors; and any input at all."""

from __future__ import annotations

import copy
import dataclasses
import html
import inspect
import pickle
import random
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import loader
import turingas
from loader.cuda import ContextLost, CudaError
from tests.emulate.test_device import ADD
from tests.isa.words import ARCHS, sample
from turingas import AsmError, Cubin, CubinError
from turingas.emulate import DeviceError
from turingas.errors import LaunchError
from turingas.isa import control

LDG = 0x000EA800001EED000000100002147381
SLOW = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


def refused(text: str, arch: str = "sm_75", **options: object) -> AsmError:
    with pytest.raises(AsmError) as caught:
        turingas.encode(text, arch, **options)  # type: ignore[arg-type]
    return caught.value


# -- names and signatures


def test_public_names():
    for name in ("encode", "decode", "assemble", "disassemble", "Cubin", "AsmError", "CubinError"):
        assert name in turingas.__all__ and getattr(turingas, name) is not None
    with pytest.raises(AttributeError):
        turingas.nothing  # noqa: B018
    assert turingas.__version__


def test_signatures():
    shown = {name: list(inspect.signature(getattr(turingas, name)).parameters) for name in ("encode", "decode")}
    assert shown == {
        "encode": ["text", "arch", "default_control", "address"],
        "decode": ["words", "arch", "address", "control"],
    }
    parameters = list(inspect.signature(turingas.assemble).parameters)
    assert parameters[:6] == ["source", "arch", "defines", "include", "filename", "kernel"]


# -- encode


def test_one_line():
    assert turingas.encode("01:-:2:-:4  LDG.E.128.SYS R20, [R2+0x10]", arch="sm_75") == [LDG | 1 << control.WAIT]
    assert turingas.encode("--:-:2:-:4  LDG.E.128.SYS R20, [R2+0x10];") == [LDG]


def test_nothing():
    assert turingas.encode("") == turingas.encode("\n\n  # only a comment\nlabel:\n") == turingas.decode([]) == []


def test_both_control_spellings():
    assert turingas.encode("01:-:2:Y:4 NOP") == turingas.encode("B0-----:R-:W2:Y:S04 NOP")
    assert turingas.encode("[B0-----:R-:W2:Y:S04] NOP") == turingas.encode("01:-:2:Y:4    NOP ;")
    assert turingas.encode("--:-:-:Y:f NOP") == turingas.encode("--:-:-:Y:15 NOP")


def test_default_control():
    assert turingas.encode("NOP", default_control="01:-:2:Y:4") == turingas.encode("01:-:2:Y:4 NOP")
    mixed = turingas.encode("NOP\n--:-:-:-:3 NOP", default_control="--:-:-:-:1")
    assert [word >> control.STALL & 15 for word in mixed] == [1, 3]
    assert "default control code" in refused("NOP", default_control="nonsense").message
    assert "no control code" in refused("NOP").message


def test_comments_and_spaces():
    want = turingas.encode("--:-:-:-:4 FADD R0, R1, R2")
    for line in (
        "\t--:-:-:-:4\tFADD\tR0,\tR1, R2",
        "--:-:-:-:4  FADD R0 , R1 ,R2 ; ",
        "--:-:-:-:4  FADD  R0 ,R1,R2  ;  # why",
        "--:-:-:-:4  FADD R0, /* first */ R1, R2 // why",
        "--:-:-:-:4  FADD R0, R1, R2;;",
        "--:-:-:-:4  FADD R0, R1, R2\r",
    ):
        assert turingas.encode(line) == want, line


@pytest.mark.parametrize(
    "line, want",
    [
        ("@P0\tLDG.E.SYS\tR0, [R2]", "@P0 LDG.E.SYS R0, [R2]"),
        ("LDG.E.SYS R0, [ R2 + 0x10 ]", "LDG.E.SYS R0, [R2+0x10]"),
        ("LDG.E.SYS R0, [R2-0x10]", "LDG.E.SYS R0, [R2+-0x10]"),
        ("LDG.E.SYS R0, [R2+-16]", "LDG.E.SYS R0, [R2+-0x10]"),
        ("LDG.E.SYS R0, [RZ+0X1F]", "LDG.E.SYS R0, [0x1f]"),
        ("MOV R0, c[0x0] [0x160]", "MOV R0, c[0x0][0x160]"),
        ("MOV R0, c[ 0 ][352]", "MOV R0, c[0x0][0x160]"),
        ("MOV R0, c[0x0][0xfffc]", "MOV R0, c[0x0][-0x4]"),
        ("MOV R0, -1", "MOV R0, 0xffffffff"),
        ("IADD3 R0, R1, 0xffffffff, RZ", "IADD3 R0, R1, -0x1, RZ"),
        ("FADD R0, R1, 0x3f800000", "FADD R0, R1, 1"),
        ("FADD R0, R1, INF", "FADD R0, R1, +INF"),
        ("FADD R0, | R1 |, .5", "FADD R0, |R1|, 0.5"),
        ("DEPBAR.LE SB0, 0x0, {3, 2}", "DEPBAR.LE SB0, 0x0, {3,2}"),
        ("IMAD R1, RZ, RZ, R2", "IMAD.MOV R1, RZ, RZ, R2"),
    ],
)
def test_other_spellings(line, want):
    """What is read besides the one spelling that is printed."""
    assert turingas.decode(turingas.encode("--:-:-:-:4  " + line), control=False) == [want]


def test_labels_and_address():
    text = "--:-:-:-:4 BRA end\nloop: --:-:-:-:4 NOP\n--:-:-:-:4 BRA `(loop)\nend:\n--:-:-:-:4 EXIT"
    for address in (0, 0x1000):
        words = turingas.encode(text, address=address)
        assert len(words) == 4
        shown = turingas.decode(words, address=address, control=False)
        assert shown == [f"BRA {address + 48:#x}", "NOP", f"BRA {address + 16:#x}", "EXIT"]
    assert turingas.encode(text) == turingas.encode(text, address=0x1000)  # branches are relative
    absolute = turingas.encode("--:-:-:-:4 BRA 0x1000")
    assert absolute != turingas.encode("--:-:-:-:4 BRA 0x1000", address=0x10)


def test_opaque_words():
    assert turingas.encode(".word 0x0\n.word 0xffffffffffffffffffffffffffffffff") == [0, (1 << 128) - 1]
    assert turingas.decode([0]) == [".word 0x" + "0" * 32]
    assert "32 hexadecimal digits" in refused(".word 12").message


def test_reuse_bits_that_no_operand_shows():
    words = turingas.encode("--:-:-:-:4:a  LDG.E.SYS R0, [R2]")
    assert words[0] >> control.REUSE & 7 == 1
    assert turingas.decode(words) == ["--:-:-:-:4:a  LDG.E.SYS R0, [R2]"]
    assert turingas.decode(words, control=False) == ["LDG.E.SYS R0, [R2]"]


# -- decode


def test_decode_is_what_encode_reads():
    assert turingas.decode([LDG], arch="sm_75") == ["--:-:2:-:4  LDG.E.128.SYS R20, [R2+0x10]"]
    assert turingas.decode([LDG], arch="sm_75", control=False) == ["LDG.E.128.SYS R20, [R2+0x10]"]
    assert turingas.decode(iter([LDG, LDG])) == turingas.decode((LDG, LDG))


@pytest.mark.parametrize("bit", range(128))
def test_every_bit_matters(bit):
    """Two words that differ in one bit never have the same text: cold, and with every text remembered."""
    for arch in ("sm_75", "sm_90"):
        words = turingas.encode("01:-:2:-:4  FADD R20, R2, R3\n--:-:-:-:4  EXIT\n--:-:-:Y:3  BRA 0x40", arch)
        words += turingas.encode("--:-:-:-:5  IMAD R1, R2.reuse, R3, R4", arch)
        turned = [word ^ 1 << bit for word in words]
        for _ in range(2):
            lines = turingas.decode(words + turned, arch)
            assert turingas.encode("\n".join(lines), arch) == words + turned


# -- assemble and disassemble


def test_assemble_and_disassemble():
    source = "--:-:-:-:4  S2R R0, SR_TID.X;\n--:-:-:Y:5  EXIT;\n"
    cubin = turingas.assemble(source, arch="sm_75", kernel="mine")
    assert isinstance(cubin, Cubin) and cubin.arch == "sm_75"
    (kernel,) = Cubin.from_bytes(cubin.to_bytes()).kernels
    assert kernel.name == "mine" and list(kernel.words[:2]) == turingas.encode(source)
    again = turingas.assemble(turingas.disassemble(cubin))
    assert list(again.kernels[0].words) == list(kernel.words)
    with pytest.raises(CubinError):
        Cubin.from_bytes(b"no cubin")


# -- errors


def test_error_fields():
    error = refused("--:-:-:-:4 NOP\n  --:-:-:-:4  FADD R0, R1, R256  # too far")
    assert (error.line, error.column) == (2, 28)
    assert error.message == "R256 is out of range: the last one is R254"
    assert isinstance(error.file, str) and isinstance(error.hint, str)
    shown = str(error).splitlines()
    assert shown[0] == "<text>:2:28: error: R256 is out of range: the last one is R254"
    assert shown[1].index("R256") == shown[2].index("^")


def test_every_error_of_the_text():
    error = refused("FADD R0\n--:-:-:-:4 NOP\nx: x:\n--:-:-:-:4 FOO\n12:-:-:-:4 NOP\n--:-:-:-:4 BRA y")
    assert [e.line for e in error.errors] == [1, 3, 4, 5, 6]
    assert error.errors[0] is error
    assert str(error).count("error:") == 5


def test_errors_can_be_pickled():
    error = refused("FOO\nBAR")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and len(again.errors) == 2


def caught(call):
    with pytest.raises((CubinError, LaunchError, DeviceError, CudaError)) as found:
        call()
    return found.value


def lost():
    raise ContextLost("it is lost", "CUDA_ERROR_ILLEGAL_ADDRESS", 700, "an illegal address", "add", "start anew")


@pytest.mark.parametrize("call", [
    lambda: loader.load(b"no cubin", "cpu"), lambda: loader.load(turingas.assemble(ADD), "cpu").kernel("none"), lost,
    lambda: loader.load(turingas.assemble(ADD), "cpu").kernel("add").launch(1, 32, 0, 0, 32, 2.0),
])  # fmt: skip
@pytest.mark.parametrize("again", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy])
def test_errors_of_other_processes(call, again):
    """With all that they tell; a pool of processes would otherwise break, or tell of something else."""
    error = caught(call)
    found = again(error)
    assert type(found) is type(error) and str(found) == str(error)
    assert {**vars(found), "report": 0} == {**vars(error), "report": 0}
    assert repr(getattr(found, "report", None)) == repr(getattr(error, "report", None))


@pytest.mark.parametrize("again", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy])
def test_cubins_and_reports_of_other_processes(again):
    made = turingas.assemble(ADD)
    read = Cubin.from_bytes(made.to_bytes())
    read.kernels[0].words[0] ^= 1 << 105  # a stall: what was changed goes along
    for cubin in (made, read, Cubin.from_bytes(memoryview(made.to_bytes()))):
        assert again(cubin).to_bytes() == cubin.to_bytes()
    held = Cubin.from_bytes(turingas.assemble(".kernel k\nEXIT;\n.bank 2\n.long 5\n").to_bytes())
    assert again(held.kernels[0]).constants == {2: bytes([5, 0, 0, 0])}
    kernel = loader.load(made, "cpu").kernel("add")
    report = kernel.launch(1, 32, np.zeros(32, "f4"), np.ones(32, "f4"), 32, 2.0, counters=True)
    found = again(report)
    assert repr(found) == repr(report) and (found.counters.lanes == report.counters.lanes).all()
    assert found.kernel.words == report.kernel.words


def test_unknown_architecture():
    for call in (turingas.encode, turingas.decode, turingas.assemble):
        with pytest.raises(AsmError, match="unknown architecture 'sm_61'"):
            call("", arch="sm_61")  # type: ignore[operator]


def test_errors_are_not_remembered():
    """A line that was wrong once is right where its label exists, and the other way round."""
    assert "undefined label" in refused("--:-:-:-:4 BRA x").message
    words = turingas.encode("x: --:-:-:-:4 NOP\n--:-:-:-:4 BRA x")
    assert "undefined label" in refused("--:-:-:-:4 NOP\n--:-:-:-:4 BRA x").message
    moved = turingas.encode("--:-:-:-:4 NOP\nx: --:-:-:-:4 NOP\n--:-:-:-:4 NOP\n--:-:-:-:4 BRA x")
    assert moved[-1] != words[-1]


# -- anything


ALPHABET = st.sampled_from(
    "R0 R1 R255 RZ UR4 P0 !PT PT @P0 @!P7 , [ ] + - 0x10 1.5 -0x1 +INF c[0x0][0x160] | ~ ! .reuse .64 .E { } ( ) ` "
    "FFMA FADD.FTZ LDG.E.SYS STG ISETP.GE.AND BRA EXIT BAR.SYNC HMMA.16816.F32 MOV LOP3.LUT desc[UR4] SR_TID.X "
    "--:-:-:-:4 01:-:2:Y:4 B0-----:R-:W2:Y:S04 12:-:-:-:4 "
    ": ; label: .word # /* */ // < > \n \t é \x00 a: 0x8000000"
    .split(" ")
)  # fmt: skip


@SLOW
@given(st.lists(ALPHABET, max_size=24), st.sampled_from(["", " "]), st.sampled_from(ARCHS))
def test_any_pieces_give_words_or_errors(pieces, joint, arch):
    check_any(joint.join(pieces), arch)


@SLOW
@given(st.text(max_size=200), st.sampled_from(ARCHS))
def test_any_text_gives_words_or_errors(text, arch):
    check_any(text, arch)
    check_any("--:-:-:-:4  " + text, arch)


@SLOW
@given(st.sampled_from(ARCHS), st.integers(0, 10**6), st.data())
def test_damaged_lines_give_words_or_errors(arch, n, data):
    """A real line with a piece taken out, doubled or replaced."""
    pool = sample(arch)
    line = "--:-:-:-:4  " + turingas.decode([pool[n % len(pool)][1]], arch)[0].partition("  ")[2]
    a, b = sorted((data.draw(st.integers(0, len(line))), data.draw(st.integers(0, len(line)))))
    check_any(
        line[:a] + data.draw(st.sampled_from(["", line[a:b] * 2, "R7", ",", "-", "0x99999999999"])) + line[b:], arch
    )


def check_any(text: str, arch: str) -> None:
    start = time.process_time()
    try:
        words = turingas.encode(text, arch)
    except AsmError as error:
        for each in error.errors:
            assert 1 <= each.line <= text.count("\n") + 1 and each.column >= 1 and each.message
            assert each.column <= len(each.text) + 1
        str(error)
    else:
        assert all(0 <= word < 1 << 128 for word in words)
        assert turingas.encode("\n".join(turingas.decode(words, arch)), arch) == words
    assert time.process_time() - start < 5


@SLOW
@given(st.lists(st.integers(0, (1 << 128) - 1), max_size=8), st.sampled_from(ARCHS), st.integers(0, 1 << 20))
def test_any_words_decode_and_come_back(words, arch, place):
    address = 16 * place
    lines = turingas.decode(words, arch, address=address)
    assert len(lines) == len(words) and turingas.encode("\n".join(lines), arch, address=address) == words
    assert all("\n" not in line and "  " in line or ".word" in line for line in lines)
    assert len(turingas.decode(words, arch, address=address, control=False)) == len(words)


@SLOW
@given(st.sampled_from(ARCHS), st.integers(0, 10**6), st.integers(0, (1 << 21) - 1), st.lists(st.integers(0, 127)))
def test_legal_words_with_turned_bits_come_back(arch, n, code, turned):
    pool = sample(arch)
    word = pool[n % len(pool)][1] | code << control.STALL
    for bit in turned[:3]:
        word ^= 1 << bit
    assert turingas.encode(turingas.decode([word], arch)[0], arch) == [word]


def test_long_lines_take_bounded_time():
    for piece in ("-", "|", "[", "R1,", "(", "{", "0x1", ".FTZ", "a.b", "<", "`(", " ", "/*", "c[0x0]"):
        for head in ("", "--:-:-:-:4  ", "--:-:-:-:4  FADD ", "--:-:-:-:4  LDG.E.SYS R0, [R2", "--:-:-:-:4  BRA "):
            check_any(head + piece * 3000, "sm_75")


def test_much_text_at_once():
    rng = random.Random(1)
    lines = [f"--:-:-:-:4  IADD3 R{rng.randrange(255)}, R1, {rng.getrandbits(32):#x}, RZ" for _ in range(20_000)]
    words = turingas.encode("\n".join(lines), "sm_75")
    assert len(words) == 20_000 and len(turingas.decode(words, "sm_75")) == 20_000


def test_a_notebook_shows_the_kernels_of_a_cubin():
    cubin = turingas.assemble("<params>\nn, 4\n</params>\n--:-:-:Y:5 EXIT;\n", arch="sm_75", kernel="a_b")
    cubin.kernels[0].name = "f<int>"
    shown = cubin._repr_html_()
    assert shown.startswith("<table><caption>sm_75</caption>") and shown.count("<tr>") == 2
    assert "<td>f&lt;int&gt;</td><td>" in shown and "<td>n</td>" in shown and "f<int>" not in shown
    assert cubin.kernels[0]._repr_html_() == shown
    assert repr(cubin.kernels[0]) == "<Kernel f<int> of sm_75, 8 instructions, 2 registers>"


def test_a_notebook_shows_findings():
    source = "--:-:0:-:2 S2R R0, SR_TID.X;\n--:-:-:-:2 IADD3 R1, R0, 0x1, RZ;\n--:-:-:-:5 EXIT;\n"
    late = next(one for one in turingas.lint(turingas.assemble(source)) if one.severity == "error")
    shown = late._repr_html_()
    assert repr(late) == f"<Finding error {late.kind} at kern+0x0010>"
    assert f"<td>0x0010: {late.text}</td>" in shown and "<th>" not in shown
    assert f"<td>{html.escape(late.hint)}</td>" in shown
    evil = dataclasses.replace(late, message="<script>", hint="", file="<b>")._repr_html_()
    assert "<script>" not in evil and "hint" not in evil and "&lt;b&gt;" in evil


def test_a_notebook_shows_what_a_run_came_to():
    report = loader.load(turingas.assemble("MOV R0, 1;\nEXIT;\n"), "cpu").kernel().launch(2, 64, counters=True)
    assert report is not None
    shown = report._repr_html_()
    assert "<td>8</td><td>256</td>" in shown and "<td>0x0000</td><td>4</td><td>32.0</td>" in shown
    assert repr(report.counters) == "<Counters of 8 instructions: 2 ran, 8 warp instructions>"
    assert shown.count("<tr>") == 2 + 3 and "<td>MOV R0, 0x1</td>" in shown
    report.seconds, report.races = 0.25, ["one"] * 1000
    assert repr(report) == "<Report kern: 8 warp instructions, 0.25 s, 1000 races>"


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_90", "sm_100"])
def test_branches_that_differ_in_their_label_alone(arch):
    """The words of those with addresses, and back; of labels that are called like registers, too."""
    labels = {"Rest": 0, "P2P": 0x50, "R1": 0x60, "there": 0x70}
    order = ["@P0 BRA Rest", "@P0 BRA there", "@!P0 BRA P2P", "BRA R1", "BRA there", "@P0 BRA R1", "BRA Rest", "EXIT"]
    text, plain = "", ""
    for n, line in enumerate(order):
        text += "".join(f"{name}:\n" for name, at in labels.items() if at == 16 * n) + f"--:-:-:-:5 {line};\n"
        words = [f"{labels[word]:#x}" if word in labels else word for word in line.split(" ")]
        plain += f"--:-:-:-:5 {' '.join(words)};\n"
    assert turingas.encode(text, arch) == turingas.encode(plain, arch)
    told = [line.partition("  ")[2] for line in turingas.decode(turingas.encode(text, arch), arch)]
    assert told == [line.partition(" ")[2].rstrip(";") for line in plain.splitlines()]

"""The turingas command, as a user runs it."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import turingas
from turingas.cli import main
from turingas.info import resident_warps
from turingas.isa.arch import arch

KERNEL = """<params>
output, 8
</params>
<regs>
0-1 : to<0-1>
2 : tid
</regs>
<smem> 256 </smem>
--:-:0:-:2  S2R tid, SR_TID.X;
--:-:-:-:2  MOV to0, output[0];
--:-:-:Y:6  MOV to1, output[1];
01:-:-:-:6  IMAD.WIDE to0, tid, {STRIDE}, to0;
--:-:-:-:2  STG.E [to0], tid;
--:-:-:-:2  EXIT;
"""


def run(*args, **options):
    return CliRunner().invoke(main, [str(arg) for arg in args], **options)


def process(*args, **options):
    command = [sys.executable, "-m", "turingas", *map(str, args)]
    return subprocess.run(command, capture_output=True, timeout=60, **options)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "store.sass"
    path.write_text(KERNEL)
    return path


@pytest.fixture
def cubin(source):
    result = run("assemble", source, "-D", "STRIDE=4")
    assert (result.exit_code, result.output) == (0, "")
    return source.with_suffix(".cubin")


# assemble


def test_assemble_writes_next_to_the_source(cubin):
    assert cubin.read_bytes()[:4] == b"\x7fELF"
    assert [path.name for path in cubin.parent.iterdir()] != [] and not list(cubin.parent.glob("*.tmp"))


@pytest.mark.parametrize("name", ["sm_75", "75", "sm_70", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"])
def test_architectures(source, tmp_path, name):
    result = run("assemble", source, "-D", "STRIDE=4", "--arch", name, "-o", tmp_path / "x.cubin")
    assert result.exit_code == 0, result.output


def test_stdin_and_stdout():
    result = process("assemble", "-", "-D", "STRIDE=8", input=KERNEL.encode())
    assert (result.returncode, result.stderr) == (0, b"") and result.stdout[:4] == b"\x7fELF"
    result = process("disassemble", "-", input=result.stdout)
    assert result.returncode == 0 and b"IMAD.WIDE R0, R2, 0x8, R0" in result.stdout


def test_definitions(tmp_path):
    path = tmp_path / "x.sass"
    check = "assert (A, B, C, D, ARCH) == (1, 0x20, 'text', [1, 2], 'sm_80')"
    path.write_text(f"<code>\n{check}\n</code>\n--:-:-:Y:2 EXIT;")
    result = run("assemble", path, "-D", "A", "-D", "B=0x20", "-D", "C=text", "-D", "D=[1, 2]", "--arch", "80")
    assert result.exit_code == 0, result.output


def test_modules_beside_the_source(tmp_path):
    (tmp_path / "beside_the_source.py").write_text("WORD = 'EXIT'")
    path = tmp_path / "x.sass"
    path.write_text("<code>\nimport beside_the_source\n</code>\n--:-:-:Y:2 {beside_the_source.WORD};")
    assert process("assemble", path).returncode == 0


def test_include_and_kernel_name(tmp_path):
    (tmp_path / "helper.py").write_text("def wait(n):\n  return f'--:-:-:Y:{n}'\n")
    path = tmp_path / "x.sass"
    path.write_text("{wait(5)} EXIT;")
    out = tmp_path / "x.cubin"
    assert run("assemble", path, "-I", tmp_path / "helper.py", "--kernel", "named", "-o", out).exit_code == 0
    assert "kernel named" in run("info", out).output


def test_default_control(tmp_path):
    path = tmp_path / "x.sass"
    path.write_text(".schedule off\nEXIT;")
    assert run("assemble", path).exit_code == 1
    assert run("assemble", path, "--default-control", "--:-:-:Y:5").exit_code == 0


# What goes wrong


def test_every_error_with_line_caret_and_hint(tmp_path):
    path = tmp_path / "bad.sass"
    lines = "--:-:-:Y:4  FFAM a, a, a, a;\n?:9:-:Y:?  FADD a, a, a;\n--:-:-:Y:4  BRA nowhere;\n"
    path.write_text("<regs>\n0 : a\n</regs>\n" + lines)
    result = process("assemble", path)
    assert result.returncode == 1 and result.stdout == b""
    text = result.stderr.decode()
    assert f"{path}:4:13: error: unknown instruction 'FFAM'" in text
    assert "    4 | --:-:-:Y:4  FFAM a, a, a, a;\n      |             ^" in text
    assert "hint: did you mean 'FFMA'?" in text
    assert f"{path}:5:1: error: read scoreboard 9 is out of range" in text
    assert f"{path}:6:" in text and text.rstrip().endswith("3 errors")
    assert "Traceback" not in text
    assert not path.with_suffix(".cubin").exists()


def test_failure_leaves_the_old_output(source, cubin):
    before = cubin.read_bytes()
    source.write_text("nonsense")
    assert run("assemble", source).exit_code == 1
    assert cubin.read_bytes() == before


def test_no_python(source):
    result = run("assemble", source, "--no-python", "-D", "STRIDE=4")
    assert result.exit_code == 1 and "refused" in result.output


@pytest.mark.parametrize(
    "args, says",
    [
        ([], "Usage"),
        (["frobnicate"], "No such command"),
        (["assemble"], "Missing argument"),
        (["assemble", "missing.sass"], "does not exist"),
        (["assemble", "x.sass", "--arch", "sm_44"], "unknown architecture"),
        (["assemble", "x.sass", "--arch", "sm_60"], "known: sm_70, sm_72"),
        (["assemble", "x.sass", "-D", "2=3"], "not a valid name"),
        (["assemble", "x.sass", "-o", "x.sass"], "is the input"),
        (["assemble", "x.sass", "-I", "missing"], "does not exist"),
        (["check"], "Missing argument"),
        (["isa", "--arch", "x"], "unknown architecture"),
    ],
)
def test_wrong_usage(tmp_path, monkeypatch, args, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.sass").write_text("--:-:-:Y:5 EXIT;")
    result = run(*args)
    assert result.exit_code == 2 and says in result.output
    assert (tmp_path / "x.sass").read_text() == "--:-:-:Y:5 EXIT;"


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"no cubin at all", b"\x7fELF" + b"\xff" * 200])
def test_not_a_cubin(tmp_path, data):
    path = tmp_path / "bad.cubin"
    path.write_bytes(data)
    for command in ("disassemble", "info", "check"):
        result = run(command, path)
        assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
        assert str(path) in result.stderr


def test_source_that_is_not_utf8(tmp_path):
    path = tmp_path / "x.sass"
    path.write_bytes(b"--:-:-:Y:5 EXIT; # \xff")
    result = run("assemble", path)
    assert result.exit_code == 1 and f"{path}:1:20: error: byte 0xff is not UTF-8" in result.output


def test_terminal_that_lacks_a_character(tmp_path):
    path = tmp_path / "x.sass"
    path.write_text("???é\n", encoding="utf-8")
    result = process("assemble", path, env={**os.environ, "PYTHONIOENCODING": "ascii:strict"})
    assert result.returncode == 1 and b"???\\xe9" in result.stderr


def test_directory_that_cannot_be_written(source):
    result = run("assemble", source, "-D", "STRIDE=4", "-o", source.parent / "missing" / "x.cubin")
    assert result.exit_code == 1 and "x.cubin: error: No such file or folder" in result.output


def test_output_may_be_a_device(source):
    assert run("assemble", source, "-D", "STRIDE=4", "-o", os.devnull).exit_code == 0
    assert os.path.exists(os.devnull) and not os.path.isfile(os.devnull)


def test_output_through_a_link(source, tmp_path):
    (tmp_path / "real.cubin").write_bytes(b"old")
    (tmp_path / "link.cubin").symlink_to(tmp_path / "real.cubin")
    assert run("assemble", source, "-D", "STRIDE=4", "-o", tmp_path / "link.cubin").exit_code == 0
    assert (tmp_path / "link.cubin").is_symlink()
    assert (tmp_path / "real.cubin").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("code", ["import time\ntime.sleep(60)", "import itertools\nsum(itertools.count())"])
def test_interrupt(code, tmp_path):
    """Also where one call never comes back to Python."""
    path = tmp_path / "x.sass"
    path.write_text(f"<code>\nprint('ready')\n{code}\n</code>\n--:-:-:Y:5 EXIT;")
    usual = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # the tests may run in the background
    command = [sys.executable, "-m", "turingas", "assemble", path]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=usual)
    assert child.stderr is not None and child.stderr.readline() == b"ready\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    try:
        _, stderr = child.communicate(timeout=30)
    finally:
        child.kill()
    assert child.returncode == -signal.SIGINT and not stderr  # shells call it 130
    assert list(tmp_path.iterdir()) == [path]


def test_reader_that_goes_away(cubin):
    for args in (["disassemble", cubin], ["info", cubin], ["isa", "LDG"]):
        command = [sys.executable, "-m", "turingas", *args]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        child.stderr.close()
        child.wait(30)


# disassemble, check, info, isa


def test_round_trip(cubin, tmp_path):
    text = tmp_path / "again.sass"
    assert run("disassemble", cubin, "-o", text).exit_code == 0
    assert run("assemble", text, "-o", tmp_path / "again.cubin").exit_code == 0
    assert run("disassemble", tmp_path / "again.cubin").output == text.read_text()
    result = run("check", cubin, tmp_path / "again.cubin")
    assert result.exit_code == 0 and result.output.count("identical") == 2


def test_check_goes_on_after_a_bad_file(cubin, tmp_path):
    (tmp_path / "bad.cubin").write_bytes(b"bad")
    result = run("check", tmp_path / "bad.cubin", cubin)
    assert result.exit_code == 1 and f"{cubin}: identical" in result.output


def test_info(cubin):
    text = run("info", cubin).output
    assert "architecture sm_75, 1 kernel" in text and "kernel kern" in text
    assert "registers      5 a thread" in text
    assert "shared memory  256 bytes" in text
    assert "0: " in text and "8 bytes at c[0x0][0x160]" in text
    assert "IMAD" in text and "occupancy" in text


@pytest.mark.parametrize(
    "name, registers, shared, threads, warps, limit",
    [  # from NVIDIA's occupancy calculator
        ("sm_70", 32, 0, 256, 64, "warps"),
        ("sm_70", 64, 0, 256, 32, "registers"),
        ("sm_70", 255, 0, 256, 8, "registers"),
        ("sm_75", 16, 0, 32, 16, "blocks"),
        ("sm_75", 32, 32768, 256, 16, "shared memory"),
        ("sm_80", 32, 65536, 512, 32, "shared memory"),
        ("sm_86", 32, 0, 1024, 32, "warps"),
        ("sm_90", 168, 0, 128, 12, "registers"),
        # 228 KB of an SM: 19 blocks of 11 KB and the reserved one; so much is declared, for that one is counted in
        ("sm_90", 32, 12 * 1024, 32, 19, "shared memory"),
        ("sm_90", 32, 1024, 64, 64, "warps"),
        ("sm_90", 32, 0, 64, 64, "warps"),
        ("sm_80", 32, 11 * 1024, 32, 13, "shared memory"),  # 164 KB; there it is not
    ],
)
def test_occupancy(name, registers, shared, threads, warps, limit):
    assert resident_warps(arch(name), registers, shared, threads) == (warps, limit)


def test_a_source_is_no_cubin_and_a_cubin_no_source(source):
    for name in ("info", "check", "disassemble"):
        done = run(name, source)
        assert done.exit_code == 1
        assert "store.sass: error: this is not a cubin\nhint: `turingas assemble`" in done.stderr
    junk = source.with_name("junk.cubin")
    junk.write_bytes(b"\xb4 not at all")
    for name in ("lint", "run", "validate"):
        done = run(name, junk)
        assert done.exit_code == 1 and "junk.cubin: error: offset 0x0: " in done.stderr


def test_info_of_what_compilers_reserve(tmp_path):
    """A compiler's sm_90 kernel with 7 KB of its own declares 8: 28 blocks of those fit in 228 KB, not 25."""
    source = ".arch sm_90\n.kernel kern\n.registers 32\n.shared {}\n--:-:-:Y:5  EXIT;\n"
    for size, kept in ((8192, ", 1024 of them the system's"), (512, "")):
        path = tmp_path / "kern.cubin"
        path.write_bytes(turingas.assemble(source.format(size), arch="sm_90").to_bytes())
        text = run("info", str(path)).output
        assert f"shared memory  {size} bytes, static{kept}\n" in text
        assert ("32:  28 of 64 ( 44%), limited by shared memory" in text) == (size == 8192)


def test_isa():
    names = run("isa", "--arch", "sm_80").output.split()
    assert {"FFMA", "LDG", "BRA"} <= set(names)
    assert "FFMA" in run("isa", "ffma").output
    result = run("isa", "FFMB")
    assert result.exit_code == 1 and "FFMB" in result.output


def test_help_is_there_for_every_command():
    assert run("--help").exit_code == 0
    for command in ("assemble", "disassemble", "check", "info", "isa"):
        result = run(command, "--help")
        assert result.exit_code == 0 and "Usage" in result.output


def test_shell_completion_of_architectures():
    from click.shell_completion import BashComplete

    complete = BashComplete(main, {}, "turingas", "_TURINGAS_COMPLETE")
    found = [item.value for item in complete.get_completions(["isa", "--arch"], "sm_9")]
    assert found == ["sm_90", "sm_90a"]


def test_example_of_the_documentation(tmp_path):
    text = (Path(__file__).parent.parent / "docs" / "language.md").read_text()
    path = tmp_path / "store.sass"
    path.write_text(text.split("```nvsass\n")[1].split("```")[0])
    assert run("assemble", path).exit_code == 0
    path.write_text(path.read_text().replace("IMAD", "IMADD"))
    assert "did you mean 'IMAD'?" in run("assemble", path).output

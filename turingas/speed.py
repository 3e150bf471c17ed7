"""`turingas bench assembler`: instructions a second, of ours and of what else is installed. It needs no GPU.

*Within a process*: ``turingas.decode`` and ``turingas.encode`` on real code. *cold* is the first time that a process
sees any code; *new lines* knows the operands, but has seen no whole instruction before; *warm* has seen them all, which
is what happens to code that repeats. *Whole programs*: the command lines of all tools on the same kernels, from start
to end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import importlib.util
import json
import math
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import turingas
from kernels_sass import conv
from loader import nvrtc
from loader.bench import results
from loader.bench.bench import SECONDS, Bench, Option
from loader.reference.runner import FOLDER as REFERENCES
from turingas import Cubin, throughput
from turingas.errors import AsmError, CubinError, LaunchError
from turingas.isa.isa import instruction_set
from turingas.speed_shown import Row, brief, failures, figures, show

ARCHS = ("sm_75", "sm_80", "sm_90")
ROUNDS = 5  # in which all programs take turns
LEAST = 1.0  # seconds over which a rate within a process is taken
UNROLLED = 5000  # instructions

#: What this project wants of itself: seconds at most, instructions a second at least.
TARGETS = {"encode": 200_000, "decode": 400_000, "assemble unrolled": 0.6, "import": 0.15}

SOURCES = ("direct.cu", "nonfused.cu", "winograd.cu")  # of loader/reference


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for. ``tools``: where a tool of TOOLS is."""

    archs: tuple[str, ...] = ARCHS
    tools: Mapping[str, str] = dataclasses.field(default_factory=dict)
    library: tuple[str, ...] = ()  # cubins, and folders of them: code that does not repeat
    seconds: float = math.inf


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give all of it, which is kept in ``path`` if that is given. ``tell`` is
    given a line for each architecture."""
    if strange := set(asked.tools) - set(TOOLS):
        raise LaunchError(f"there is no tool {strange.pop()!r}", "there are: " + ", ".join(TOOLS))
    there = {name: find(name, asked.tools.get(name)) for name in TOOLS}
    found = {"what": "bench assembler", "date": datetime.date.today().isoformat(), "commit": results.commit(),
             "machine": f"{processor()}, {platform.system()} {platform.machine()}, Python {platform.python_version()}",
             "tools": {name: version(name, place) if place else "" for name, place in there.items()},
             "targets": TARGETS}  # fmt: skip
    file = results.Results(path, found, {"archs": asked.archs})
    return file.fill(
        dict.fromkeys(asked.archs), asked.seconds, tell,
        lambda arch, _, step: setting(arch, there, step, asked.library),
        lambda settings: file.summary or startup(), brief,
    )  # fmt: skip


def setting(
    arch: str, there: Mapping[str, Path | None], step: Callable[[float], None], library: Sequence[str] = ()
) -> results.Json:
    """The results for an architecture. Within a process: in one of its own, which has seen no code yet."""
    sources, words = code(arch)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        Path(file.name).write_text(json.dumps(words))
        command = [sys.executable, "-m", "turingas.speed", arch, file.name, str(LEAST)]
        made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=_environment())
    step(0.1)
    with tempfile.TemporaryDirectory() as folder:
        source, files = cubins(arch, library, Path(folder))
        turns = lambda part: step(0.1 + 0.5 * part)  # noqa: E731
        rates = throughput.measure(files, _environment(), turns) if files else {}
        once = {"code": source, "files": len(files), **rates}
    rows = programs(arch, there, lambda part: step(0.6 + 0.4 * part))
    return {"within": {"code": sources, **json.loads(made.stdout)}, "once": once, "rows": rows}


def cubins(arch: str, library: Sequence[str], folder: Path) -> tuple[str, list[Path]]:
    """Cubins of code that does not repeat, and where they come from: those of the files and folders that were given;
    else what NVRTC, if it is installed, makes of our sources, left in ``folder``."""
    given = [path for one in map(Path, library) for path in ([one] if one.is_file() else sorted(one.rglob("*.cubin")))]
    if library:
        if not given:
            hint = "`turingas extract FILE -o FOLDER` takes a library's out"
            raise LaunchError(f"there is no cubin in {', '.join(library)}", hint)
        return ", ".join(Path(one).name for one in library), [path for path in given if _arch(path) == arch]
    tests = Path(__file__).parents[1] / "tests" / "corpus"
    with contextlib.suppress(nvrtc.NvrtcError):
        nvrtc.library_path()
        for text in [REFERENCES / name for name in SOURCES] + sorted(tests.glob("*.cu")):
            data = nvrtc.compile(text.read_text(), arch, name=text.name)
            (folder / f"{text.stem}.cubin").write_bytes(data)
    return "our CUDA sources by NVRTC", sorted(folder.glob("*.cubin"))


def _arch(path: Path) -> str:
    """The architecture of a cubin; "" for another file."""
    with contextlib.suppress(CubinError, AsmError, OSError):
        return Cubin.from_file(path).arch
    return ""


def _environment(**more: str) -> dict[str, str]:
    """Of a process that is to find this very package."""
    path = os.pathsep.join([str(Path(turingas.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, **more}


# ---- within a process --------------------------------------------------------------------------------------------


def code(arch: str) -> tuple[list[str], list[int]]:
    """Real code: where it comes from, and its words. Our Winograd kernel; what NVRTC makes of the references, if it is
    installed; and in a checkout of what the tests have."""
    cubins, sources = [conv.Kernels.of(arch).cubin], ["our Winograd kernel"]
    tests = Path(__file__).parents[1] / "tests"
    data = [Cubin.from_file(path) for path in sorted((tests / "cubin" / "data").glob("*.cubin"))]
    cubins += [cubin for cubin in data if cubin.arch == arch]
    sources += ["tests/cubin/data"] * bool(data)
    with contextlib.suppress(nvrtc.NvrtcError):
        nvrtc.library_path()
        texts = [REFERENCES / name for name in SOURCES] + sorted((tests / "corpus").glob("*.cu"))
        cubins += [Cubin.from_bytes(nvrtc.compile(one.read_text(), arch, name=one.name)) for one in texts]
        sources.append("loader/reference and tests/corpus by NVRTC" if len(texts) > 3 else "loader/reference by NVRTC")
    return sources, [word for cubin in cubins for kernel in cubin.kernels for word in kernel.words]


def within(arch: str, words: list[int], least: float) -> results.Json:
    """Rates of decode and encode in this process, which must not have seen code before."""
    start = time.process_time()
    lines = turingas.decode(words, arch)
    decode_cold = len(words) / (time.process_time() - start)
    text = "\n".join(lines)
    start = time.process_time()
    again = turingas.encode(text, arch)
    encode_cold = len(words) / (time.process_time() - start)
    if again != words:
        raise ArithmeticError("what was decoded does not encode to the same words")
    isa = instruction_set(arch)
    decode = functools.partial(turingas.decode, words, arch)
    encode = functools.partial(turingas.encode, text, arch)
    measured = functools.partial(rate, count=len(words), least=least)
    rates = {"encode": {"warm": measured(encode), "new lines": measured(encode, before=isa.lines_seen.clear),
                        "cold": encode_cold},
             "decode": {"warm": measured(decode), "new lines": measured(decode, before=isa.decoder.exact_seen.clear),
                        "cold": decode_cold}}  # fmt: skip
    whole = {what: {state: round(one) for state, one in states.items()} for what, states in rates.items()}
    return {"instructions": len(words), "distinct": len(set(words)), **whole}


def rate(work: Callable[[], object], count: int, least: float, before: Callable[[], object] = int) -> float:
    """Instructions a second of processor time, the median over at least ``least`` seconds; ``before`` is not timed."""
    rates: list[float] = []
    while not rates or sum(count / one for one in rates) < least:
        before()
        start = time.process_time()
        work()
        rates.append(count / (time.process_time() - start))
    return statistics.median(rates)


def startup() -> results.Json:
    """Seconds, the least of several, of Python alone and with ``import turingas``."""

    def seconds(text: str) -> float:
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", text], check=True, env=_environment())
            times.append(time.perf_counter() - start)
        return round(min(times), 4)

    return {"python": seconds("pass"), "import": seconds("import turingas")}


# ---- the tools ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Tool:
    """Somebody else's. ``module``: a package of Python, to be found in a folder; else a program. ``variable``: of the
    environment, which may name it. ``folders``: of NVIDIA's packages from pip that have it."""

    what: str
    module: str = ""
    variable: str = ""
    folders: tuple[str, ...] = ()


TOOLS = {
    "nvdisasm": Tool("NVIDIA's disassembler", "", "TURINGAS_NVDISASM", ("cu13", "cuda_nvdisasm")),
    "cuobjdump": Tool("NVIDIA's, which prints the words too", "", "", ("cu13", "cuda_cuobjdump")),
    "ptxas": Tool("NVIDIA's compiler of PTX, which does more than to assemble", "", "TURINGAS_PTXAS",
                  ("cu13", "cuda_nvcc")),
    "cuassembler": Tool("CuAssembler", "CuAsm"),
    "turingas": Tool("TuringAs (2020)", "turingas"),
}  # fmt: skip


TOOLKIT = "/usr/local/cuda"  # where CUDA is, unless CUDA_HOME says so


def find(name: str, named: str | None = None) -> Path | None:
    """Where a tool is; None if it is not installed. LaunchError if it is not where it was said to be."""
    tool = TOOLS[name]
    if tool.module:
        if named and not Path(named, tool.module).is_dir():
            raise LaunchError(f"{named} has no folder {tool.module}", "name the checkout that holds it")
        if named:
            return Path(named).resolve()
        spec = importlib.util.find_spec(tool.module) if tool.module != "turingas" else None  # that would be ours
        places = (spec.submodule_search_locations if spec else None) or ()
        return next((Path(place).parent for place in places), None)
    named = named or os.environ.get(tool.variable)
    if named and not Path(named).is_file():
        raise LaunchError(f"there is no {named}", f"{name} is a program; name its file")
    if found := named or shutil.which(name):
        return Path(found).resolve()
    toolkits = [Path(home, "bin") for home in (os.environ.get("CUDA_HOME"), TOOLKIT) if home]
    packages = [folder / "bin" for package in tool.folders for folder in nvrtc.package_folders(package)]
    place = next((folder / name for folder in [*packages, *toolkits] if (folder / name).is_file()), None)
    if place and not os.access(place, os.X_OK):
        place.chmod(0o755)  # some installers leave it without the bit
    return place


def version(name: str, place: Path) -> str:
    """What a tool says of itself; of a package its folder's commit, if git knows it."""
    command = ["git", "-C", str(place), "describe", "--always"] if TOOLS[name].module else [str(place), "--version"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
        number = re.search(r"\bV(\d+\.\d+\.\d+)", told)
        return number[1] if number else told.strip() or "there"
    return "there"


# ---- whole programs ----------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Program:
    """A command line that is timed. ``check`` raises ValueError if what it left or printed is not right; ``small`` is
    the same with a kernel of a few instructions, which tells what the start takes. ``output`` is removed before."""

    name: str
    task: str  # "assemble", "disassemble"
    work: str  # "Winograd", "unrolled"
    instructions: int
    command: list[str]
    small: list[str]
    output: Path | None
    check: Callable[[str], None]
    environment: dict[str, str]
    folder: Path

    def once(self, command: Sequence[str] | None = None) -> tuple[float, str]:
        """Seconds, and what was printed. ValueError if it failed."""
        if self.output is not None:
            self.output.unlink(missing_ok=True)
        start = time.perf_counter()
        done = subprocess.run(command or self.command, capture_output=True, text=True, env=self.environment,
                              cwd=self.folder)  # fmt: skip
        seconds = time.perf_counter() - start
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise ValueError(f"failed: {said[-1] if said else f'exit code {done.returncode}'}")
        return seconds, done.stdout


def programs(arch: str, there: Mapping[str, Path | None], step: Callable[[float], None]) -> list[Row]:
    """A row for each tool and task: name, task, work, status, and if that is "ok" instructions, seconds (median), low,
    high, start (seconds for a few instructions), rate (instructions a second, all included), runs."""
    with tempfile.TemporaryDirectory() as folder:
        rows: list[Row] = []
        timed: list[tuple[Row, Program]] = []
        for one in _programs(arch, there, Path(folder)):
            row: Row = {"name": one.name, "task": one.task, "work": one.work, "status": "ok"}
            rows.append(row)
            try:
                _, printed = one.once()
                one.check(printed)
                timed.append((row, one))
            except ValueError as why:
                row["status"] = str(why)
            except (AsmError, CubinError, OSError) as why:  # of what it left
                row["status"] = f"wrong: {why}"
        times = alternate([one for _, one in timed], step)
        for (row, one), (whole, start) in zip(timed, times):
            low, middle, high = statistics.quantiles(whole, n=4, method="inclusive")
            row |= {"instructions": one.instructions, "seconds": round(middle, 4), "low": round(low, 4),
                    "high": round(high, 4), "start": round(statistics.median(start), 4),
                    "rate": round(one.instructions / middle), "runs": len(whole)}  # fmt: skip
        rows += [{"name": name, "task": "", "work": "", "status": "not installed"} for name in TOOLS if not there[name]]
        return rows


def alternate(every: Sequence[Program], step: Callable[[float], None]) -> list[tuple[list[float], list[float]]]:
    """Seconds of each program and of its start, in rounds in which all take turns in an order that changes."""
    times: list[tuple[list[float], list[float]]] = [([], []) for _ in every]
    shuffled = random.Random(0)
    for number in range(ROUNDS):
        for place in shuffled.sample(range(len(every)), len(every)):
            times[place][0].append(every[place].once()[0])
            times[place][1].append(every[place].once(every[place].small)[0])
        step((number + 1) / ROUNDS)
    return times


def _programs(arch: str, there: Mapping[str, Path | None], folder: Path) -> Iterator[Program]:
    """The files for them all, and their command lines."""
    kernel, few = conv.Kernels.of(arch).cubin, turingas.assemble(EMPTY, arch=arch)
    words = sum(len(one.words) for one in kernel.kernels)
    for name, cubin in (("big", kernel), ("small", few)):
        (folder / f"{name}.cubin").write_bytes(cubin.to_bytes())
        (folder / f"{name}.sass").write_text(turingas.disassemble(cubin))
    (folder / "unrolled.sass").write_text(unrolled(UNROLLED))
    (folder / "empty.sass").write_text(EMPTY)
    flat = turingas.assemble(unrolled(UNROLLED), arch=arch)

    def paths(*names: str) -> list[str]:
        return [str(folder / name) for name in names]

    def program(name: str, task: str, work: str, count: int, command: Callable[[str], list[str]], output: str,
                check: Callable[[str], None], small: str = "small", **environment: str) -> Program:  # fmt: skip
        big = "big" if work == "Winograd" else "unrolled"
        out = folder / output if output else None
        return Program(name, task, work, count, command(big), command(small), out, check, _environment(**environment),
                       folder)  # fmt: skip

    def same(expected: Cubin, output: str) -> Callable[[str], None]:
        def check(printed: str) -> None:
            found = {one.name: one.words for one in Cubin.from_file(folder / output).kernels}
            if found != {one.name: one.words for one in expected.kernels}:
                raise ValueError("wrong: other words than ours")

        return check

    def prints(count: int) -> Callable[[str], None]:
        def check(printed: str) -> None:
            if len(INSTRUCTION.findall(printed)) != count:
                raise ValueError(f"wrong: {len(INSTRUCTION.findall(printed))} instructions, not {count}")

        return check

    ours = [sys.executable, "-m", "turingas"]
    yield program("ours", "assemble", "Winograd", words,
                  lambda name: [*ours, "assemble", *paths(f"{name}.sass"), "--arch", arch, "-o", *paths("out.cubin")],
                  "out.cubin", same(kernel, "out.cubin"))  # fmt: skip
    yield program("ours", "assemble", "unrolled", len(flat.kernels[0].words),
                  lambda name: [*ours, "assemble", *paths(f"{name}.sass"), "--arch", arch, "-o", *paths("out.cubin")],
                  "out.cubin", same(flat, "out.cubin"), small="empty")  # fmt: skip

    def again(printed: str) -> None:
        made = turingas.assemble((folder / "out.sass").read_text(), arch=arch)
        if made.to_bytes() != kernel.to_bytes():
            raise ValueError("wrong: it assembles to another cubin")

    yield program("ours", "disassemble", "Winograd", words,
                  lambda name: [*ours, "disassemble", *paths(f"{name}.cubin"), "-o", *paths("out.sass")],
                  "out.sass", again)  # fmt: skip
    if place := there["nvdisasm"]:
        yield program("nvdisasm", "disassemble", "Winograd", words,
                      lambda name: [str(place), "-c", *paths(f"{name}.cubin")], "", prints(words))  # fmt: skip
    if dump := there["cuobjdump"]:
        beside = os.pathsep.join([str((there["nvdisasm"] or dump).parent), os.environ.get("PATH", "")])
        yield program("cuobjdump", "disassemble", "Winograd", words,
                      lambda name: [str(dump), "-sass", *paths(f"{name}.cubin")], "", prints(words),
                      PATH=beside)  # fmt: skip
    if ptxas := there["ptxas"]:
        for name, count in (("unrolled", UNROLLED), ("small", 2)):
            (folder / f"{name}.ptx").write_text(ptx(count, arch))

        def compiled(printed: str) -> None:
            made = sum(len(one.words) for one in Cubin.from_file(folder / "out.cubin").kernels)
            if made < UNROLLED:
                raise ValueError(f"wrong: {made} instructions of {UNROLLED}")

        yield program("ptxas", "assemble", "unrolled", UNROLLED,
                      lambda name: [str(ptxas), f"-arch={arch}", *paths(f"{name}.ptx"), "-o", *paths("out.cubin")],
                      "out.cubin", compiled)  # fmt: skip
    if cuasm := there["cuassembler"]:
        known = [str(one.parent) for name in ("nvdisasm", "cuobjdump") if (one := there[name])]
        more = {"PATH": os.pathsep.join([*known, os.environ.get("PATH", "")]),
                "PYTHONPATH": os.pathsep.join([str(cuasm), os.environ.get("PYTHONPATH", "")])}  # fmt: skip
        apart = program("CuAssembler", "disassemble", "Winograd", words,
                        lambda name: [sys.executable, "-c", TO_CUASM, *paths(f"{name}.cubin", "out.cuasm")],
                        "out.cuasm", lambda printed: None, **more)  # fmt: skip
        yield apart
        with contextlib.suppress(ValueError):  # then the next says that there is no such file
            for name in ("big", "small"):
                apart.once([*apart.command[:3], *paths(f"{name}.cubin", f"{name}.cuasm")])
        yield program("CuAssembler", "assemble", "Winograd", words,
                      lambda name: [sys.executable, "-c", FROM_CUASM, *paths(f"{name}.cuasm", "out.cubin")],
                      "out.cubin", same(kernel, "out.cubin"), **more)  # fmt: skip
    if (original := there["turingas"]) and arch in ORIGINAL:
        yield program("TuringAs (2020)", "assemble", "unrolled", len(flat.kernels[0].words),
                      lambda name: [sys.executable, "-m", "turingas.main", "-i", *paths(f"{name}.sass"), "-o",
                                    *paths("out.cubin"), "-arch", arch.removeprefix("sm_")],
                      "out.cubin", same(flat, "out.cubin"), small="empty",
                      PYTHONPATH=str(original))  # fmt: skip


#: A line of a disassembler that has an instruction: its address in a comment, and a semicolon behind it.
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+[^/\n]*;", re.M)

ORIGINAL = ("sm_70", "sm_75", "sm_80", "sm_86")  # what the option -arch of TuringAs (2020) takes
EMPTY = "--:-:-:Y:5  EXIT;\n"
TO_CUASM = "import sys; from CuAsm.CubinFile import CubinFile; CubinFile(sys.argv[1]).saveAsCuAsm(sys.argv[2])"
FROM_CUASM = (
    "import sys; from CuAsm.CuAsmParser import CuAsmParser; made = CuAsmParser(); made.parse(sys.argv[1]); "
    "made.saveAsCubin(sys.argv[2])"
)


def unrolled(count: int) -> str:
    """A loop that was unrolled, in the language of TuringAs (2020): outer products on 64 accumulators, loads and stores
    between them."""
    lines = []
    for n in range(count // 80):
        lines += [f"--:-:-:-:2  FFMA R{k + 64}, R{k % 8 + 8}, R{k // 8 + 16}, R{k + 64};" for k in range(64)]
        for k in range(8):
            lines.append(f"--:-:{k % 6}:-:4  LDS.U.128 R{128 + 4 * k}, [R2+{0x10 * k + n * 0x80:#x}];")
            lines.append(f"--:{k % 6}:-:-:4  STG.E.SYS [R4+{4 * k + n * 0x40:#x}], R{128 + k};")
    return "\n".join(lines) + "\n" + EMPTY


def ptx(count: int, arch: str) -> str:
    """The same number of instructions in PTX, such that ptxas leaves none out: each uses what came before."""
    sums = "\n".join(f"fma.rn.f32 %f{n % 64}, %f{(n + 1) % 64}, %f{n % 7 + 64}, %f{n % 64};" for n in range(count))
    loads = "\n".join(f"ld.global.f32 %f{n}, [%rd1+{4 * n}];" for n in range(72))
    stores = "\n".join(f"st.global.f32 [%rd1+{4 * n}], %f{n};" for n in range(64))
    head = f".version 8.0\n.target {arch}\n.address_size 64\n.visible .entry kern(.param .u64 p)\n{{\n"
    head += ".reg .f32 %f<72>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\n"
    return f"{head}{loads}\n{sums}\n{stores}\nret;\n}}\n"


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(": ")[2]
    return platform.processor() or platform.machine()


BENCH = Bench(
    "assembler", "This assembler beside what else is installed; needs no GPU.",
    """Instructions per second that are assembled and disassembled, within a process and by whole programs.

    Exit code 1: our own command line has no time.

    \b
      turingas bench assembler --figures figures
      turingas bench assembler --arch sm_75 --tool turingas=../turingas --tool cuassembler=../CuAssembler
      turingas bench assembler --arch sm_90 cubins/

    LIBRARY: cubins, or folders of them, whose code is handled once in fresh processes; otherwise our CUDA sources.
    """,
    (
        Option("--arch", "archs", "[default: sm_75, sm_80, sm_90]", "architectures", True, "ARCH"),
        Option("[LIBRARY]...", "library", "", Path, True),
        Option("--tool", "tools", "Where nvdisasm, cuobjdump, ptxas is, or the checkout of cuassembler, turingas "
               "(TuringAs 2020).", "paths", True, "NAME=PATH"),
        SECONDS,
    ),
    lambda given, path, tell: run(Asked(**given), path, tell), show, failures, figures,
    lambda given, path: results.recorded("assembler", path, "cpu"),
)  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(within(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), float(sys.argv[3]))))

"""How fast the assembler is: ``python -m tests.bench.assembler [--json FILE]``.

encode and decode run on real code: every kernel of tests/cubin/data, and of tests/corpus as NVRTC compiles it for
each architecture (where NVRTC is installed). *cold* is the first time that a process sees any code; *new lines* knows
the operands, but has seen no whole instruction before; *warm* has seen them all (what happens to code that repeats).
The times of ``import turingas`` and of ``turingas assemble`` are whole processes, interpreter included.
Targets: 200,000 instructions/s encoded, 400,000/s decoded; 0.6 s for 5,000 unrolled instructions; 0.15 s to import.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.tools import nvrtc
from turingas import Cubin, api
from turingas.isa import forms

TESTS = Path(__file__).parent.parent
ARCHS = ("sm_75", "sm_80", "sm_90")
TARGETS = {"encode/s": 200_000, "decode/s": 400_000, "assemble s": 0.6, "import s": 0.15}
#: 5,000 instructions from one loop: outer products on 64 accumulators, with loads and stores between them
UNROLLED = """<code>
for n in range(5000 // 80):
    for k in range(64):
        out_ += f"--:-:-:-:2  FFMA R{k + 64}, R{k % 8 + 8}, R{k // 8 + 16}, R{k + 64};\\n"
    for k in range(8):
        out_ += f"--:-:{k % 6}:-:4  LDS.U.128 R{128 + 4 * k}, [R2+{0x10 * k + n * 0x80:#x}];\\n"
        out_ += f"--:{k % 6}:-:-:4  STG.E.SYS [R4+{4 * k + n * 0x40:#x}], R{128 + k};\\n"
</code>
--:-:-:Y:5  EXIT;
"""


def code(arch: str) -> tuple[str, list[int]]:
    """Collect real code of arch: where it comes from, and its words."""
    words: list[int] = []
    for path in sorted((TESTS / "cubin" / "data").glob("*.cubin")):
        cubin = Cubin.from_file(path)
        if cubin.arch == arch:
            words += [word for kernel in cubin.kernels for word in kernel.words]
    sources = "tests/cubin/data"
    if nvrtc.library_path() is not None:
        sources += " and tests/corpus by NVRTC"
        for path in sorted((TESTS / "corpus").glob("*.cu")):
            cubin = Cubin.from_bytes(nvrtc.compile_source(path.read_text(), arch, name=path.name))
            words += [word for kernel in cubin.kernels for word in kernel.words]
    return sources, words


def rate(work: Callable[[], object], count: int, before: Callable[[], object] = int, least: float = 1.0) -> float:
    """Return instructions per second of processor time, over at least ``least`` seconds; ``before`` is not timed."""
    rates: list[float] = []
    while not rates or sum(count / r for r in rates) < least:
        before()
        start = time.process_time()
        work()
        rates.append(count / (time.process_time() - start))
    return statistics.median(rates)


def coding(arch: str) -> dict[str, object]:
    """Measure decode and encode of arch in this process, which must not have seen arch before."""
    sources, words = code(arch)
    start = time.process_time()
    lines = api.decode(words, arch)
    decode_cold = len(words) / (time.process_time() - start)
    text = "\n".join(lines)
    start = time.process_time()
    again = api.encode(text, arch)
    encode_cold = len(words) / (time.process_time() - start)
    assert again == words, "the round trip is broken"

    def decode() -> object:
        return api.decode(words, arch)

    def encode() -> object:
        return api.encode(text, arch)

    isa = forms.isa(arch)
    return {
        "arch": arch,
        "code": sources,
        "instructions": len(words),
        "distinct": len(set(words)),
        "decode cold/s": round(decode_cold),
        "decode new lines/s": round(rate(decode, len(words), isa._exact.clear)),
        "decode/s": round(rate(decode, len(words))),
        "encode cold/s": round(encode_cold),
        "encode new lines/s": round(rate(encode, len(words), isa.lines_seen.clear)),
        "encode/s": round(rate(encode, len(words))),
    }


def process(*arguments: str, repeat: int = 7) -> float:
    """Return the least wall time of a Python process with these arguments, in seconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=TESTS.parent)
        times.append(time.perf_counter() - start)
    return min(times)


def startup() -> dict[str, object]:
    empty = process("-c", "pass")
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "unrolled.sass"), Path(folder, "unrolled.cubin")
        source.write_text(UNROLLED)
        assemble = process("-m", "turingas", "assemble", str(source), "-o", str(cubin), "--arch", "sm_75")
        count = sum(len(kernel.words) for kernel in Cubin.from_file(cubin).kernels)
    return {
        "python alone s": round(empty, 3),
        "import s": round(process("-c", "import turingas"), 3),
        "assembled": count,
        "assemble s": round(assemble, 3),
    }


def commit() -> str:
    run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=TESTS.parent)
    return run.stdout.strip() or "unknown"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def measure() -> dict[str, object]:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": f"{processor()}, {platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "targets": TARGETS,
        "coding": [coding(arch) for arch in ARCHS],
        "startup": startup(),
    }


def verdict(name: str, value: float) -> str:
    good = value <= TARGETS[name] if name.endswith(" s") else value >= TARGETS[name]
    return f"{'reached' if good else 'MISSED'} ({TARGETS[name]:,})"


def show(found: dict[str, object]) -> None:
    print(f"{found['machine']}\ncommit {found['commit']}, {found['date']}\n")
    for row in found["coding"]:  # type: ignore[attr-defined]
        print(f"{row['arch']}: {row['instructions']:,} instructions, {row['distinct']:,} distinct ({row['code']})")
        for name in ("encode", "decode"):
            for state, rate_ in (("warm", "/s"), ("new lines", " new lines/s"), ("cold", " cold/s")):
                value = row[name + rate_]
                print(f"  {name} {state:<9} {value:>9,}/s   {verdict(f'{name}/s', value)}")
    times = found["startup"]
    assert isinstance(times, dict)
    print(f"\nimport turingas: {times['import s']} s, Python alone {times['python alone s']} s   ", end="")
    print(verdict("import s", times["import s"]))
    print(f"turingas assemble of {times['assembled']:,} instructions: {times['assemble s']} s   ", end="")
    print(verdict("assemble s", times["assemble s"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    found = measure()
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()

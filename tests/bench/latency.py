"""Measures fixed latencies on an H200 (sm_90): ``python -m tests.bench.latency [--json FILE] [--check]``.

One kernel for each producer, consumer and distance: the register holds an old value, the producer writes a new one,
and so many cycles later (stall counts alone keep them apart) the consumer takes what it finds. The latency is the
smallest distance from which on every lane of every warp got what it gets after a long wait. A kernel without the
producer shows that the two values can be told apart. ``--check`` only assembles the kernels: no GPU is needed.
``--add`` measures the pairs that the file does not have yet, and keeps the others.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loader.bench import results
from turingas.assembler import assemble
from turingas.isa.instruction import Instruction, instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import latencies, reader, writer

ARCH = "sm_90"
FAR = 44  # cycles, longer than any fixed latency
ROUNDS = 8  # the code of a test runs so often, so that it comes from the instruction cache
LAUNCHES = ((1, 32), (1, 256), (132, 128))  # blocks, threads: one warp alone, several a scheduler, all of the GPU

# What registers hold: R8 ... R11 (with UR6, P0, UP0) are what a producer writes and a consumer reads, old value 0;
# R12 = 64, R13 = 0x3ff00000, R14 = 1, R15 = 1.0, R16 = 1 << 31, R18:R19 = 1.0 (FP64), R24 ... R29 = halves of 1.0;
# R32 = 4 * thread, R33 = -1, UR8 = 64, UR9 = 1. Results are in R20 and R21.
SETUP = """
MOV R8, {old}
MOV R9, {old}
MOV R10, {old}
MOV R11, {old}
MOV R20, 0x0
MOV R21, 0x0
ISETP.NE.AND P0, PT, RZ, RZ, PT
UMOV UR6, URZ
UMOV UR7, URZ
UMOV UR10, URZ
UISETP.NE.AND UP0, UPT, URZ, URZ, UPT
STS [R32+0x400], RZ
"""
CONSTANTS = """
MOV R12, 0x40
MOV R13, 0x3ff00000
MOV R14, 0x1
MOV R15, 0x3f800000
MOV R16, 0x80000000
MOV R18, RZ
MOV R19, 0x3ff00000
MOV R33, 0xffffffff
MOV R24, 0x3c003c00
MOV R25, 0x3c003c00
MOV R26, 0x3c003c00
MOV R27, 0x3c003c00
MOV R28, 0x3c003c00
MOV R29, 0x3c003c00
UMOV UR8, 0x40
UMOV UR9, 0x1
"""

#: the first is used with every consumer, the others with a few
ALU = [
    "IADD3 R8, R12, RZ, RZ", "LOP3.LUT R8, R12, RZ, RZ, 0xfc, !PT", "SHF.L.U32 R8, R12, 0x0, RZ",
    "PRMT R8, R12, 0x3210, RZ",
    "SEL R8, R12, RZ, PT", "MOV R8, R12", "LEA R8, R12, RZ, 0x0", "FSEL R8, R12, RZ, PT", "FMNMX R8, R12, R13, PT",
    "VIADD R8, R12, 0x0", "VIMNMX R8, R12, R13, PT", "IABS R8, R12", "SGXT R8, R12, 0x10", "BMSK R8, RZ, R12",
    "I2FP.F32.S32 R8, R12", "F2FP.F16.F32.PACK_AB R8, R13, R15", "FSET.BF.NEU.AND R8, R12, RZ, PT",
    "VOTE.ANY R8, PT, PT", "P2R R8, PR, R33, 0x1", "VIADDMNMX R8, R12, RZ, R13, PT", "CS2R.32 R8, SRZ",
]  # fmt: skip
FMA = [
    "FFMA R8, R12, R15, RZ", "FADD R8, R12, RZ", "FMUL R8, R12, R15", "IMAD R8, R12, R14, RZ",
    "IMAD.MOV.U32 R8, RZ, RZ, R12", "IDP.4A.U8.U8 R8, R12, R14, RZ", "IMAD.HI.U32 R8, R12, R16, RZ",
]  # fmt: skip
LOW, HIGH = ["IMAD.WIDE.U32 R8, R12, R14, RZ"], ["IMAD.WIDE.U32 R8, R12, R16, RZ"]
HALF = [
    "HADD2 R8, R12, -RZ", "HFMA2 R8, R12, 1, 1, RZ", "HMUL2 R8, R12, 1, 1", "HMNMX2 R8, R12, R13, !PT",
    "HSET2.BF.NE.AND R8, R12, RZ, PT",
]  # fmt: skip
HALF_MMA = ["HFMA2.MMA R8, R12, 1, 1, RZ"]
FP64 = ["DADD R8, R12, RZ", "DFMA R8, R12, R18, RZ", "DMUL R8, R12, R18"]
WIDE_MOVE = ["CS2R R8, SRZ"]
TENSOR = [
    "HMMA.16816.F32 R8, R24, R28, RZ", "HMMA.16816.F16 R8, R24, R28, RZ", "HMMA.1688.F32 R8, R24, R28, RZ",
    "HMMA.1688.F16 R8, R24, R28, RZ", "IMMA.16816.S8.S8 R8, R24.ROW, R28.COL, RZ",
    "IMMA.16832.S8.S8 R8, R24.ROW, R28.COL, RZ", "IMMA.8816.S8.S8 R8, R24.ROW, R28.COL, RZ",
    "HMMA.1688.F32.TF32 R8, R24, R28, RZ", "HMMA.1684.F32.TF32 R8, R24, R28, RZ",
]  # fmt: skip

#: consumers of R8; what they find is in R20 after the lines behind ";"
ALU_READERS = ["IADD3 R20, R8, RZ, RZ", "LOP3.LUT R20, RZ, R8, RZ, 0xfc, !PT", "IADD3 R20, RZ, RZ, R8"]
FMA_READERS = ["IMAD R20, R8, R14, RZ", "FFMA R20, R8, R15, RZ", "IMAD R20, RZ, RZ, R8"]
READERS = [
    *ALU_READERS, *FMA_READERS, "IMAD.WIDE.U32 R20, R8, R14, RZ", "IMAD.WIDE.U32 R20, R14, R8, RZ",
    "IMAD.WIDE.U32 R20, RZ, RZ, R8", "HADD2 R20, R8, -RZ", "HFMA2.MMA R20, R8, 1, 1, RZ", "DADD R20, R8, RZ",
    "HMMA.16816.F32 R20, R8, R28, RZ", "POPC R20, R8", "I2F R20, R8", "LDC R20, c[0x0][R8+0x1d0]",
    "SHFL.IDX PT, R20, R8, RZ, 0x1f", "LDS R20, [R8]",
    "STS [R32+0x400], R8; LDS R20, [R32+0x400]", "R2UR UR10, R8; MOV R20, UR10",
]  # fmt: skip
HIGH_READERS = [
    "IADD3 R20, R9, RZ, RZ", "IMAD R20, R9, R14, RZ", "FFMA R20, R9, R15, RZ", "IMAD.WIDE.U32 R20, R9, R14, RZ",
    "IMAD.WIDE.U32 R20, RZ, RZ, R8", "HADD2 R20, R9, -RZ", "POPC R20, R9", "LDS R20, [R9]",
    "STS [R32+0x400], R9; LDS R20, [R32+0x400]",
]  # fmt: skip
TENSOR_READERS = [
    ALU_READERS[0], FMA_READERS[1], "HMMA.16816.F32 R8, R24, R28, R8; MOV R20, R8", "HMMA.16816.F32 R20, R8, R28, RZ",
    "HMMA.1688.F32.TF32 R8, R24, R28, R8; MOV R20, R8", "HMMA.1688.F32.TF32 R20, R8, R28, RZ",
    "IMMA.16816.S8.S8 R8, R24.ROW, R28.COL, R8; MOV R20, R8", "STS [R32+0x400], R8; LDS R20, [R32+0x400]",
    "POPC R20, R8",
]  # fmt: skip

PREDICATE_WRITERS = [
    "ISETP.NE.U32.AND P0, PT, R12, RZ, PT", "FSETP.NEU.AND P0, PT, R15, RZ, PT", "IADD3 RZ, P0, R33, R12, RZ",
    "PLOP3.LUT P0, PT, PT, PT, PT, 0x80, 0x0", "LOP3.LUT P0, RZ, R12, RZ, RZ, 0xfc, !PT", "R2P PR, R14, 0x1",
    "VOTE.ANY P0, PT", "IMAD.WIDE.U32 R8, P0, R33, R33, R32", "HSETP2.NE.AND P0, PT, R24, RZ, PT",
    "DSETP.NEU.AND P0, PT, R18, RZ, PT", "R2UR P0, UR10, R12",
]  # fmt: skip
PREDICATE_READERS = [
    "@P0 MOV R20, R14", "@P0 FFMA R20, R15, R15, RZ", "@P0 BRA OTHER", "@P0 HADD2 R20, R24, -RZ",
    "@P0 DADD R20, R18, R18", "@P0 POPC R20, R12", "@P0 LDS R20, [R12]",
    "@P0 STS [R32+0x400], R14; LDS R20, [R32+0x400]", "SEL R20, R14, RZ, P0",
    "IADD3.X R20, RZ, RZ, RZ, P0, !PT", "PLOP3.LUT P1, PT, P0, PT, PT, 0x80, 0x0; SEL R20, R14, RZ, P1",
    "ISETP.EQ.AND P1, PT, RZ, RZ, P0; SEL R20, R14, RZ, P1", "LEA.HI.X R20, R12, RZ, RZ, 0x1, P0",
    "IMAD.X R20, R14, R14, RZ, P0", "VOTE.ANY R20, PT, P0", "P2R R20, PR, RZ, 0x1",
    "HSETP2.EQ.AND P1, PT, R24, R24, P0; SEL R20, R14, RZ, P1",
    "DSETP.EQ.AND P1, PT, R18, R18, P0; SEL R20, R14, RZ, P1",
    "R2P PR, RZ, 0x2; SEL R20, R14, RZ, P0",  # does P0 survive?
]  # fmt: skip
UNIFORM_WRITERS = [
    "UIADD3 UR6, UR8, URZ, URZ", "ULOP3.LUT UR6, UR8, URZ, URZ, 0xfc, !UPT", "USHF.L.U32 UR6, UR8, 0x0, URZ",
    "UIMAD UR6, UR8, UR9, URZ", "USEL UR6, UR8, URZ, UPT", "UPRMT UR6, UR8, 0x3210, URZ", "UPOPC UR6, UR8",
]  # fmt: skip
UNIFORM_MOVES = ["UMOV UR6, UR8", "ULDC UR6, c[0x0][0x0]", "VOTEU.ANY UR6, UPT, PT"]
TO_UNIFORM = ["R2UR UR6, R12"]
UNIFORM_READERS = [
    "IADD3 R20, RZ, UR6, RZ", "IMAD R20, R14, UR6, RZ", "FADD R20, RZ, UR6", "HADD2 R20, RZ, UR6", "DADD R20, RZ, UR6",
    "POPC R20, UR6", "LDS R20, [UR6]", "UIADD3 UR10, UR6, URZ, URZ; MOV R20, UR10",
    "UMOV UR10, UR6; MOV R20, UR10", "ULDC UR10, c[0x0][UR6+0x1d0]; MOV R20, UR10",
]  # fmt: skip
UNIFORM_PREDICATE_WRITERS = [
    "UISETP.NE.AND UP0, UPT, UR8, URZ, UPT", "UPLOP3.LUT UP0, UPT, UPT, UPT, UPT, 0x80, 0x0", "VOTEU.ANY UP0, PT",
]  # fmt: skip
UNIFORM_PREDICATE_READERS = [
    "USEL UR10, UR8, URZ, UP0; MOV R20, UR10", "@UP0 UMOV UR10, UR8; MOV R20, UR10",
    "@UP0 UIADD3 UR10, UR8, URZ, URZ; MOV R20, UR10", "UIADD3.X UR10, URZ, URZ, URZ, UP0, !UPT; MOV R20, UR10",
    "PLOP3.LUT P1, PT, PT, PT, UP0, 0x80, 0x0; SEL R20, R14, RZ, P1", "BRA.U UP0, OTHER",
]  # fmt: skip
#: a slow writer, then a fast one: which value stays?
SECOND_WRITERS = {
    "R": ["MOV R8, R14; MOV R20, R8", "FADD R8, R15, RZ; MOV R20, R8", "HADD2 R8, R24, -RZ; MOV R20, R8"],
    "UR": ["UMOV UR6, UR9; MOV R20, UR6", "UIADD3 UR6, UR9, URZ, URZ; MOV R20, UR6"],
}


KEYS = ("hazard", "file", "producer", "consumer")


@dataclass
class Pair:
    hazard: str
    file: str
    producer: str
    consumer: str
    old: str = "0x0"

    def __post_init__(self) -> None:
        if "SRZ" in self.producer:
            self.old = "0x40"
        if self.hazard == "waw":
            self.old = "0x2"


def pairs() -> Iterator[Pair]:
    few = [ALU_READERS[0], FMA_READERS[1]]
    for writers in (ALU, FMA, LOW, HALF, HALF_MMA, FP64):
        for n, producer in enumerate(writers):
            for consumer in few if n else READERS:
                yield Pair("raw", "R", producer, consumer)
    for producer, readers in ((HIGH[0], HIGH_READERS), (WIDE_MOVE[0], few), (FP64[0], HIGH_READERS[:1])):
        for consumer in readers:
            yield Pair("raw", "R", producer, consumer)
    for producer in TENSOR:
        for consumer in TENSOR_READERS:
            yield Pair("raw", "R", producer, consumer)
    for producer in (TENSOR[0], TENSOR[2], TENSOR[4], TENSOR[5], TENSOR[7]):  # the last word
        yield Pair("raw", "R", producer, "IADD3 R20, R11, RZ, RZ")
    for file, writers, readers, some in (
        ("P", PREDICATE_WRITERS, PREDICATE_READERS, (0, 1, 9, 11, -1)),
        ("UR", UNIFORM_WRITERS, UNIFORM_READERS, (0, 1, 8)),
        ("UR", UNIFORM_MOVES, UNIFORM_READERS, (0, 8)),
        ("UR", TO_UNIFORM, UNIFORM_READERS, ()),
        ("UP", UNIFORM_PREDICATE_WRITERS, UNIFORM_PREDICATE_READERS, (0, 1, 5)),
    ):
        for n, producer in enumerate(writers):
            whole = n == 0 or (file == "P" and producer.split(".")[0] in ("HSETP2", "DSETP", "IMAD"))
            for consumer in readers if whole else [readers[k] for k in some]:
                yield Pair("raw", file, producer, consumer)
    for producer in (ALU[0], FMA[0], LOW[0], HALF[0], HALF_MMA[0], FP64[0], TENSOR[0], TENSOR[4]):
        for consumer in SECOND_WRITERS["R"]:
            yield Pair("waw", "R", producer, consumer)
    for producer in (UNIFORM_WRITERS[0], UNIFORM_MOVES[1], TO_UNIFORM[0]):
        for consumer in SECOND_WRITERS["UR"]:
            yield Pair("waw", "UR", producer, consumer)


SLOW = "--:-:-:Y:f  "
FENCED = ("LDS", "LDG", "LDC", "POPC", "MUFU", "I2F", "SHFL", "S2R", "DMMA")  # they need a write scoreboard


def line(text: str, stall: int) -> str:
    """A line whose next one issues ``stall`` cycles later."""
    base = text.split()[1 if text[0] == "@" else 0].split(".")[0]
    board = "5" if base in FENCED else "-"
    read = "4" if base == "STS" else "-"
    first = min(stall, 11)
    lines = f"--:{read}:{board}:-:{first:x}  {text};\n"
    stall -= first
    while stall:
        lines += f"--:-:-:-:{min(stall, 11):x}  NOP;\n"
        stall -= min(stall, 11)
    return lines


def kernel(pair: Pair, name: str, distance: int | None) -> str:
    """``distance`` None: without the producer."""
    consumer, *rest = pair.consumer.split("; ")
    tested = "".join(line(text, 15) for text in SETUP.format(old=pair.old).strip().splitlines()) + line("NOP", FAR)
    if distance is not None:
        tested += line(pair.producer, distance)
    tested += line(consumer, FAR)
    for text in rest:
        tested += "0x30:-:-:Y:1  NOP;\n" + line(text, FAR)
    if "BRA" in consumer:
        tested += line("BRA SAME", 15) + "OTHER:\n" + line("MOV R20, R14", 15) + "SAME:\n"
    lines = [
        f".kernel {name}", ".param out 8", ".shared 4096",
        "--:-:0:Y:2   S2R R0, SR_TID.X;", "--:-:1:Y:2   S2R R2, SR_CTAID.X;", "--:-:2:Y:2   LDC.64 R4, c[0x0][0x210];",
        "--:-:-:Y:f   ULDC.64 UR4, c[0x0][0x208];", "--:-:3:Y:2   LDC R3, c[0x0][0x0];",
        "0f:-:-:Y:f   IMAD R2, R2, R3, R0;",
        "--:-:-:Y:f   IMAD.SHL.U32 R32, R0, 0x4, RZ;",
        "--:-:-:Y:f   IMAD.WIDE.U32 R4, R2, 0x8, R4;",  # two words a thread
        "--:-:3:Y:f   LDC R7, c[0x0][0xc];", "08:-:-:Y:f   IMAD R7, R3, R7, RZ;",  # all threads
    ]  # fmt: skip
    code = "\n".join(lines) + "\n"
    code += "".join(SLOW + text + ";\n" for text in CONSTANTS.strip().splitlines())
    # shared memory holds at every address that address + 0x1000
    code += SLOW + "IADD3 R6, R32, 0x1000, RZ;\n" + "--:0:-:Y:f  STS [R32], R6;\n"
    code += "01:-:-:Y:f  BAR.SYNC.DEFER_BLOCKING 0x0;\n"
    code += SLOW + "MOV R6, RZ;\n" + "ROUND:\n"
    code += tested
    code += "0x30:-:-:Y:f  NOP;\n--:0:-:Y:2  STG.E.64 desc[UR4][R4.64], R20;\n"
    code += "01:-:-:Y:f  IMAD.WIDE.U32 R4, R7, 0x8, R4;\n" + SLOW + "IADD3 R6, R6, 0x1, RZ;\n"
    code += SLOW + f"ISETP.NE.AND P2, PT, R6, {ROUNDS:#x}, PT;\n" + SLOW + "@P2 BRA ROUND;\n" + SLOW + "EXIT;\n"
    return code


def distances(pair: Pair) -> list[int]:
    return list(range(1, 36 if pair.producer in TENSOR else 18))


def source(pair: Pair) -> str:
    kernels = [kernel(pair, f"d{n}", n) for n in distances(pair)]
    return f".arch {ARCH}\n" + kernel(pair, "none", None) + kernel(pair, "far", FAR) + "".join(kernels)


def classes(pair: Pair) -> tuple[str, str]:
    """The classes of latency.csv that the two instructions belong to."""
    first, second = (decoded(text) for text in (pair.producer, pair.consumer.split("; ")[0]))
    rules = latencies(ARCH)
    accesses = second.writes if pair.hazard == "waw" else second.reads
    for one in first.writes:
        for two in accesses:
            low = max(one.first, two.first)
            if one.file == two.file == pair.file and low < min(one.first + one.count, two.first + two.count):
                if pair.producer in HIGH and low == 8 and two.count == 2:
                    low = 9
                kind = writer if pair.hazard == "waw" else reader
                return writer(rules, first, one, low - one.first), kind(rules, second, two, low - two.first)
    raise ValueError(f"{pair.consumer} does not meet {pair.producer}")


def decoded(text: str) -> Instruction:
    label = "" if "BRA" not in text else "OTHER:\n"
    made = assemble(f".arch {ARCH}\n{label}{SLOW}{text};\n").kernel("kern").words[0]
    found = instruction(instruction_set(ARCH), made)
    assert found is not None
    return found


class Driver:
    """What is needed of CUDA's driver."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver = driver
        self.call("cuInit", 0)
        self.device = self.call("cuDeviceGet", 0)
        self.call("cuCtxSetCurrent", self.call("cuDevicePrimaryCtxRetain", self.device))
        blocks, threads = LAUNCHES[-1]
        self.room = 8 * ROUNDS * blocks * threads
        self.out = self.call("cuMemAlloc", self.room)

    def call(self, name: str, *args: Any) -> Any:
        error, *results = getattr(self.driver, name)(*args)
        if int(error) != 0:
            raise RuntimeError(f"{name}: {error}")
        return results[0] if len(results) == 1 else results

    def run(self, function: Any, blocks: int, threads: int) -> np.ndarray[Any, Any]:
        self.call("cuMemsetD32", self.out, 0xDEADBEEF, self.room // 4)
        args = ((int(self.out),), (ctypes.c_void_p,))
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, 0, args, 0)
        data = np.empty(2 * ROUNDS * blocks * threads, np.uint32)
        self.call("cuMemcpyDtoH", data.ctypes.data, self.out, data.nbytes)
        return data.reshape(ROUNDS, -1, 2)


def measure(gpu: Driver, pair: Pair) -> int | None:
    """The smallest sufficient distance in cycles; None when the values cannot be told apart."""
    module = gpu.call("cuModuleLoadData", assemble(source(pair)).to_bytes())
    need = 1
    told = pair.hazard == "waw"
    for blocks, threads in LAUNCHES:
        def results(name: str) -> np.ndarray[Any, Any]:
            return gpu.run(gpu.call("cuModuleGetFunction", module, name.encode()), blocks, threads)  # noqa: B023

        right = results("far")
        told |= not np.array_equal(right, results("none"))
        wrong = [n for n in distances(pair) if not np.array_equal(results(f"d{n}"), right)]
        need = max(need, max(wrong, default=0) + 1)
    gpu.call("cuModuleUnload", module)
    return need if told else None


def git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def smi(query: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    options = argparse.ArgumentParser(description="Measures fixed latencies on an H200 (sm_90).")
    options.add_argument("--json", type=Path)
    options.add_argument("--commit", default="", help="what to note down where there is no git")
    options.add_argument("--check", action="store_true")
    options.add_argument("--add", action="store_true", help="only what the file of --json lacks")
    chosen = options.parse_args()
    if chosen.add and not chosen.json:
        options.error("--add needs --json")
    if chosen.check:
        for pair in pairs():
            print(pair.hazard, pair.file, *classes(pair), pair.producer, "->", pair.consumer, sep="\t")
            assemble(source(pair))
        return
    gpu = Driver()
    commit = chosen.commit or git("rev-parse", "HEAD")
    kept = json.loads(chosen.json.read_text()) if chosen.add else {"results": []}
    known = {tuple(row[key] for key in KEYS): row for row in kept.pop("results")}
    added = {"added": f"{datetime.date.today().isoformat()}, {commit}"} if chosen.add else {}
    found = []
    for pair in pairs():
        row = known.get(tuple(getattr(pair, key) for key in KEYS))
        if row is None:
            row = {**{key: getattr(pair, key) for key in KEYS}, "cycles": measure(gpu, pair), **added}
            print(*row.values(), sep="\t", flush=True)
        found.append(row)
    if chosen.json:
        name, driver, clock, most = smi("name,driver_version,clocks.sm,clocks.max.sm").split(", ")
        about = {
            "date": datetime.date.today().isoformat(), "gpu": name, "driver": driver, "sm clock": clock,
            "most": most, "commit": commit,
        }  # fmt: skip
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(results.text({**(kept or about), "results": found}))


if __name__ == "__main__":
    main()

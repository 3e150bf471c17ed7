"""Times steps 5 to 8 on a GPU: ``python -m kernels_sass.learn.measure [--json FILE] [--only ffma|smem|sgemm]``.

``measure_ffma`` and ``measure_smem`` run one block of 256 threads, two warps a scheduler, and read the SM's own clock
in the kernel; ``measure_sgemm`` times launches, beside PyTorch's matrix product with TF32 off, if there is PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import loader
import turingas
from loader import cuda, timing
from loader.cuda import Buffer
from turingas.errors import LaunchError
from turingas.program import Cubin

FOLDER = Path(__file__).parent
THREADS, WARPS, SCHEDULERS = 256, 8, 4
ROUNDS = 512  # of the loop that is timed
LAUNCHES = 9  # the first is not counted
ACCESSES = 64  # LDS or STS of step 6 in a round

Array = np.ndarray[Any, np.dtype[Any]]
Defines = Mapping[str, object]


@dataclass(frozen=True)
class Row:
    """``cycles``: of one round of the loop, for all warps; ``cpi``: those for each timed instruction that a scheduler
    issues (FFMA), or the SM (LDS, STS); ``bytes_per_cycle``: that lanes ask for, of the SM; ``before``: cycles that
    other kernels with these loops took on an H200, before these were written."""

    name: str
    cycles: float
    cpi: float
    bytes_per_cycle: float | None = None
    before: int | None = None


@dataclass(frozen=True)
class Product:
    """A matrix product. ``ms`` is the median; ``error`` the relative L2 error of some rows against float64."""

    name: str
    m: int
    n: int
    k: int
    ms: float
    tflops: float
    error: float
    mhz: int | None


def best(**more: object) -> dict[str, object]:
    return {"PATTERN": "best", **more}


#: name -> file, what is defined, cycles on an H200 before
FFMA: dict[str, tuple[str, Defines, int | None]] = {
    "c and a in opposite banks, b kept, a kept at the turn": ("05_outer_product", best(), 1061),
    "the same, b kept only": ("05_outer_product", {"PATTERN": "b_only"}, 1110),
    "c and a in one bank, both kept": ("05_outer_product", {"PATTERN": "same_bank"}, 1189),
    "no reuse flags": ("05_outer_product", {"PATTERN": "no_reuse"}, 1812),
    "all three in one bank (256 FFMA)": ("05_outer_product", {"PATTERN": "one_bank"}, 1552),
    **{
        f"best, yield every {n}": ("05_outer_product", best(YIELD=f"every:{n}"), cycles)
        for n, cycles in ((32, 1094), (16, 1123), (8, 1126), (7, 1147), (4, 1187))
    },
    **{
        f"best, {n} LDS.128 in 128 FFMA": ("07_mix", {"LDS": n}, cycles)
        for n, cycles in ((0, None), (4, 1093), (6, 1111), (8, 1125), (12, 1551))
    },
    "best, 8 LDS.128 in 128 FFMA, lanes of paper 004": ("07_mix", {"LDS": 8, "LANES": "paper004"}, 1193),
    "best, 4 STS.128 in 128 FFMA": ("07_mix", {"STS": 4}, 1157),
}

#: name -> OP, WIDTH, PATTERN, cycles on an H200 before
SMEM: dict[str, tuple[str, int, str, int | None]] = {
    **{
        f"{op}.{width}": (op, width, "own", cycles)
        for op in ("LDS", "STS")
        for width, cycles in ((32, 513), (64, 1025), (128, 2049))
    },
    **{
        f"{op}.{width}, half of the lanes": (op, width, "half", None)
        for op in ("LDS", "STS")
        for width in (32, 64, 128)
    },
    "LDS.128, lanes of paper 004": ("LDS", 128, "paper004", 1025),
    "LDS.32, one word for all": ("LDS", 32, "broadcast", None),
    **{f"LDS.32, {n} words apart": ("LDS", 32, f"stride:{n}", None) for n in (2, 4, 32)},
}

SIZES = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (4096, 4096, 512),
         (1000, 1001, 999), (4095, 4097, 1023), (128, 16384, 4096))  # fmt: skip
SCHEDULED = (4096, 4096, 4096)
YIELDS = ("every:32", "every:16", "every:8", "every:4")


def built(name: str, arch: str, defines: Defines | None = None) -> Cubin:
    """``name``.sass of this folder, assembled."""
    path = FOLDER / f"{name}.sass"
    return turingas.assemble(path.read_text(), arch, dict(defines or {}), [FOLDER], filename=str(path))


def elapsed(clocks: Array) -> int:
    """Cycles from the first start to the last end: (threads, 2) of a 32-bit clock, which may turn over."""
    ticks = (clocks - clocks[0, 0]).view(np.int32)
    return int(ticks[:, 1].max() - ticks[:, 0].min())


def cycles(cubin: Cubin, device: str, arrays: Sequence[Array]) -> float:
    """Cycles a round: the median of some launches. The kernel's parameters are ``arrays``, its clocks, its rounds."""
    found = []
    with loader.load(cubin, device) as module, contextlib.ExitStack() as stack:
        buffers = [stack.enter_context(Buffer.of(array, device)) for array in arrays]
        clocks = stack.enter_context(Buffer.of(np.zeros((THREADS, 2), np.uint32), device))
        for _ in range(LAUNCHES):
            module.kernel().launch(1, THREADS, *buffers, clocks, ROUNDS)
            module.synchronize()
            found.append(elapsed(clocks.numpy()) / ROUNDS)
    return statistics.median(found[1:])


def measure_ffma(device: str = "cuda:0") -> list[Row]:
    """Loops of 512 FFMA by register banks, reuse flags, yields, and what else stands between them."""
    gpu = on(device)
    ones, product = np.ones(8, np.float32), np.zeros((64, THREADS), np.float32)
    rows = []
    for name, (file, defines, before) in FFMA.items():
        arrays = [product, ones, ones] if file == "05_outer_product" else [product[0]]
        taken = cycles(built(file, gpu.arch, defines), device, arrays)
        ffma = 256 if defines.get("PATTERN") == "one_bank" else 512
        rows.append(Row(name, taken, taken / (ffma * WARPS / SCHEDULERS), None, before))
    return rows


def measure_smem(device: str = "cuda:0") -> list[Row]:
    """LDS and STS alone: the cycles of 64 a warp, 8 warps; CPI and bytes a cycle as in Table 1 of paper 000."""
    gpu = on(device)
    rows = []
    for name, (op, width, pattern, before) in SMEM.items():
        cubin = built("06_smem", gpu.arch, {"OP": op, "WIDTH": width, "PATTERN": pattern})
        taken = cycles(cubin, device, [np.zeros(THREADS, np.uint32)])
        lanes = 16 if pattern == "half" else 32
        cpi = taken / (ACCESSES * WARPS)
        rows.append(Row(name, taken, cpi, lanes * width / 8 / cpi, before))
    return rows


def measure_sgemm(
    device: str = "cuda:0", sizes: Sequence[tuple[int, int, int]] = SIZES, yields: Sequence[str] = YIELDS
) -> list[Product]:
    """Step 8, and ``torch.matmul`` with TF32 off if PyTorch sees the GPU, on the same matrices. ``yields``: what else
    YIELD is set to, for the products of SCHEDULED."""
    gpu = on(device)
    torch = pytorch()
    rows = []
    with contextlib.ExitStack() as stack:
        modules = {
            text: stack.enter_context(loader.load(built("08_sgemm", gpu.arch, {"YIELD": text}), device))
            for text in ("natural", *yields)
        }
        for m, n, k in sizes:
            random = np.random.default_rng(m + n + k)
            a, b = (random.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
            some = sorted({0, m // 2, m - 1, *random.integers(0, m, 13).tolist()})
            exact = a[some].astype(np.float64) @ b.astype(np.float64)

            def row(name: str, result: Array, took: timing.Timing) -> Product:
                error = float(np.linalg.norm(result[some] - exact) / np.linalg.norm(exact))  # noqa: B023
                flops = 2 * m * n * k  # noqa: B023
                clock = took.after.sm if took.after else None
                return Product(name, m, n, k, took.median, flops / took.median / 1e9, error, clock)  # noqa: B023

            with Buffer.of(a, device) as da, Buffer.of(b, device) as db, Buffer((m, n), np.float32, device) as dc:

                for text, module in modules.items():
                    if text != "natural" and (m, n, k) != SCHEDULED:
                        continue
                    kernel = module.kernel("sgemm")

                    def launch() -> None:
                        kernel.launch((-(-n // 128), -(-m // 128)), THREADS, da, db, dc, m, n, k)  # noqa: B023

                    took = timing.measure(launch, device=device)
                    rows.append(row("08_sgemm" if text == "natural" else f"... yield {text}", dc.numpy(), took))
                if torch is not None:
                    ta, tb, tc = (torch.as_tensor(x, device=device) for x in (da, db, dc))
                    took = timing.measure(lambda: torch.matmul(ta, tb, out=tc), device=device)  # noqa: B023
                    rows.append(row(f"torch {torch.__version__}", tc.cpu().numpy(), took))
    return rows


def on(device: str) -> cuda.Device:
    """The GPU. LaunchError where there is none: the CPU device has no time."""
    if not device.startswith("cuda"):
        raise LaunchError(f"{device} has no time: this measures a GPU", "device='cuda:0'")
    return cuda.device_named(device)


def pytorch() -> Any:
    """torch with TF32 off, or None where it is not installed or sees no GPU."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


# ---- what is printed ---------------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> Iterator[str]:
    yield f"{'':54} {'cycles':>8} {'before':>7} {'CPI':>7} {'bytes/cycle':>12}"
    for row in rows:
        width = "" if row.bytes_per_cycle is None else f"{row.bytes_per_cycle:.1f}"
        yield f"{row.name:54} {row.cycles:8.0f} {row.before or '':>7} {row.cpi:7.2f} {width:>12}"


def products(rows: Sequence[Product]) -> Iterator[str]:
    yield f"{'':20} {'m':>6} {'n':>6} {'k':>6} {'ms':>9} {'TFLOP/s':>8} {'error':>8} {'MHz':>5}"
    for row in rows:
        yield (f"{row.name:20} {row.m:6} {row.n:6} {row.k:6} {row.ms:9.4f} {row.tflops:8.1f} {row.error:8.1e} "
               f"{row.mhz or '':>5}")  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """The command. 1 where there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m kernels_sass.learn.measure", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", choices=("ffma", "smem", "sgemm"), action="append", help="may be given several times")
    asked = parser.parse_args(words)
    try:
        gpu = on(asked.device)
        from kernels_sass.bench import results  # what dates a result; it needs no GPU, but nobody else here needs it

        found: dict[str, Any] = results.facts("learn", gpu, ())
        parts: list[tuple[str, str, Callable[..., list[Any]], Callable[..., Iterator[str]]]] = [
            ("ffma", "512 FFMA a warp, 8 warps an SM", measure_ffma, table),
            ("smem", f"{ACCESSES} LDS or STS a warp, 8 warps an SM", measure_smem, table),
            ("sgemm", "C = A B, float32", measure_sgemm, products),
        ]
        for name, title, measure, shown in parts:
            if asked.only is None or name in asked.only:
                rows = measure(asked.device)
                print(f"{title}, {gpu.name}", *shown(rows), "", sep="\n")
                found[name] = [asdict(row) for row in rows]
    except LaunchError as error:
        print(f"nothing is measured: {error.message}", file=sys.stderr)
        return 1
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

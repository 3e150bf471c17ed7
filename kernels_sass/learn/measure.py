"""Times step 8 on a GPU, beside PyTorch's matrix product with TF32 off: ``python -m kernels_sass.learn.measure [--json
FILE]``. Steps 5 and 7 are timed by ``turingas bench ffma``, step 6 by ``turingas bench smem``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import loader
import turingas
from loader import cuda, timing
from loader.cuda import Buffer
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

FOLDER = Path(__file__).parent
THREADS = 256

Array = np.ndarray[Any, np.dtype[Any]]
Defines = Mapping[str, object]


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


SIZES = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (4096, 4096, 512),
         (1000, 1001, 999), (4095, 4097, 1023), (128, 16384, 4096))  # fmt: skip
SCHEDULED = (4096, 4096, 4096)
YIELDS = ("every:32", "every:16", "every:8", "every:4")


def built(name: str, arch: str, defines: Defines | None = None) -> Cubin:
    """``name``.sass of this folder, assembled."""
    path = FOLDER / f"{name}.sass"
    return turingas.assemble(path.read_text(), arch, dict(defines or {}), [FOLDER], filename=str(path))


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
    asked = parser.parse_args(words)
    try:
        gpu = on(asked.device)
        from loader.bench import results  # what dates a result; it needs no GPU, but nobody else here needs it

        found: dict[str, Any] = results.facts("learn", gpu, ())
        rows = measure_sgemm(asked.device)
        print(f"C = A B, float32, {gpu.name}", *products(rows), sep="\n")
        found["sgemm"] = [asdict(row) for row in rows]
    except LaunchError as error:
        print(f"nothing is measured: {error.message}", file=sys.stderr)
        return 1
    if asked.json is not None:
        asked.json.write_text(results.text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

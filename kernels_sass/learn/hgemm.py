"""Step 9 from Python: C = A B in float16, sums in float32, on an H100, an H200 or the CPU device.

    python -m kernels_sass.learn.hgemm 300 520 200                          # the CPU device, strict, races
    python -m kernels_sass.learn.hgemm 300 520 200 --device cuda:0 -D STAGES=3

prints the relative L2 error against float64; exit code 1 if it is more than rounding to float16 explains.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import loader
import turingas
from loader.cuda import Buffer
from turingas.cubin.cubin import Cubin
from turingas.errors import AsmError, LaunchError

SOURCE = Path(__file__).parent / "09_hgemm.sass"
TILE_M = 128
THREADS = 384
ROUNDED = 3e-4  # relative L2 error: rounding to float16 is 2.1e-4

Array = np.ndarray[Any, np.dtype[Any]]
Of = TypeVar("Of", bound="Tiling")


@dataclass(frozen=True)
class Tiling:
    """The parameters of the source, and what a launch needs to know of them."""

    tile_n: int = 256
    stages: int = 4
    cluster: int = 1
    group: int = 16
    late: int = 1
    loads: int = 1
    store: int = 1

    @classmethod
    def of(cls: type[Of], defines: Mapping[str, str]) -> Of:
        """From the parameters' names and values. LaunchError for one that there is not."""
        known = [one.name.upper() for one in fields(cls)]
        for name in defines:
            if name not in known:
                more = "; some more in kernels_sass.gemm_kernels" if cls is Tiling else ""
                raise LaunchError(f"there is no parameter {name}", f"there are {', '.join(known)}{more}")
        given: dict[str, Any] = {
            name.lower(): int(value) if value.isdigit() else value for name, value in defines.items()
        }
        return cls(**given)

    def defines(self) -> dict[str, object]:
        return {name.upper(): value for name, value in vars(self).items()}

    @property
    def boxes(self) -> int:
        """Boxes of 16 rows of 128 bytes that a warp has for its results."""
        return 2 - self.tile_n // 64 % 2

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: mbarriers, stages, results on their way out."""
        return 0x400 + self.stages * (TILE_M + self.tile_n) * 128 + 8 * self.boxes * 16 * 128

    def blocks(self, m: int, n: int, sms: int) -> int:
        """Of the grid: one a multiprocessor, or fewer where there are fewer tiles."""
        tiles = -(-m // (TILE_M * self.cluster)) * -(-n // self.tile_n)
        return self.cluster * min(tiles, sms // self.cluster)

    @property
    def options(self) -> dict[str, Any]:
        """Of ``launch``."""
        return {"shared": self.shared, **({"cluster": self.cluster} if self.cluster > 1 else {})}

    def map(self, which: int, array: Any) -> Any:
        """The tensor map of A (0), B (1) or C (2): the rows that one copy takes, of 64 elements, 128 bytes."""
        return loader.tensor_map(array, ((TILE_M, self.tile_n // self.cluster, 16)[which], 64), swizzle=128)

    def sizes(self, a: Any, b: Any) -> tuple[int, int, int]:
        """M, N, K."""
        return int(a.shape[0]), int(b.shape[0]), int(a.shape[1])

    def laid(self, a: Array, b: Array) -> tuple[Array, Array]:
        """A and B as the kernel takes them: M rows of K, and N rows of K."""
        return a, np.ascontiguousarray(b.T)


@functools.cache
def built(tiling: Tiling) -> Cubin:
    """The kernel, assembled."""
    return turingas.assemble(SOURCE.read_text(), "sm_90a", tiling.defines(), [SOURCE.parent], filename=str(SOURCE))


def multiply(module: Any, tiling: Tiling, a: Any, b: Any, c: Any, sms: int = 132, **options: Any) -> Any:
    """Queue C = A B; what ``launch`` gives."""
    m, n, k = tiling.sizes(a, b)
    maps = (tiling.map(which, array) for which, array in enumerate((a, b, c)))
    return module.kernel().launch(tiling.blocks(m, n, sms), THREADS, *maps, m, n, k, **tiling.options, **options)


def matrices(tiling: Tiling, m: int, n: int, k: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Random A and B as the tiling wants them, C full of NaN, and the product in float64."""
    random = np.random.default_rng(seed)
    a = random.standard_normal((m, k), np.float32).astype(np.float16)
    b = random.standard_normal((k, n), np.float32).astype(np.float16)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return *tiling.laid(a, b), np.full((m, n), np.nan, np.float16), exact


def error(found: Array, exact: Array) -> float:
    """Relative L2."""
    return float(np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact))


def command(words: Sequence[str] | None, name: str, of: type[Of], make: Callable[[Of], Cubin]) -> int:
    """Multiply by the kernel that ``make`` makes of parameters, a module's command; the exit code. What cannot be is
    told, such as sizes that tensor maps do not take."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description="C = A B against float64.")
    parser.add_argument("sizes", nargs="+", type=int, metavar="M N K", help="three numbers for each product")
    parser.add_argument("-D", "--define", action="append", default=[], metavar="NAME[=VALUE]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sms", type=int, default=0, help="blocks at once. [default: of the GPU; 4 on the CPU device]")
    asked = parser.parse_args(words)
    if len(asked.sizes) % 3:
        parser.error(f"M N K: three numbers for each product, not {len(asked.sizes)}")
    try:
        tiling = of.of({name: value if equals else "1" for name, equals, value in
                        (word.partition("=") for word in asked.define)})  # fmt: skip
        cubin = make(tiling)
    except AsmError as why:
        parser.error(why.plain)
    except LaunchError as why:
        parser.error(str(why))
    try:
        said, wrong = "", False
        with loader.load(cubin, asked.device) as module:
            for m, n, k in zip(*(asked.sizes[first::3] for first in range(3))):
                said = f"{m} x {n} x {k}: "
                wrong |= not tried(module, tiling, m, n, k, asked.device, asked.sms)
    except LaunchError as why:
        print(f"{parser.prog}: error: {said}{why}", file=sys.stderr)
        return 1
    return int(wrong)


def tried(module: Any, tiling: Tiling, m: int, n: int, k: int, device: str, sms: int) -> bool:
    """Whether a product is right, which is told, too. LaunchError for what cannot be launched."""
    a, b, c, exact = matrices(tiling, m, n, k)
    if device == "cpu":
        report = multiply(module, tiling, a, b, c, sms or 4, strict=True, races=True)
        found = [str(one) for one in report.hazards + report.races]
    else:
        da, db, dc = (Buffer.of(x, device) for x in (a, b, c))
        multiply(module, tiling, da, db, dc, sms or 132)
        module.synchronize()
        c, found = dc.numpy(), []
    off = error(c, exact)
    print(f"{m} x {n} x {k}: relative L2 error {off:.2e}", *found[:3], sep="\n", flush=True)
    return not found and off < ROUNDED


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return command(words, "kernels_sass.learn.hgemm", Tiling, built)


if __name__ == "__main__":
    sys.exit(main())

"""Tensor cores: what products of warps and warp groups sustain, and their latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels_sass.micro.loops import FOLDER, Array, Case, Latency
from turingas.isa import arch as architectures
from turingas.isa.arch import ADA, ALL, AMPERE, BLACKWELL, HOPPER, TURING, Archs


@dataclass(frozen=True)
class Type:
    """What stands in all places of A and B: words, and the product of two elements, which every type holds exactly.
    ``into``: the type of the accumulator, "f2", "f4", "f8" or "i4"."""

    a: int
    b: int
    value: float
    into: str


HALF, HALF_F32, BF16, TF32 = (
    Type(0x3C003C00, 0x14001400, 2**-10, "f2"), Type(0x3C003C00, 0x14001400, 2**-10, "f4"),
    Type(0x3F803F80, 0x3A803A80, 2**-10, "f4"), Type(0x3F800000, 0x3A800000, 2**-10, "f4"),
)  # fmt: skip
FP64, FP8, FP8_F32 = (
    Type(0x3FF00000, 0x3F500000, 2**-10, "f8"),
    Type(0x38383838, 0x08080808, 2**-6, "f2"), Type(0x38383838, 0x08080808, 2**-6, "f4"),
)  # fmt: skip
INT8, INT4 = Type(0x01010101, 0x01010101, 1, "i4"), Type(0x11111111, 0x11111111, 1, "i4")
AND, XOR = Type(0xFFFFFFFF, 0xFFFFFFFF, 1, "i4"), Type(0xFFFFFFFF, 0, 1, "i4")


@dataclass(frozen=True)
class Mma:
    """A product of an m x k and a k x n matrix that a warp does; of a warp group's, a warp does 16 of 64 rows.
    ``registers``: of the accumulator; ``archs``: those that have it and that are measured; ``sparse``: half of A's
    elements are there, two of four, of TF32 one of two."""

    m: int
    n: int
    k: int
    type: Type
    registers: int
    archs: Archs
    sparse: bool = False

    @property
    def flops(self) -> int:
        """Of a warp; a sparse product's as if it were dense."""
        return 2 * self.m * self.n * self.k

    def element(self, products: int) -> list[int]:
        """The words in which an accumulator stands that took so many."""
        value = products * self.k // (1 + self.sparse) * self.type.value
        words = np.full(2 * self.registers, value, np.dtype(f"<{self.type.into}")).view(np.uint32)
        found: list[int] = words[: self.registers].tolist()
        return found


# Nothing is measured on Blackwell.
TO_TURING, FROM_TURING, TURING_TO_ADA = ALL - AMPERE, TURING - BLACKWELL, TURING - HOPPER
FROM_AMPERE, AMPERE_TO_ADA, ADA_ALONE, H100 = AMPERE - BLACKWELL, AMPERE - HOPPER, ADA - HOPPER, HOPPER - BLACKWELL

MMA = {
    "HMMA.884.F16.F16": Mma(16, 16, 4, HALF, 4, TO_TURING),  # four products of 8 x 8, in 2 or 4 steps
    "HMMA.884.F32.F32": Mma(16, 16, 4, HALF_F32, 8, TO_TURING),
    "HMMA.1688.F16": Mma(16, 8, 8, HALF, 2, FROM_TURING),
    "HMMA.1688.F32": Mma(16, 8, 8, HALF_F32, 4, FROM_TURING),
    "HMMA.1688.F32.BF16": Mma(16, 8, 8, BF16, 4, FROM_AMPERE),
    "HMMA.16816.F16": Mma(16, 8, 16, HALF, 2, FROM_AMPERE),
    "HMMA.16816.F32": Mma(16, 8, 16, HALF_F32, 4, FROM_AMPERE),
    "HMMA.16816.F32.BF16": Mma(16, 8, 16, BF16, 4, FROM_AMPERE),
    "HMMA.1684.F32.TF32": Mma(16, 8, 4, TF32, 4, FROM_AMPERE),
    "HMMA.1688.F32.TF32": Mma(16, 8, 8, TF32, 4, FROM_AMPERE),
    "HMMA.SP.16816.F16": Mma(16, 8, 16, HALF, 2, FROM_AMPERE, sparse=True),
    "HMMA.SP.16816.F32": Mma(16, 8, 16, HALF_F32, 4, FROM_AMPERE, sparse=True),
    "HMMA.SP.16832.F16": Mma(16, 8, 32, HALF, 2, FROM_AMPERE, sparse=True),
    "HMMA.SP.16832.F32": Mma(16, 8, 32, HALF_F32, 4, FROM_AMPERE, sparse=True),
    "HMMA.SP.1688.F32.TF32": Mma(16, 8, 8, TF32, 4, FROM_AMPERE, sparse=True),
    "HMMA.SP.16816.F32.TF32": Mma(16, 8, 16, TF32, 4, FROM_AMPERE, sparse=True),
    "IMMA.8816.S8.S8": Mma(8, 8, 16, INT8, 2, FROM_TURING),
    "IMMA.16816.S8.S8": Mma(16, 8, 16, INT8, 4, FROM_AMPERE),
    "IMMA.16832.S8.S8": Mma(16, 8, 32, INT8, 4, FROM_AMPERE),
    "IMMA.SP.16832.S8.S8": Mma(16, 8, 32, INT8, 4, FROM_AMPERE, sparse=True),
    "IMMA.SP.16864.S8.S8": Mma(16, 8, 64, INT8, 4, FROM_AMPERE, sparse=True),
    "IMMA.8832.S4.S4": Mma(8, 8, 32, INT4, 2, TURING_TO_ADA),
    "IMMA.16832.S4.S4": Mma(16, 8, 32, INT4, 4, AMPERE_TO_ADA),
    "IMMA.16864.S4.S4": Mma(16, 8, 64, INT4, 4, AMPERE_TO_ADA),
    "BMMA.88128.XOR.POPC": Mma(8, 8, 128, XOR, 2, TURING_TO_ADA),
    "BMMA.88128.AND.POPC": Mma(8, 8, 128, AND, 2, FROM_AMPERE),
    "BMMA.168128.AND.POPC": Mma(16, 8, 128, AND, 4, FROM_AMPERE),
    "BMMA.168256.AND.POPC": Mma(16, 8, 256, AND, 4, FROM_AMPERE),
    "QMMA.16832.F16.E4M3.E4M3": Mma(16, 8, 32, FP8, 2, ADA_ALONE),
    "QMMA.16832.F32.E4M3.E4M3": Mma(16, 8, 32, FP8_F32, 4, ADA_ALONE),
    "DMMA.884": Mma(8, 8, 4, FP64, 4, AMPERE_TO_ADA),
    "DMMA.8x8x4": Mma(8, 8, 4, FP64, 4, H100),
    "DMMA.16x8x4": Mma(16, 8, 4, FP64, 8, H100),
    "DMMA.16x8x8": Mma(16, 8, 8, FP64, 8, H100),
    "DMMA.16x8x16": Mma(16, 8, 16, FP64, 8, H100),
}
#: Products of warp groups, with any of SIZES for N.
GROUPS = {
    "HGMMA.64x{n}x16.F16": (16, HALF), "HGMMA.64x{n}x16.F32": (16, HALF_F32), "HGMMA.64x{n}x16.F32.BF16": (16, BF16),
    "HGMMA.64x{n}x8.F32.TF32": (8, TF32),
    "HGMMA.SP.64x{n}x32.F16": (32, HALF), "HGMMA.SP.64x{n}x32.F32": (32, HALF_F32),
    "HGMMA.SP.64x{n}x16.F32.TF32": (16, TF32),
    "IGMMA.64x{n}x32.S8.S8": (32, INT8), "IGMMA.SP.64x{n}x64.S8.S8": (64, INT8),
    "BGMMA.64x{n}x256.AND.POPC": (256, AND),
    "QGMMA.64x{n}x32.F16.E4M3.E4M3": (32, FP8), "QGMMA.64x{n}x32.F32.E4M3.E4M3": (32, FP8_F32),
    "QGMMA.SP.64x{n}x64.F16.E4M3.E4M3": (64, FP8), "QGMMA.SP.64x{n}x64.F32.E4M3.E4M3": (64, FP8_F32),
}  # fmt: skip
SIZES = (8, 64, 128, 256)
GROUP_MMA = {
    name.format(n=n): Mma(16, n, k, kind, n // (4 if kind.into == "f2" else 2), H100, sparse=".SP." in name)
    for name, (k, kind) in GROUPS.items() for n in SIZES
}  # fmt: skip
REUSED = ("HMMA.16816.F32", "HMMA.1688.F32.TF32")  # also timed with both sources in the reuse cache


def queued(op: str, arch: str) -> bool:
    """Whether a scoreboard tells when it is done; else its latency is fixed."""
    return "tensor" in architectures.arch(arch).queues or op.startswith("DMMA")


def product(op: str, arch: str, threads: int, chains: int, kind: type[Case] = Case, **defines: object) -> Case:
    """Products on so many accumulators, which take turns."""
    group = op in GROUP_MMA
    one = GROUP_MMA[op] if group else MMA[op]
    words = np.full((one.registers * chains, threads), 0xFFFFFFFF, np.uint32)

    def right(found: Sequence[Array], rounds: int) -> bool:
        wanted = [word for chain in range(chains) for word in one.element(rounds * len(range(chain, 64, chains)))]
        return bool((found[0] == np.array(wanted, np.uint32)[:, None]).all())

    more = {"op": op, "flops": one.flops, "chains": chains}
    defines = {"OP": op, "CHAINS": chains, **defines}
    source, variant = (FOLDER / "hgmma.sass", "a") if group else (FOLDER / "hmma.sass", "")
    return kind(source, defines, (words, one.type.a, one.type.b), right, 64, threads, more=more, variant=variant)


def cases(arch: str) -> dict[str, Case]:
    """What the tensor cores of ``arch`` sustain, one and two warps a scheduler, and their latency."""
    found: dict[str, Case] = {}
    for op, one in MMA.items():
        if architectures.arch(arch) not in one.archs:
            continue
        waits = queued(op, arch)
        for warps in (8, 4):
            label = f"{op}, {warps // 4} a scheduler"
            found[label] = product(op, arch, 32 * warps, 6 if waits else 12)
            if warps == 8 and op in REUSED and not waits:
                found[f"{label}, sources kept"] = product(op, arch, 256, 12, REUSE="ab")
        found[f"{op}, latency"] = product(op, arch, 32, 1, Case if waits else Latency)
    for op, one in GROUP_MMA.items():
        if architectures.arch(arch) not in one.archs:
            continue
        chains = min(4, 128 // one.registers)
        found[f"{op}, 2 a scheduler"] = product(op, arch, 256, chains)
        found[f"{op}, 2 a scheduler, A in registers"] = product(op, arch, 256, chains, A="registers")
        if one.n == max(SIZES):
            found[f"{op}, 1 a scheduler"] = product(op, arch, 128, chains)
            found[f"{op}, latency"] = product(op, arch, 128, 1, WAIT=1)
    return found

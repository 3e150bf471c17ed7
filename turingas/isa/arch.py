"""What differs from one GPU architecture to the next, outside the instructions: one row an architecture.

Sources: cubins of NVRTC 11.8, 12.9 and 13.5 (constant bank, e_flags), the CUDA C++ Programming Guide, tables
"Technical Specifications per Compute Capability" (limits), the CUDA Occupancy Calculator (granularity).
"""

from __future__ import annotations

from dataclasses import dataclass

from turingas.errors import AsmError

KB = 1024


@dataclass(frozen=True)
class Arch:
    """Facts of one architecture. Sizes are in bytes, addresses are in constant bank 0."""

    name: str
    sm: int
    param_base: int  # first kernel parameter
    global_descriptor: int | None  # 64-bit descriptor of global memory; None: instructions take none
    shared_optin: int  # most shared memory of a block, asked for at launch
    shared_per_sm: int
    shared_reserved: int  # what the system takes of every block's shared memory
    max_warps: int  # resident on one SM
    max_blocks: int  # resident on one SM
    e_flags: int  # ELF header, style of CUDA 11 and 12 (ABI version 7)
    uniform: bool = True  # has the uniform datapath (UR0 ..., UP0 ...)
    stack_pointer: int = 0x28  # initial value of R1
    wide_param_base: int = 0x1A80  # first parameter of a kernel that takes more than 4096 bytes of them
    max_params: int = 32764  # bytes of parameters
    sw_war: int | None = None  # value of EIATTR_SW_WAR, where ptxas 12.9 writes one
    code_padding: int = 0  # bytes of NOP after the code, beyond its alignment (instructions are fetched ahead)
    max_registers: int = 255  # a thread
    max_uniform_registers: int = 63
    max_barriers: int = 16
    max_predicates: int = 7
    register_unit: int = 8  # registers of a thread are allocated in these
    registers_per_sm: int = 65536
    shared_static: int = 48 * KB  # most shared memory that a cubin may declare

    register_banks: int = 2  # of the register file: even and odd registers
    block_dim: int = 0x0  # blockDim.x, .y, .z in constant bank 0
    grid_dim: int = 0xC  # gridDim.x, .y, .z in constant bank 0

    @property
    def shared_counted(self) -> int:
        """What a kernel's declared shared memory has of the reserved bytes in it: compilers for sm_90 count them in and
        put the kernel's variables behind them."""
        return self.shared_reserved if self.sm >= 90 else 0

    def params_at(self, size: int) -> int:
        """Address of the first of ``size`` bytes of parameters."""
        return self.param_base if size <= 4096 else self.wide_param_base


def _row(
    name: str, base: int, desc: int | None, optin: int, shared: int, reserved: int, warps: int, blocks: int
) -> Arch:
    sm = int(name.rstrip("a"))
    accelerated = 0x800 if name.endswith("a") else 0
    return Arch(
        name="sm_" + name,
        sm=sm,
        param_base=base,
        global_descriptor=desc,
        shared_optin=optin * KB,
        shared_per_sm=shared * KB,
        shared_reserved=reserved * KB,
        max_warps=warps,
        max_blocks=blocks,
        e_flags=sm << 16 | accelerated | 0x500 | sm,
        uniform=sm >= 75,
        wide_param_base=base if sm >= 90 else 0x1A80,
        sw_war=1 if sm <= 75 else 8 if sm >= 90 else None,
        code_padding=128 if sm >= 90 else 0,
    )


ARCHS: dict[str, Arch] = {
    arch.name: arch
    for arch in (
        #     name  params descriptor shared KB: opt-in, per SM, reserved; warps, blocks
        _row("70", 0x160, None, 96, 96, 0, 64, 32),
        _row("72", 0x160, None, 96, 96, 0, 64, 32),
        _row("75", 0x160, None, 64, 64, 0, 32, 16),
        _row("80", 0x160, 0x118, 163, 164, 1, 64, 32),
        _row("86", 0x160, 0x118, 99, 100, 1, 48, 16),
        _row("87", 0x160, 0x118, 163, 164, 1, 48, 16),
        _row("89", 0x160, 0x118, 99, 100, 1, 48, 24),
        _row("90", 0x210, 0x208, 227, 228, 1, 64, 32),
        _row("90a", 0x210, 0x208, 227, 228, 1, 64, 32),
    )
}

NAMES = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a")  # those with an instruction table


def arch(name: str | int) -> Arch:
    """The architecture called ``name``: "sm_75", "75" or 75. AsmError names the known ones."""
    text = str(name).strip().lower()
    found = ARCHS.get(text) or ARCHS.get("sm_" + text.replace("compute_", "").replace("sm", "").lstrip("_"))
    if found is None:
        raise AsmError(f"unknown architecture {name!r}", hint="known: " + ", ".join(ARCHS))
    return found

"""PTX kernels with tcgen05 instructions, and what numpy says that they do."""

from __future__ import annotations

import functools

import numpy as np

from tests.tools import ptxas
from turingas.emulate.arrays import Array

COLUMNS = 512


@functools.cache
def compiled(body: str, columns: int = COLUMNS, arch: str = "sm_100a", shared: int = 0, pair: bool = False) -> bytes:
    """The kernel ``k(out, in)`` around ``body``. Its names: %thread, %wid, %lid, %tm (tensor memory that the block has
    taken, ``columns`` of it), %mine (that with the warp's lanes), %out and %in (global addresses), sm (``shared``
    bytes), bar (an mbarrier of one arrival), %r0 to %r255, %d0 to %d63 (64 bits), %p0 to %p9. ``pair``: two blocks
    allocate together."""
    group = 2 if pair else 1
    return ptxas.assemble_ptx(
        f"""
.version 8.8
.target {arch}
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(.param .u64 out, .param .u64 in)
{".reqnctapercluster 2, 1, 1" if pair else ""}
{{
 .reg .b32 %r<256>; .reg .b64 %d<64>; .reg .pred %p<10>; .reg .b16 %h<16>;
 .reg .b32 %thread, %wid, %lid, %tm, %mine, %rank; .reg .b64 %out, %in; .reg .pred %first, %one, %done;
 .shared .align 1024 .b8 sm[{max(shared, 16)}];
 .shared .align 8 .b64 bar;
 .shared .align 4 .b32 taken;
 mov.u32 %thread, %tid.x; shr.u32 %wid, %thread, 5; and.b32 %lid, %thread, 31;
 mov.u32 %rank, %cluster_ctarank;
 setp.eq.u32 %first, %wid, 0; setp.eq.u32 %one, %thread, 0;
 ld.param.u64 %out, [out]; cvta.to.global.u64 %out, %out; ld.param.u64 %in, [in]; cvta.to.global.u64 %in, %in;
 @!%first bra HAVE;
 mov.u32 %r0, taken;
 tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r0], {columns};
HAVE:
 @%one mbarrier.init.shared::cta.b64 [bar], 1;
 fence.mbarrier_init.release.cluster;
 bar.sync 0;
 ld.shared.b32 %tm, [taken];
 shl.b32 %mine, %wid, 21; add.u32 %mine, %mine, %tm;
{body}
 bar.sync 0;
 @!%first bra END;
 tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;
 tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %tm, {columns};
END:
 ret;
}}
""",
        arch,
    )


def registers(first: int, count: int) -> str:
    """A vector of registers."""
    return "{" + ", ".join(f"%r{n}" for n in range(first, first + count)) + "}"


def stored(first: int, count: int, at: int) -> str:
    """Stores registers of each of 128 threads at ``out`` + 4 * at, as (registers, threads)."""
    lines = ["mul.wide.u32 %d60, %thread, 4; add.u64 %d60, %d60, %out;"]
    lines += [f"st.global.b32 [%d60+{4 * (at + 128 * n)}], %r{first + n};" for n in range(count)]
    return "\n ".join(lines)


#: shape: registers and columns of one repetition
LOADS = {"32x32b": (1, 1), "16x64b": (1, 2), "16x128b": (2, 4), "16x256b": (4, 8), "16x32bx2": (1, 1)}


def fragment(shape: str, times: int, second: int) -> tuple[Array, Array]:
    """The lane, of the 32 of a warp, and the column that each register of each thread holds, (threads, registers): the
    figures of PTX ISA 8.7, "Data Movement Shape". ``second``: the offset of 16x32bx2."""
    lanes, columns = np.zeros((2, 32, LOADS[shape][0] * times), int)
    for t in range(32):
        for n in range(lanes.shape[1]):
            if shape == "32x32b":
                found = t, n
            elif shape == "16x32bx2":
                found = t % 16, n + (second if t >= 16 else 0)
            elif shape == "16x64b":  # four threads share two rows that are eight apart: two of each
                found = t // 4 + 8 * (t % 2), 2 * n + (t // 2) % 2
            elif shape == "16x128b":
                found = t // 4 + 8 * (n % 2), n // 2 * 4 + t % 4
            else:
                found = t // 4 + 8 * (n // 2 % 2), n // 4 * 8 + t % 4 * 2 + n % 2
            lanes[t, n], columns[t, n] = found
    return lanes, columns

"""What accesses cost: wavefronts of shared memory, sectors and lines of global memory. Pure functions of addresses.

All take ``addresses`` (n, 32) of n requests (a warp each), ``lanes`` (n, 32) bool, which of them take part, and
``nbytes`` that each moves, and give a number for each request.

Shared memory has 32 banks of 4 bytes and delivers one word of each bank in a wavefront, to all lanes that ask for it
(CUDA C++ Programming Guide, "Shared Memory" of the compute capabilities). A request of 64 bits a lane is served by half
warps and one of 128 bits by quarter warps. A load serves two neighbours of these as one when every lane of the warp
wants what lane ^ 1 wants, or every one what lane ^ 2 wants (NVIDIA on its forum, "Unexpected shared memory bank
conflict", 77228, of Volta and Turing: results are packed, 128 bits then take 2 instead of 4). It was timed on an H200
too: LDS.128 with an address for each lane took 2049 cycles (8 warps, 64 instructions each), and half of that when half
of the lanes read what others read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LANES = np.arange(32, dtype=np.uint32)

BANKS = 32
SECTOR = 32  # bytes that L2 and DRAM move at least
LINE = 128  # bytes of a line of L1
GROUPS = {8: 2, 16: 4}  # parts of a warp that are served one after the other, by bytes a lane


def wavefronts(
    addresses: Array, lanes: Array, nbytes: int, load: bool = True, apart: bool = False
) -> tuple[Array, Array]:
    """Wavefronts that each request to shared memory takes, (n,), and what it would take without bank conflicts, (n,):
    the difference is ncu's data_bank_conflicts_pipe_lsu_mem_shared. Both are 0 where no lane takes part. ``load``: it
    is one to registers, so that neighbours may be served as one. ``apart``: an atomic, where each lane takes a pass of
    its own, also when others have the same word (measured: ncu on an H200)."""
    n = len(addresses)
    groups = GROUPS.get(nbytes, 1)
    group = _groups(addresses, lanes, groups, load)
    words = (addresses.astype(np.int64) >> 2)[:, :, None] + np.arange(max(1, nbytes // 4))
    keys = np.where(lanes[:, :, None], words | group[:, :, None] << 40, -1).reshape(n, -1)
    keys.sort(axis=1)
    new = np.empty(keys.shape, bool)
    new[:, 0] = True
    new[:, 1:] = apart | (keys[:, 1:] != keys[:, :-1])
    new &= keys >= 0
    row = np.broadcast_to(np.arange(n)[:, None], keys.shape)[new]
    found = keys[new]
    place = (row * groups + (found >> 40)) * BANKS + found % BANKS
    passes = np.bincount(place, minlength=n * groups * BANKS).reshape(n, groups, BANKS).max(axis=2)
    return passes.sum(axis=1), (passes > 0).sum(axis=1)


def _groups(addresses: Array, lanes: Array, groups: int, load: bool) -> Array:
    """In which group each lane is served, (n, 32)."""
    own = np.broadcast_to(LANES.astype(np.int64) * groups // 32, addresses.shape)
    if groups == 1 or not load:
        return own
    alike = np.zeros((len(addresses), 1), bool)
    for step in (1, 2):
        other = LANES ^ step
        same = (addresses == addresses[:, other]) | ~lanes | ~lanes[:, other]
        alike |= same.all(axis=1, keepdims=True)
    return np.where(alike, own & ~1, own)


def sectors(addresses: Array, lanes: Array, nbytes: int, size: int = SECTOR) -> Array:
    """Aligned pieces of ``size`` bytes that each request touches, (n,): sectors, or lines with LINE. Accesses are
    aligned to their size and so lie in one piece each."""
    keys = np.where(lanes, addresses.astype(np.int64) // size, -1)
    keys.sort(axis=1)
    found: Array = (np.diff(keys, axis=1, prepend=-1) != 0).sum(axis=1)
    return found

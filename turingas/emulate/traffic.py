"""What accesses cost: wavefronts of shared memory, sectors and lines of global memory. Pure functions of addresses.

All take ``addresses`` (n, 32) of n requests (a warp each), ``lanes`` (n, 32) bool, which of them take part, and
``nbytes`` that each moves, and give a number for each request.

Shared memory has 32 banks of 4 bytes and delivers one word of each bank in a wavefront, to all lanes that ask for it
(CUDA C++ Programming Guide, "Shared Memory" of the compute capabilities). A request of 64 bits a lane is served by half
warps and one of 128 bits by quarter warps; two neighbours are served as one when each of their lanes wants what the
lane next to it wants (lane ^ 1), or the one after that (lane ^ 2). So 32 lanes that each read their own 16 bytes take
four wavefronts, and two when half of them read what others read; both were timed on an H200 (LDS.128, 8 warps: 2049
cycles for 64 instructions a warp, and half of it). The condition for the neighbours is inferred, and what other
patterns of 128 bits cost is not measured.
"""

from __future__ import annotations

import numpy as np

from turingas.emulate.cohort import LANES, Array

BANKS = 32
SECTOR = 32  # bytes that L2 and DRAM move at least
LINE = 128  # bytes of a line of L1
GROUPS = {8: 2, 16: 4}  # parts of a warp that are served one after the other, by bytes a lane


def wavefronts(addresses: Array, lanes: Array, nbytes: int) -> tuple[Array, Array]:
    """Wavefronts that each request to shared memory takes, (n,), and what it would take without bank conflicts, (n,):
    the difference is ncu's data_bank_conflicts_pipe_lsu_mem_shared. Both are 0 where no lane takes part."""
    n = len(addresses)
    groups = GROUPS.get(nbytes, 1)
    group = _groups(addresses, lanes, groups)
    words = (addresses.astype(np.int64) >> 2)[:, :, None] + np.arange(max(1, nbytes // 4))
    keys = np.where(lanes[:, :, None], words | group[:, :, None] << 40, -1).reshape(n, -1)
    keys.sort(axis=1)
    new = np.empty(keys.shape, bool)
    new[:, 0] = True
    np.not_equal(keys[:, 1:], keys[:, :-1], out=new[:, 1:])
    new &= keys >= 0
    row = np.broadcast_to(np.arange(n)[:, None], keys.shape)[new]
    found = keys[new]
    place = (row * groups + (found >> 40)) * BANKS + found % BANKS
    passes = np.bincount(place, minlength=n * groups * BANKS).reshape(n, groups, BANKS).max(axis=2)
    return passes.sum(axis=1), (passes > 0).sum(axis=1)


def _groups(addresses: Array, lanes: Array, groups: int) -> Array:
    """In which group each lane is served, (n, 32)."""
    own = np.broadcast_to(LANES.astype(np.int64) * groups // 32, addresses.shape)
    if groups == 1:
        return own
    pairs = groups // 2  # of neighbours
    alike = np.zeros((len(addresses), pairs), bool)
    for step in (1, 2):
        other = LANES ^ step
        same = (addresses == addresses[:, other]) | ~lanes | ~lanes[:, other]
        alike |= same.reshape(-1, pairs, 32 // pairs).all(axis=2)
    merged = np.repeat(alike, 32 // pairs, axis=1)
    return np.where(merged, own & ~1, own)


def sectors(addresses: Array, lanes: Array, nbytes: int, size: int = SECTOR) -> Array:
    """Aligned pieces of ``size`` bytes that each request touches, (n,): sectors, or lines with LINE. Accesses are
    aligned to their size and so lie in one piece each."""
    keys = np.where(lanes, addresses.astype(np.int64) // size, -1)
    keys.sort(axis=1)
    return (np.diff(keys, axis=1, prepend=-1) != 0).sum(axis=1)

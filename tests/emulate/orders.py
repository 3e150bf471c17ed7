"""Other orders of warps: the CPU device takes one, which lets those go first that are behind; a GPU may take any."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np

from turingas.emulate import flow
from turingas.emulate.machine import Wave
from turingas.emulate.splits import GROUP, RUNNING

Chosen = tuple[np.ndarray, int, int]
SELDOM = 0.15
MOST, FEW = 80, 8  # instructions that some go on before others have their turn; slow ones


@contextlib.contextmanager
def order(seed: int, slow: bool = False) -> Iterator[None]:
    """Launches within take an order that ``seed`` draws. Of each warp those threads go first that are behind, as ever,
    and up to a branch where others of the warp run, too: they share uniform registers, on which ptxas counts. The four
    warps of a group that stand at one place go together, as products of warp groups need them. ``slow``: of any three
    groups that follow each other, those have their turn seldom that the bits of the seed name."""
    rng = random.Random(seed)

    def choose(wave: Wave) -> Chosen:
        splits = wave.splits
        running = (splits.state == RUNNING).nonzero()[0]
        if not len(running):
            raise flow.deadlock(wave)
        if slow and rng.random() > SELDOM:
            quick = seed >> splits.warp[running] // GROUP % 3 & 1 == 0
            running = running[quick] if quick.any() else running
        behind = running[np.lexsort((splits.pc[running], splits.warp[running]))]
        first = behind[np.unique(splits.warp[behind], return_index=True)[1]]
        n = rng.choice(np.unique(splits.pc[first]).tolist())
        chosen = first[splits.pc[first] == n]
        groups = splits.warp[chosen] // GROUP
        if rng.random() < 0.6:
            some = np.unique(groups).tolist()
            chosen = chosen[np.isin(groups, rng.sample(some, rng.randint(1, len(some))))]
        most = FEW if slow and seed >> splits.warp[chosen[0]] // GROUP % 3 & 1 else MOST
        others = splits.pc[running][splits.pc[running] > n]
        limit = int(others.min()) if len(others) else len(wave.image.words)
        wave.alone = False
        splits.last[chosen] = wave.turn
        end = n + rng.randint(1, most)
        several = np.bincount(splits.warp[running])[splits.warp[chosen]] > 1
        return chosen, n, limit if several.any() else min(limit, end)

    with patch.object(Wave, "_choose", choose):
        yield

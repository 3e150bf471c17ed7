"""Wavefronts and sectors of requests, against counting one bank at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from turingas import memory_model
from turingas.emulate.arrays import Array

LANE = np.arange(32)
ALL = np.ones((1, 32), bool)


def one(addresses: Array, nbytes: int, lanes: Array = ALL) -> tuple[int, int]:
    """Wavefronts of one request, and those without conflicts."""
    addresses, lanes = np.asarray(addresses, np.uint32).reshape(1, 32), lanes.reshape(1, 32)
    needed, fewest = memory_model.wavefronts(addresses, lanes, nbytes)
    return int(needed[0]), int(fewest[0])


@pytest.mark.parametrize(
    ("addresses", "nbytes", "expected"),
    [
        (LANE * 4, 4, (1, 1)),
        (LANE * 0 + 64, 4, (1, 1)),  # all read one word
        (LANE * 8, 4, (2, 1)),
        (LANE * 128, 4, (32, 1)),
        (LANE * 132, 4, (1, 1)),  # a column of padded rows
        (LANE // 2 * 128, 4, (16, 1)),
        (LANE, 1, (1, 1)),  # four bytes of each word
        (LANE * 2, 2, (1, 1)),
        (LANE * 8, 8, (2, 2)),
        (LANE * 16, 8, (4, 2)),
        (LANE // 2 * 8, 8, (1, 1)),  # neighbours alike: half warps are served as one
        (LANE * 16, 16, (4, 4)),
        (LANE // 2 * 16, 16, (2, 2)),
        (LANE * 0, 16, (2, 2)),
        (LANE * 128, 16, (32, 4)),
        (LANE % 8 * 16, 16, (4, 4)),  # alike, but not neighbours
    ],
)
def test_patterns(addresses: Array, nbytes: int, expected: tuple[int, int]) -> None:
    """Textbook patterns."""
    assert one(addresses, nbytes) == expected


def test_only_loads_pack_their_results() -> None:
    """A store of the same takes all its groups; and one pair of lanes that is not alike is enough."""
    for step, address in ((1, LANE // 2 * 16), (2, LANE // 4 * 32 + LANE % 2 * 16)):
        assert one(address, 16) == (2, 2), step
        addresses = address.astype(np.uint32).reshape(1, 32)
        assert [int(v[0]) for v in memory_model.wavefronts(addresses, ALL, 16, load=False)] == [4, 4]
        addresses[0, 31] += 512
        assert int(memory_model.wavefronts(addresses, ALL, 16)[1][0]) == 4


def test_lanes_that_take_no_part_cost_nothing() -> None:
    """A conflict that only such lanes have is none; no lane, no wavefront."""
    few = LANE < 4
    assert one(LANE * 128, 4, few) == (4, 1)
    assert one(LANE * 16, 16, LANE < 8) == (1, 1)
    assert one(LANE * 4, 4, LANE < 0) == (0, 0)


def count_banks(addresses: Array, lanes: Array) -> int:
    """The slow way, 32 bits a lane."""
    return max(
        (len({a >> 2 for a, on in zip(addresses, lanes) if on and (a >> 2) % 32 == bank}) for bank in range(32)),
        default=0,
    )


def test_random_requests() -> None:
    """Many requests at once are as many single ones."""
    rng = np.random.default_rng(1)
    addresses = rng.integers(0, 300, (40, 32)) * 4
    lanes = rng.random((40, 32)) < 0.7
    needed, _ = memory_model.wavefronts(addresses.astype(np.uint32), lanes, 4)
    assert needed.tolist() == [count_banks(a, m) for a, m in zip(addresses, lanes)]


@pytest.mark.parametrize(
    ("place", "nbytes", "sectors", "lines"),
    [
        (lambda lane: lane * 4, 4, 4, 1),
        (lambda lane: lane * 4 + 4, 4, 5, 2),  # not aligned to a line
        (lambda lane: lane * 16, 16, 16, 4),
        (lambda lane: lane * 128, 4, 32, 32),
        (lambda lane: lane * 0, 4, 1, 1),
    ],
)
def test_global(place: Callable[[Array], Array], nbytes: int, sectors: int, lines: int) -> None:
    """Sectors of 32 bytes and lines of 128."""
    addresses = (np.uint64(0x7F0000000000) + place(LANE).astype(np.uint64)).reshape(1, 32)
    assert memory_model.sectors(addresses, ALL, nbytes).tolist() == [sectors]
    assert memory_model.sectors(addresses, ALL, nbytes, memory_model.LINE).tolist() == [lines]
    assert memory_model.sectors(addresses, ~ALL, nbytes).tolist() == [0]

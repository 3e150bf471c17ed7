"""The three memories: values in place, bounds, alignment, what a lane that takes no part may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from turingas.emulate.memory import BadAccess, Global, Local, Shared

SIZES = (1, 2, 4, 8, 16)


def addresses(base: int, step: int, count: int = 64) -> Any:
    """Addresses (count / 32, 32), uint64."""
    return (np.uint64(base) + np.arange(count, dtype=np.uint64) * np.uint64(step)).reshape(-1, 32)


def bad(call: Callable[[], Any], kind: str, *words: str) -> BadAccess:
    """The call must fail so."""
    with pytest.raises(BadAccess) as caught:
        call()
    assert caught.value.kind == kind, caught.value
    for word in words:
        assert word in str(caught.value)
    return caught.value


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("shift", [0, 16, 4])
def test_global_round_trip(nbytes: int, shift: int) -> None:
    """What is stored is loaded, and lies in the caller's array; also where that is not aligned to 16 bytes."""
    whole = np.zeros(64 * 16 + 64, np.uint8)
    array = whole[shift : shift + 64 * 16]
    memory = Global()
    at = addresses(memory.add(array, "a"), nbytes)
    rng = np.random.default_rng(nbytes)
    limit = 1 << 8 * min(nbytes, 4)
    words = [rng.integers(0, limit, (2, 32), np.uint32) for _ in range(max(1, nbytes // 4))]
    memory.store(at, nbytes, words)
    for got, word in zip(memory.load(at, nbytes), words):
        assert np.array_equal(got, word)
    expected = np.stack(words, axis=-1).reshape(-1).astype("<u4").view(np.uint8).reshape(64, -1)[:, :nbytes]
    assert np.array_equal(array[: 64 * nbytes], expected.reshape(-1))


def test_several_allocations_at_once() -> None:
    """Lanes of one access may go to different arrays."""
    memory = Global()
    a, b = np.arange(100, dtype=np.uint32), np.arange(1000, 1100, dtype=np.uint32)
    at = addresses(memory.add(a), 4)
    at[:, ::2] = addresses(memory.add(b), 4)[:, ::2]
    got = memory.load(at, 4)[0].reshape(-1)
    assert np.array_equal(got, np.where(np.arange(64) % 2, a[:64], b[:64]))
    memory.store(at, 4, [np.full((2, 32), 7, np.uint32)])
    assert (a[1:64:2] == 7).all() and (b[:64:2] == 7).all() and (a[::2] == np.arange(0, 100, 2)).all()


def test_masked_lanes_do_not_count() -> None:
    """They may hold any address, and write nothing."""
    memory = Global()
    array = np.arange(64, dtype=np.uint32)
    at = addresses(memory.add(array), 4)
    mask = np.zeros((2, 32), bool)
    mask[1, 3:9] = True
    at = np.where(mask, at, np.uint64(0xDEADBEEFDEADBEEF))
    assert np.array_equal(memory.load(at, 4, mask)[0][mask], array[35:41])
    memory.store(at, 4, [np.full((2, 32), 1, np.uint32)], mask)
    assert (array[35:41] == 1).all() and array.sum() == np.arange(64).sum() - np.arange(35, 41).sum() + 6


def test_later_lanes_win() -> None:
    """Of lanes with one address."""
    memory = Global()
    array = np.zeros(4, np.uint32)
    memory.store(addresses(memory.add(array), 0), 4, [np.arange(64, dtype=np.uint32).reshape(2, 32)])
    assert array.tolist() == [63, 0, 0, 0]


def test_global_errors() -> None:
    """Each says where and what is near, and leaves everything as it was."""
    memory = Global()
    array = np.zeros(64, np.uint32)
    base = memory.add(array, "left")
    other = memory.add(np.zeros(10, np.uint8), "right")
    ones = [np.ones((2, 32), np.uint32)]
    wrong = bad(lambda: memory.store(addresses(base + 4, 4), 4, ones), "out of bounds", "0 bytes behind", "'left'")
    assert (wrong.index, wrong.address) == (63, base + 256)
    assert not array.any()
    wrong = bad(lambda: memory.load(addresses(base + 2, 4), 4), "misaligned", "not aligned to 4")
    assert wrong.index == 0
    bad(lambda: memory.load(addresses(other - 8, 0), 4), "out of bounds", "8 bytes before", "'right'")
    bad(lambda: memory.load(addresses(other + 8, 0), 4), "out of bounds", "its last 2 bytes", "'right' (10 bytes")
    bad(lambda: memory.load(addresses(0, 0), 4), "out of bounds", "null pointer")
    bad(lambda: Global().load(addresses(1 << 40, 0), 4), "out of bounds", "nothing is allocated")
    assert len(memory.load(addresses(other, 0), 8)) == 2
    memory.remove(other)
    bad(lambda: memory.load(addresses(other + 4, 0), 4), "use after free", "'right'")
    with pytest.raises(KeyError):
        memory.view(other)


def test_the_red_zone_is_nobodys() -> None:
    """Neighbours in global memory are not neighbours in numpy."""
    memory = Global()
    first, second = memory.add(256), memory.add(256)
    assert first % 256 == second % 256 == 0 and second - first > 4096
    bad(lambda: memory.load(addresses(first + 256, 0), 4), "out of bounds")


def test_read_only_arrays() -> None:
    """May be read."""
    memory = Global()
    array = np.arange(64, dtype=np.uint32)
    array.flags.writeable = False
    at = addresses(memory.add(array, "fixed"), 4)
    assert memory.load(at, 4)[0][1, 31] == 63
    bad(lambda: memory.store(at, 4, [np.ones((2, 32), np.uint32)]), "read-only", "'fixed'")


def test_arrays_that_do_not_fit() -> None:
    """Are refused."""
    for array in (np.zeros((4, 4))[:, ::2], np.array([None])):
        with pytest.raises(ValueError, match="global memory"):
            Global().add(array)
    with pytest.raises(ValueError, match="-1 bytes"):
        Global().add(-1)


def test_empty_arrays() -> None:
    """Have an address and nothing behind it."""
    memory = Global()
    base = memory.add(np.zeros(0, np.float32), "none")
    bad(lambda: memory.load(addresses(base, 0), 4), "out of bounds", "'none' (0 bytes")


@pytest.mark.parametrize("nbytes", SIZES)
def test_never_written_global(nbytes: int) -> None:
    """Only memory that Global made itself, and only its bytes that nobody wrote."""
    memory = Global(track_writes=True)
    base = memory.add(1024)
    memory.store(addresses(base, nbytes, 32), nbytes, [np.zeros((1, 32), np.uint32)] * max(1, nbytes // 4))
    memory.load(addresses(base, nbytes, 32), nbytes)
    wrong = bad(lambda: memory.load(addresses(base + nbytes, nbytes, 32), nbytes), "never written", "read")
    assert wrong.index == 31
    memory.mark_written(base)
    memory.load(addresses(base + nbytes, nbytes, 32), nbytes)
    given = memory.add(np.zeros(64, np.uint32))
    memory.load(addresses(given, 4), 4)


@pytest.mark.parametrize("nbytes", SIZES)
def test_shared_round_trip(nbytes: int) -> None:
    """Each block has its own."""
    shared = Shared(3, 40 * 16)
    at = addresses(16, nbytes, 128).astype(np.uint32)
    at[:] = at[:1]
    blocks = np.array([0, 1, 1, 2])
    words = [np.arange(128, dtype=np.uint32).reshape(4, 32) + j for j in range(max(1, nbytes // 4))]
    shared.store(at, blocks, nbytes, words)
    got = shared.load(at, blocks, nbytes)
    for word, value in zip(words, got):
        assert np.array_equal(value[0], word[0]) and np.array_equal(value[3], word[3])
        assert np.array_equal(value[1], word[2]) and np.array_equal(value[2], word[2])  # the later warp of block 1
    assert not shared.array[:4].any()


def test_shared_errors() -> None:
    """Bounds are those of the block, though others lie behind it."""
    shared = Shared(2, 100)
    block = np.array([0])
    at = addresses(0, 4, 32).astype(np.uint32)
    wrong = bad(lambda: shared.load(at, block, 4), "out of bounds", "the block has 100 bytes")
    assert (wrong.index, wrong.address) == (25, 100)
    assert len(shared.load(at, block, 4, at < 100)) == 1
    bad(lambda: shared.store(at + np.uint32(2), block, 4, [at], at < 50), "misaligned")
    bad(lambda: shared.load(at - np.uint32(8), block, 4), "out of bounds", "8 bytes below 0")
    bad(lambda: Shared(1, 0).load(at, block, 4), "out of bounds", "the block has none")
    assert not shared.array.any()


def test_shared_fill_and_never_written() -> None:
    """What it holds at first, and the watch over it."""
    shared = Shared(2, 64, fill=0xA5, track_writes=True)
    at, blocks = addresses(0, 4, 32).astype(np.uint32) % np.uint32(64), np.array([1])
    assert (shared.array == 0xA5A5A5A5).all()
    bad(lambda: shared.load(at, blocks, 4), "never written")
    shared.store(at, blocks, 4, [at])
    assert np.array_equal(shared.load(at, blocks, 4)[0], at)
    bad(lambda: shared.load(at, np.array([0]), 4), "never written")


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("same", [True, False])
def test_local_round_trip(nbytes: int, same: bool) -> None:
    """Each thread has its own, at one offset or at many."""
    local = Local(4, 256)
    at = np.full((2, 32), 32, np.uint32) if same else (np.arange(64, dtype=np.uint32) % 7 * 16).reshape(2, 32)
    rows = np.array([1, 3])
    limit = 1 << 8 * min(nbytes, 4)
    rng = np.random.default_rng(0)
    words = [rng.integers(0, limit, (2, 32), np.uint32) for _ in range(max(1, nbytes // 4))]
    local.store(at, rows, nbytes, words)
    for got, word in zip(local.load(at, rows, nbytes), words):
        assert np.array_equal(got, word)
    for w, r in enumerate(rows):
        for lane in (0, 17):
            whole = np.ascontiguousarray(local.words[:, r, lane]).view(np.uint8)
            begin = int(at[w, lane])
            expected = b"".join(int(word[w, lane]).to_bytes(4, "little") for word in words)[:nbytes]
            assert bytes(whole[begin : begin + nbytes]) == expected
            assert not whole[:begin].any() and not whole[begin + nbytes :].any()
    assert not local.words[:, [0, 2]].any()


def test_local_masked_and_errors() -> None:
    """As the others."""
    local = Local(1, 64)
    at = np.full((1, 32), 60, np.uint32)
    at[0, 5] = 64
    wrong = bad(lambda: local.store(at, slice(None), 4, [at]), "out of bounds", "the thread has 64 bytes")
    assert wrong.index == 5 and not local.words.any()
    mask = at == 60
    local.store(at, slice(None), 4, [at], mask)
    assert (local.words[15, 0][mask[0]] == 60).all() and local.words[15, 0, 5] == 0
    bad(lambda: local.load(np.full((1, 32), 4, np.uint32), slice(None), 8), "misaligned", "8 bytes")
    below = np.full((1, 32), 0xFFFFFFF0, np.uint32)
    bad(lambda: local.load(below, slice(None), 4), "out of bounds", "16 bytes below 0")
    bad(lambda: Local(1, 64, track_writes=True).load(at, slice(None), 4, mask), "never written")

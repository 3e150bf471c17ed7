"""What came of a comparison: arrays against what they should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


#: What outputs are filled with: in each of f16, f32 and f64 this pattern, repeated, is a NaN that no arithmetic makes.
POISON = 0xFFFA

#: The largest relative L2 error, by the type of the array. Integers must be equal.
TOLERANCE = {"f2": 1e-3, "f4": 1e-6, "f8": 1e-12}

#: How many times the tolerance a reference may be off where the float64 result is known: some are less accurate by
#: nature (Winograd F(4x4,3x3)), and what counts is the kernel.
REFERENCE = 100

#: How many times the tolerance a single element may be off, in units of the root mean square of what is wanted: a
#: few wrong elements are lost in the norm of a large array.
SINGLE = 100


def poisoned(shape: Sequence[int], dtype: Any = np.float32) -> Array:
    """A new array full of POISON."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    pattern = np.full(-(-size // 2), POISON, "<u2").view(np.uint8)[:size]
    return np.frombuffer(bytearray(pattern), kind).reshape(shape)


def unwritten(array: Array) -> Array:
    """Where an array still holds the pattern of ``poisoned``, as bool."""
    flat = np.ascontiguousarray(array).reshape(-1)
    same = flat.view(np.uint8) == poisoned(flat.shape, flat.dtype).view(np.uint8)
    return np.asarray(same.reshape(flat.size, flat.itemsize).all(axis=1).reshape(array.shape))


@dataclass(frozen=True)
class Row:
    """An array of one side against what is wanted. ``worst`` is the index of the element that is furthest off, by
    ``max_abs``; ``relative`` the relative L2 error, both infinite where a NaN or infinity is wrong. ``why``: "" or
    what is wrong with it."""

    array: str
    name: str
    against: str
    max_abs: float
    relative: float
    worst: tuple[int, ...]
    found: float
    wanted: float
    why: str = ""


@dataclass
class Result:
    """A comparison. ``what`` says of what; ``wrong`` lists what is not as it should be, one line each."""

    what: str
    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all agree."""
        return not self.wrong

    def lines(self) -> Iterator[str]:
        """The table."""
        yield self.what
        titles = [f"{row.array}: {row.name} - {row.against}" for row in self.rows]
        width = max(map(len, titles), default=0)
        yield f"{'':{width}}  {'max abs':>9}  {'relative L2':>11}  {'found':>12}  {'wanted':>12}  worst element"
        for title, row in zip(titles, self.rows):
            index = ",".join(map(str, row.worst))
            yield (
                f"{title:{width}}  {row.max_abs:9.2e}  {row.relative:11.2e}  {row.found:12.6g}  {row.wanted:12.6g}  "
                f"{row.array}[{index}]"
            )
        yield from ("mismatch: " + text for text in self.wrong)
        if self.ok:
            yield "match"

    def json(self) -> dict[str, Any]:
        """The same for programs; None where a number is NaN or infinite, for JSON has neither."""
        rows = [
            {key: None if isinstance(one, float) and not np.isfinite(one) else one for key, one in vars(row).items()}
            for row in self.rows
        ]
        return {"what": self.what, "ok": self.ok, "rows": rows, "wrong": self.wrong}


def allowed(array: Array, tolerance: float | None) -> float:
    """The tolerance, or what TOLERANCE says of the array's type."""
    return TOLERANCE.get(array.dtype.str[1:], 0.0) if tolerance is None else tolerance


def compare(array: str, name: str, found: Array, against: str, wanted: Array, tolerance: float) -> Row:
    """One array against another of the same shape. ``tolerance``: the relative L2 error that is allowed, inf: any."""
    if not found.size:
        return Row(array, name, against, 0.0, 0.0, (), 0.0, 0.0)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        off = np.abs(a - b)
        off[~np.isfinite(off)] = np.inf
        off[(found == wanted) | (np.isnan(a) & np.isnan(b))] = 0.0
        off[(off == 0) & (a == b) & (found != wanted)] = 1.0  # 64-bit integers that float64 cannot tell apart
        scale = float(np.linalg.norm(b[np.isfinite(b)]))
        norm = float(np.linalg.norm(off.reshape(-1)))
    worst = int(off.argmax())
    index = tuple(int(i) for i in np.unravel_index(worst, off.shape))
    max_abs = float(off.reshape(-1)[worst])
    relative = norm / scale if scale else (np.inf if norm else 0.0)
    single = SINGLE * tolerance * scale / np.sqrt(off.size)
    why = ""
    if max_abs == np.inf and tolerance < np.inf:
        why = f"{np.count_nonzero(np.isinf(off))} of {off.size} elements are NaN or infinite on one side alone"
    elif relative > tolerance:
        why = f"a relative L2 error of {relative:.2e}, more than {tolerance:.1e}"
    elif max_abs > max(single, tolerance * abs(float(b[index]))):
        why = f"an element is off by {max_abs:.2e}, more than {single:.2e}"
    return Row(array, name, against, max_abs, relative, index, float(a[index]), float(b[index]), why)


@dataclass(frozen=True)
class Sides:
    """One array: what the kernel and the reference made of it, and what it should be; None: not asked for."""

    array: str
    found: Array
    expected: Array | None
    exact: Array | None
    output: bool = True  # it was poisoned


def judge(
    what: str, name: str, other: str, sides: Sequence[Sides], tolerance: float | None, least: float = 0.0
) -> Result:
    """Compare all arrays of ``name``, the kernel, and ``other``, the reference, which may be off by ``least``."""
    result = Result(what)
    for side in sides:
        pairs = [(name, side.found, "float64", side.exact), (other, side.expected, "float64", side.exact),
                 (name, side.found, other, side.expected)]  # fmt: skip
        for who, mine, against, wanted in pairs:
            if mine is None or wanted is None:
                continue
            limit = allowed(mine, tolerance)
            if who == other:
                limit = max(REFERENCE * limit, least)
            elif side.exact is not None and against == other:
                limit = np.inf  # both have been judged
            row = compare(side.array, who, mine, against, wanted, limit)
            result.rows.append(row)
            if row.why:
                index = ",".join(map(str, row.worst))
                result.wrong.append(f"{row.array} of {who}, worst at [{index}], against {against}: {row.why}")
        if side.output:
            result.wrong += _left(side, name)
    return result


def _left(side: Sides, name: str) -> Iterator[str]:
    left = unwritten(side.found)
    certain = side.found.dtype.kind == "f" or side.found.itemsize >= 4  # else POISON may be a result: -6 in 16 bits
    nothing = left.size > 0 and left.all() and certain
    if side.expected is not None:
        left &= ~unwritten(side.expected)
    elif side.exact is not None:
        left &= ~np.isnan(side.exact)
    if count := np.count_nonzero(left):
        index = ",".join(str(int(i)) for i in np.argwhere(left)[0])
        yield f"{side.array} of {name}: {count} of {left.size} elements were never written, the first [{index}]"
    elif nothing:
        yield f"{side.array} of {name}: nothing was written, so nothing was compared"

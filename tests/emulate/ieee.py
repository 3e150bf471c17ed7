"""Floating point by the book, with fractions: slow, simple, and independent of the emulator.

A number is its bits. A format is (bits of exponent, bits of fraction).
"""

from __future__ import annotations

from fractions import Fraction

F16, BF16, F32, F64 = (5, 10), (8, 7), (8, 23), (11, 52)
INF, NAN = "inf", "nan"
Format = tuple[int, int]


def parts(bits: int, form: Format) -> tuple[int, Fraction | str]:
    """Sign (1 or -1), and the size: a fraction, INF or NAN."""
    width, digits = form
    sign = -1 if bits >> width + digits & 1 else 1
    exponent, fraction = bits >> digits & (1 << width) - 1, bits & (1 << digits) - 1
    if exponent == (1 << width) - 1:
        return sign, NAN if fraction else INF
    bias = (1 << width - 1) - 1
    if exponent == 0:
        return sign, Fraction(fraction) * Fraction(2) ** (1 - bias - digits)
    return sign, Fraction(fraction + (1 << digits)) * Fraction(2) ** (exponent - bias - digits)


def rounded(value: Fraction, form: Format, mode: str = "RN") -> int:
    """The bits of a number that is not zero, rounded: RN, RM, RP or RZ."""
    width, digits = form
    bias = (1 << width - 1) - 1
    negative, size = value < 0, abs(value)
    exponent = 1 - bias  # of the smallest normal number, and of denormals
    scale = size.numerator.bit_length() - size.denominator.bit_length()
    if scale - 1 > exponent:
        exponent = scale - 1
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    units = size / Fraction(2) ** (exponent - digits)
    whole, rest = int(units), units - int(units)
    if mode == "RN":
        whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1)
    elif mode == ("RM" if negative else "RP"):
        whole += rest > 0
    # carries run from the fraction into the exponent
    bits = whole if exponent == 1 - bias else whole + (exponent + bias - 1 << digits)
    if exponent == 1 - bias and whole >= 1 << digits:
        bits = whole
    infinite = ((1 << width) - 1) << digits
    if bits >= infinite:
        away = mode == "RN" or mode == ("RM" if negative else "RP")
        bits = infinite if away else infinite - 1
    return bits | negative << width + digits


def zero(form: Format, sign: int) -> int:
    """A zero of that sign."""
    return (sign < 0) << sum(form)


def flushed(bits: int, form: Format) -> int:
    """Denormals become zeros of their sign."""
    width, digits = form
    return bits & 1 << width + digits if bits >> digits & (1 << width) - 1 == 0 else bits


def infinity(form: Format, sign: int) -> int:
    """An infinity of that sign."""
    return zero(form, sign) | ((1 << form[0]) - 1) << form[1]


def fma(a: int, b: int, c: int, form: Format, mode: str = "RN", fmz: bool = False) -> int | None:
    """a * b + c, or None for a NaN."""
    (sign_a, x), (sign_b, y), (sign_c, z) = (parts(v, form) for v in (a, b, c))
    sign = sign_a * sign_b
    if fmz and 0 in (x, y):
        sign, x, y = 1, Fraction(0), Fraction(0)
    if NAN in (x, y, z) or (INF in (x, y) and 0 in (x, y)):
        return None
    if INF in (x, y):
        return None if z == INF and sign_c != sign else infinity(form, sign)
    if z == INF:
        return infinity(form, sign_c)
    total = sign * x * y + sign_c * z  # type: ignore[operator]
    if total:
        return rounded(total, form, mode)
    same = x * y == 0 and z == 0 and sign == sign_c  # type: ignore[operator]
    return zero(form, sign if same else -1 if mode == "RM" else 1)


def finished(bits: int | None, form: Format, nan: int, ftz: bool = False, sat: bool = False) -> int:
    """A result flushed and clamped to [0, 1], with ``nan`` for None."""
    if bits is None:
        return 0 if sat else nan
    if ftz:
        bits = flushed(bits, form)
    if sat:
        one = ((1 << form[0] - 1) - 1) << form[1]
        return 0 if bits >> sum(form) else min(bits, one)
    return bits


def relation(a: int, b: int, form: Format) -> str:
    """How two numbers compare: "<", "=", ">" or "?" with a NaN."""
    (sign_a, x), (sign_b, y) = parts(a, form), parts(b, form)
    if NAN in (x, y):
        return "?"
    huge = Fraction(2) ** 2000
    left, right = (s * (huge if v == INF else v) for s, v in ((sign_a, x), (sign_b, y)))  # type: ignore[operator]
    return "<" if left < right else ">" if left > right else "="


#: for which relations a comparison is true
COMPARISONS = {
    "F": "", "LT": "<", "EQ": "=", "LE": "<=", "GT": ">", "NE": "<>", "GE": ">=", "NUM": "<=>",
    "NAN": "?", "LTU": "<?", "EQU": "=?", "LEU": "<=?", "GTU": ">?", "NEU": "<>?", "GEU": ">=?", "T": "<=>?",
}  # fmt: skip


def chosen(a: int, b: int, form: Format, least: bool, nan: int, nan_wins: bool = False) -> int:
    """The lesser or the greater one; -0 < +0, NaNs lose or win."""
    no_a, no_b = (parts(v, form)[1] == NAN for v in (a, b))
    if (no_a and no_b) or (nan_wins and (no_a or no_b)):
        return nan
    if no_a or no_b:
        return b if no_a else a
    order = relation(a, b, form)
    if order == "=":
        return max(a, b) if least else min(a, b)  # zeros: the one with the sign is the lesser
    return a if (order == "<") == least else b

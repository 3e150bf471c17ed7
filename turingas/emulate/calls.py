"""What the driver provides and kernels call: printf and assert.

The calling convention was read off what NVRTC 12.9 makes for sm_75 and sm_90: arguments from R4 on, 64 bits in pairs;
the return address in R20 and R21; the result in R4. vprintf gets the format and a buffer in local memory in which the
arguments stand, each aligned to its size. Formats: the CUDA C++ Programming Guide, "Formatted Output".
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.cohort import Cohort, State
from turingas.emulate.errors import DeviceError
from turingas.emulate.memory import LOCAL_WINDOW, SHARED_WINDOW, BadAccess

RETURN = 20  # register of the return address
LONGEST = 1 << 16  # bytes of a string
SPEC = re.compile(rb"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|L|j|z|t)?([diouxXcsaAeEfFgGp%])")
BITS = {b"": 32, b"h": 16, b"l": 64, b"ll": 64}


class Thread:
    """One thread that calls: its arguments and memory."""

    def __init__(self, k: Cohort, row: int, lane: int) -> None:
        self.wave, self.k, self.row, self.lane = k.wave, k, row, lane

    def word(self, register: int) -> int:
        return int(self.wave.R[register][self.k.warps[self.row], self.lane])

    def wide(self, register: int) -> int:
        return self.word(register) | self.word(register + 1) << 32

    def read(self, address: int, size: int) -> int:
        """An unsigned number of 1, 4 or 8 bytes at a generic address. BadAccess for what is none."""
        window, low = address >> 32, address & 0xFFFFFFFF
        warp = int(self.k.warps[self.row])
        if window == LOCAL_WINDOW:
            mask = np.zeros((1, 32), bool)
            mask[0, self.lane] = True
            at = np.full((1, 32), low, np.uint32)
            words = self.wave.local.load(at, slice(warp, warp + 1), size, mask)
            found = [int(word[0, self.lane]) for word in words]
        elif window == SHARED_WINDOW:
            words = self.wave.shared.load(np.array([[low]], np.uint32), self.wave.block_of[warp : warp + 1], size)
            found = [int(word.flat[0]) for word in words]
        else:
            found = [int(word.flat[0]) for word in self.wave.memory.load(np.array([[address]], np.uint64), size)]
        return sum(word << 32 * n for n, word in enumerate(found)) & (1 << 8 * size) - 1

    def string(self, address: int) -> bytes:
        """The bytes up to the first 0."""
        text = bytearray()
        while len(text) < LONGEST and (byte := self.read(address + len(text), 1)):
            text.append(byte)
        return bytes(text)


def vprintf(t: Thread) -> int:
    """Print. The result is the number of arguments, -1 without a format."""
    if not (at := t.wide(4)):
        return -1
    text, count = formatted(t, t.string(at), t.wide(6))
    t.wave.printed.append(text)
    return count


def formatted(t: Thread, form: bytes, buffer: int) -> tuple[str, int]:
    """The text of a format whose arguments stand in ``buffer``, and their number."""
    count, at = 0, buffer

    def take(size: int) -> int:
        nonlocal count, at
        at = -(-at // size) * size
        value = t.read(at, size)
        count, at = count + 1, at + size
        return value

    def one(found: re.Match[bytes]) -> bytes:
        flags, width, precision, size, kind = (part or b"" for part in found.groups())
        if kind == b"%":
            return b"%" if found[0] == b"%%" else found[0]  # an H100 leaves "%5%" as it is
        # What the guide does not name misleads the driver about all that follows: an H100 printed 5 and rubbish for the
        # two arguments of "%zu %d", and so for hh, j, t and .*
        lacks = f"the sizes h, l and ll, not {size.decode()}" if size not in BITS else ""
        if lacks or precision == b"*":
            lacks = lacks or "a precision of digits, not *"
            raise fault(t, "unsupported", f"printf: {found[0].decode()}: CUDA has {lacks}")
        width = b"%d" % signed(take(4), 32) if width == b"*" else width
        shape = (b"%" + flags + width + (b"." + precision if found[3] else b"")).decode()
        return converted(t, shape, kind.decode(), BITS[size], take).encode("utf-8", "surrogateescape")

    return SPEC.sub(one, form).decode("utf-8", "surrogateescape"), count


def converted(t: Thread, shape: str, kind: str, bits: int, take: Callable[[int], int]) -> str:
    """One argument, as C prints it."""
    if kind in "aAeEfFgG":
        bits_of = take(8)
        number = float(np.uint64(bits_of).view(np.float64))
        if number != number and bits_of >> 63 and kind not in "aA":  # C says so, Python does not
            return (re.sub(r"[0+ #]|\..*", "", shape) + "s") % ("-NAN" if kind.isupper() else "-nan")
        if kind not in "aA":
            return (shape + kind) % number
        text = hexadecimal(number, re.search(r"\.(\d*)", shape))
        return (re.sub(r"[#0]|\..*", "", shape) + "s") % (text.upper() if kind == "A" else text)
    value = take(8 if bits == 64 or kind in "sp" else 4)
    if kind == "s":
        text = t.string(value).decode("utf-8", "surrogateescape") if value else "(null)"
        return (shape + "s") % text
    if kind == "c":
        return (shape + "c") % chr(value & 0xFF)
    if kind == "p":
        return (shape + "s") % f"{value:#x}"
    value &= (1 << bits) - 1
    if kind in "di":
        return (shape + "d") % signed(value, bits)
    if kind == "o" and "#" in shape:
        return (shape.replace("#", "") + "s") % f"0{value:o}"
    return (shape + kind.replace("u", "d")) % value


def hexadecimal(number: float, precision: re.Match[str] | None) -> str:
    """As %a has it: with as many digits as ``precision`` says, or as there are."""
    text = number.hex()
    found = re.fullmatch(r"(-?0x)(\d)\.([0-9a-f]+)(p.*)", text)
    if found is None:  # infinite, or none
        return text
    begin, first, digits, end = found.groups()
    if precision is None:
        digits = digits.rstrip("0")
    elif (most := int(precision[1] or 0)) >= len(digits):
        digits = digits.ljust(most, "0")
    else:
        whole, unit = int(first + digits, 16), 16 ** (len(digits) - most)
        whole = (whole + unit // 2 - (whole // unit % 2 == 0 and whole % unit == unit // 2)) // unit
        first, digits = f"{whole >> 4 * most:x}", f"{whole & (1 << 4 * most) - 1:0{most}x}" if most else ""
    return begin + first + ("." + digits if digits else "") + end


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def assertfail(t: Thread) -> int:
    """The end of the kernel, in the words of CUDA's runtime."""
    message, file, function = (t.string(t.wide(at)).decode("utf-8", "replace") for at in (4, 6, 10))
    said = f"{file}:{t.word(8)}: {function}: assertion `{message}` failed"
    raise fault(t, "assert", said)


def fault(t: Thread, kind: str, message: str) -> DeviceError:
    """With the place of the call: the instruction in front of the one that it returns to."""
    block, thread = t.wave.who(int(t.k.warps[t.row]), t.lane)
    return DeviceError(kind, message, t.wave.image.place(t.wide(RETURN) // 16 - 1), block, thread)


CALLS: dict[str, Callable[[Thread], int]] = {"vprintf": vprintf, "__assertfail": assertfail}


def call(k: Cohort, name: str) -> Array:
    """Carry out a call for all lanes of ``k``, one after the other. Where each returns to, in bytes, (n, 32).

    DeviceError for what the call ends, and for a function that this device does not have.
    """
    wave: State = k.wave
    lanes = k.lanes
    targets = np.zeros(lanes.shape, np.int64)
    for row, lane in zip(*map(np.ndarray.tolist, lanes.nonzero())):
        thread = Thread(k, row, lane)
        if name not in CALLS:
            raise fault(thread, "unsupported", f"the kernel calls {name}, which the CPU device does not have")
        try:
            result = CALLS[name](thread)
        except BadAccess as error:
            raise fault(thread, error.kind, f"{name}: {error.message}") from None
        wave.R[4][k.warps[row], lane] = result & 0xFFFFFFFF
        targets[row, lane] = thread.wide(RETURN)
    return targets

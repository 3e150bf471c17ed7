"""The types that a parameter of a kernel may have, in source, in cubins and at a launch."""

from __future__ import annotations

#: types that a parameter may have, and their bytes; ``f32*`` is a pointer to f32, ``ptr`` one to anything
TYPES = {
    **{f"{kind}{bits}": bits // 8 for kind in "us" for bits in (8, 16, 32, 64)}, "f16": 2, "f32": 4, "f64": 8, "ptr": 8,
}  # fmt: skip


def type_size(text: str) -> int | None:
    """The bytes of a parameter of the type ``text``; None if there is no such type."""
    return TYPES["ptr"] if text.endswith("*") and text[:-1] in TYPES else TYPES.get(text)

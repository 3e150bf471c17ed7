"""What a file is that is no cubin: said with a hint, for it is easily mistaken for one."""

from __future__ import annotations

import re

EM_CUDA = 190
EXTRACT = "`turingas extract FILE -o FOLDER` takes the cubins out of it"
PTX = re.compile(rb"(?:\s|//[^\n]*\n)*\.version\s+\d+\.\d+\s[^;{]*?\.target\s+sm_")
#: how files begin that hold device code, or are mistaken for files that do
MAGIC = (
    (b"\x50\xed\x55\xba", "a fatbin", EXTRACT),
    (b"!<arch>\n", "a library of objects", EXTRACT),
    (b"BC\xc0\xde", "LLVM bitcode", "compile it to a cubin first"),
    (b"PK\x03\x04", "a zip archive", ""),
    (b"\x1f\x8b", "compressed by gzip", ""),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", ""),
)


def other(data: bytes | memoryview) -> tuple[str, str]:
    """What ``data`` is, if it is known and neither a cubin nor source, and a hint; ("", "") otherwise."""
    start = bytes(data[:4096])
    if start.startswith(b"\x7fELF"):
        machine = int.from_bytes(start[18:20], "little")
        if len(start) >= 20 and start[4:6] == b"\x02\x01" and machine != EM_CUDA:
            return f"an object or program of the host (ELF machine {machine}, not CUDA, {EM_CUDA})", EXTRACT
        return "", ""
    for magic, what, hint in MAGIC:
        if start.startswith(magic):
            return what, hint
    if PTX.match(start):
        return "PTX", "`ptxas -arch=sm_80 FILE -o FILE.cubin` compiles it; turingas assembles SASS"
    return "", ""

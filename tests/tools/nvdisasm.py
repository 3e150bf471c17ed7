"""Ask nvdisasm for the text of raw words, and take the words out of a cubin.

The texts of this project are compared with nvdisasm 13.5.37 (pip install nvidia-cuda-nvdisasm==13.5.37), or with the
file that TURINGAS_NVDISASM names. It does not know sm_70: there nvdisasm 12 is asked, which the wheel of triton 3.1
to 3.3 carries, or which TURINGAS_NVDISASM12 names.
"""

from __future__ import annotations

import importlib.util
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.tools.nvrtc import package_folders

LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*(?:/\*|$)")
NOP = 0x000FC000000000000000000000007918
ROUNDS = 99  # in which it may refuse words


def program_path(arch: str) -> Path | None:
    """Find the nvdisasm that knows arch; None where it is not installed."""
    old = arch in ("sm_70", "sm_72")
    if named := os.environ.get("TURINGAS_NVDISASM12" if old else "TURINGAS_NVDISASM"):
        return Path(named) if Path(named).is_file() else None
    if old:
        spec = importlib.util.find_spec("triton")
        places = (spec.submodule_search_locations if spec else None) or ()
        folders = [Path(place, "backends", "nvidia", "bin") for place in places]
    else:
        folders = [folder / "bin" for folder in package_folders("cu13")]
    return next((f / "nvdisasm" for f in folders if (f / "nvdisasm").is_file()), None)


def _listing(words: Sequence[int], arch: str) -> tuple[dict[int, str], str]:
    """The text of each word by its number, the first at address 0, and what it complains of."""
    path = program_path(arch)
    if path is None:
        raise FileNotFoundError(f"no nvdisasm for {arch}")
    if not os.access(path, os.X_OK):
        path.chmod(0o755)  # some installers leave it without the bit
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "words.bin")
        file.write_bytes(b"".join(word.to_bytes(16, "little") for word in words))
        command = [str(path), "-b", arch.replace("sm_", "SM"), str(file)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = (LINE.search(line) for line in run.stdout.splitlines())
    return {int(match[1], 16) // 16: match[2] for match in lines if match}, run.stderr


def texts(words: Sequence[int], arch: str) -> list[str]:
    """Return nvdisasm's text of each word, the first at address 0. One illegal word makes it refuse them all."""
    found, complaint = _listing(words, arch)
    if len(found) != len(words):
        raise ValueError(f"nvdisasm printed {len(found)} of {len(words)} words: {complaint[:500]}")
    return list(found.values())


def legal_texts(words: Sequence[int], arch: str) -> list[str]:
    """The same, with "" for words that it refuses or leaves out."""
    words, refused, found = list(words), set[int](), dict[int, str]()
    for _ in range(ROUNDS):
        found, complaint = _listing(words, arch)
        bad = {int(at, 16) // 16 for at in re.findall(r"at address 0x([0-9a-f]+)", complaint)}
        if found or not bad:
            break
        refused |= bad
        for n in bad:
            words[n] = NOP
    return ["" if n in refused else found.get(n, "") for n in range(len(words))]


def code(cubin: bytes) -> Iterator[tuple[str, list[int]]]:
    """Yield the name and the words of each .text section of a cubin."""
    table, count, names = *struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<HH", cubin, 0x3C)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + 64 * n) for n in range(count)]
    for name, kind, _, _, offset, size in headers:
        start = headers[names][4] + name
        text = cubin[start : cubin.index(b"\0", start)].decode()
        if text.startswith(".text.") and kind == 1:
            section = cubin[offset : offset + size]
            yield text[6:], [int.from_bytes(section[at : at + 16], "little") for at in range(0, size, 16)]

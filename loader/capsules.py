"""Which sections of a cubin does a driver want? ``python -m loader.capsules`` leaves them out, one by one, and runs.

The cubin is what NVRTC makes of a kernel of one line, for the device's architecture. Of each variant the program says
whether it runs, and which code ran: in the last ones the code is another one than the capsule tells of (docs/cubin.md).
A section is left out by its header alone (SHT_NULL, no name) and its bytes: all else keeps its place and number.
Each variant has a process of its own. On the CPU device, which reads code and .nv.info alone, all of them run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

import loader
from loader import cuda, nvrtc
from turingas.cubin import elf as e
from turingas.cubin.cubin import Cubin
from turingas.cubin.elf import Elf, Section
from turingas.cubin.read import is_code
from turingas.cubin.split import without_capsule
from turingas.errors import LaunchError

OLD, NEW = 0x01234567, 0x07654321  # what the code stores, and what it does when it is changed
SOURCE = f'extern "C" __global__ void store(int* to) {{ to[threadIdx.x] = {OLD}; }}'
NEEDED = ("", ".shstrtab", ".strtab", ".symtab", ".text.store", ".nv.info", ".nv.info.store", ".nv.constant0.store")
ALL, OWN = "the capsule", "the capsule, as turingas does"
STALE, BARE = "code changed, capsule kept", "code changed, none"


def variants(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """What is left out of ``cubin``, or changed, and the cubin without it."""
    yield "nothing", cubin
    sections = Elf.from_bytes(cubin).sections
    for at, section in enumerate(sections):
        if section.name not in NEEDED:
            about = {n for n, one in enumerate(sections) if one.type in (e.SHT_REL, e.SHT_RELA) and one.info == at}
            yield section.name, without(cubin, {at, *about})
    capsule = {at for at, section in enumerate(sections) if section.flags & e.SHF_CAPSULE}
    if capsule:
        yield ALL, without(cubin, capsule)
        yield OWN, without_capsule(Cubin.from_bytes(cubin), warn=False)
        yield STALE, changed(cubin)
    yield BARE, changed(without(cubin, capsule))


def without(cubin: bytes, numbers: set[int]) -> bytes:
    """``cubin`` without the sections of these numbers. All others keep their places and numbers."""
    elf = Elf.from_bytes(cubin)
    for at in numbers:
        elf.sections[at] = Section("", e.SHT_NULL, align=0)
    return elf.to_bytes()


def changed(cubin: bytes) -> bytes:
    """``cubin`` with code that stores NEW; what else it says stays."""
    elf = Elf.from_bytes(cubin)
    code = next(section for section in elf.sections if is_code(section))
    old, new = (number.to_bytes(4, "little") for number in (OLD, NEW))
    if bytes(code.data).count(old) != 1:
        raise LaunchError("the number that the kernel stores is not in its code")
    code.data = bytes(code.data).replace(old, new)
    return elf.to_bytes()


def run(cubin: bytes, device: str) -> str:
    """What comes of a launch, in words."""
    try:
        with loader.load(cubin, device) as module:
            found = np.zeros(32, np.int32)
            there = None if device == "cpu" else cuda.Buffer.of(found, device)
            module.kernel("store").launch(1, 32, found if there is None else there)
            found = found if there is None else there.numpy()
    except Exception as error:  # whatever the driver says: it is what the experiment is about
        return f"{type(error).__name__}: {error}"
    texts = {OLD: "runs", NEW: "runs the changed code"}
    return texts.get(int(found[0]), "wrong") if (found == found[0]).all() else "wrong"


def apart(cubin: bytes, device: str) -> str:
    """The same in a process of its own: a driver may take its process along."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(run, cubin, device).result()
        except BrokenProcessPool:
            return "the process ended"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loader.capsules", description=__doc__.splitlines()[0])
    parser.add_argument("--device", help='"cpu" or "cuda:N". Default: a GPU if there is one')
    parser.add_argument("--arch", help="of the cubin. Default: the GPU's; sm_100 on the CPU device")
    parser.add_argument("-o", "--output", type=Path, help="JSON to write: what came of each variant")
    asked = parser.parse_args(words)
    device = asked.device or ("cuda:0" if cuda.count() else "cpu")
    arch = asked.arch or ("sm_100" if device == "cpu" else cuda.device_named(device).arch)
    cubin = nvrtc.compile(SOURCE, arch)
    found = {}
    for name, data in variants(cubin):
        found[name] = run(data, device) if device == "cpu" else apart(data, device)
        print(f"{name:34} {found[name]}", flush=True)
    if asked.output:
        about = {"device": device, "arch": arch, "nvrtc": ".".join(map(str, nvrtc.version())), "without": found}
        asked.output.write_text(json.dumps(about, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Which instructions reach the shared memory of another block: ``python -m tests.gpu.reach [WORD ...] [--json FILE]``.

An address of shared memory has the rank of its block in bits 24 and up, as compilers write them (SR_CgaCtaId). Each
kernel of tests/kernels/reach.cu runs one instruction in one block of a cluster of two, with the bits of its own or of
the other block; what both blocks have then, or the GPU's error, is compared with what the CPU device says. Each case is
a process of its own, with a time limit of its own; a line for each as it is known, and FILE has all that are: with it
the next run goes on, and asks only what has no answer yet. Exit code 1 if one differs or has none.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import loader
from loader.cuda import Buffer
from tests.gpu.apart import apart
from tests.tools import nvrtc
from turingas.emulate import DeviceError

SOURCE = Path(__file__).parents[1] / "kernels" / "reach.cu"
SHARED = (
    "load", "store", "load_bytes", "load_4", "store_4", "atomic_add", "atomic_exchange", "reduce_add",
    "compare_and_swap", "load_matrix", "load_matrices", "store_matrix", "store_matrices", "copy_4", "copy_16",
    "arrive_behind_copies", "make_mbarrier", "test_mbarrier", "try_mbarrier", "arrive", "expect",
    "arrive_in_cluster", "expect_in_cluster", "bulk_store", "bulk_reduce", "tile_store",
)  # fmt: skip
MBARRIER = slice(128, 130)  # words of what each block gives
TWO = ("bulk_load", "bulk_copy", "tile_load")  # with a second address
FAULT = r"CUDA_ERROR_\w+ \(7[01]\d\)"  # what the driver says of a kernel that ended with an error
Case = tuple[str, int, int, int]  # kernel, the block that acts, whose bits its first and its second address have


@functools.cache
def cubin() -> bytes:
    return nvrtc.compile_source(SOURCE.read_text(), "sm_90a", (), name="reach.cu")


def cases() -> list[Case]:
    one = [(name, acting, to, to) for name in SHARED for acting, to in ((1, 1), (1, 0), (0, 1))]
    all_three = [three for three in itertools.product((0, 1), repeat=3) if three != (0, 0, 0)]
    return one + [(name, *three) for name in TWO for three in all_three]


def run(case: Case, device: str, made: bytes) -> list[int] | str:
    """What lies in shared memory of both blocks and in global memory afterwards; "!" and a word of the error. The words
    of the mbarriers are left out: a card's loads find what was stored there before, whatever they have heard."""
    name, acting, to, told = case
    out, given = np.zeros((2, 192), np.uint32), np.arange(0x555000, 0x555080, dtype=np.uint32).reshape(4, 32)
    tiled = name.startswith("tile")
    try:
        with loader.load(made, device) as module:
            there = [out, given] if device == "cpu" else [Buffer.of(a, module.device) for a in (out, given)]
            arguments = (loader.tensor_map(there[1], (4, 8)), there[0]) if tiled else (there[0], there[1])
            module.kernel(name).launch(2, 32, *arguments, acting, to, told, cluster=2)
            module.synchronize()
            if device != "cpu":
                out, given = (one.numpy() for one in there)
    except DeviceError as error:
        return "! " + str(error).splitlines()[0].split("error: ")[-1]
    except Exception as error:
        return "! " + " ".join(str(error).split())
    out[:, MBARRIER] = 0
    return [int(n) for n in np.concatenate([out.reshape(-1), given.reshape(-1)])]


def both(case: Case, device: str, made: bytes) -> list[list[int] | str]:
    """On the CPU device and on the other one."""
    return [run(case, "cpu", made), run(case, device, made)]


def told(case: Case) -> str:
    """In words."""
    name, acting, *to = case
    whose = ["its own" if one == acting else f"block {one}'s" for one in (to if name in TWO else to[:1])]
    return f"{name}, block {acting}: {', '.join(whose)}"


def where(case: Case, found: list[int] | str) -> str:
    """Of what is to say whose memory was meant: what differs from doing nothing."""
    if isinstance(found, str):
        return found
    rows = np.array(found[:384], np.uint32).reshape(2, 192)
    news = []
    for rank in (0, 1):
        first = 0x1000 * (rank + 1) + np.arange(128)
        changed = np.flatnonzero(rows[rank, :128] != first)
        if changed.size:
            news.append(f"block {rank}: {changed.size} words, {rows[rank, changed[0]]:#x} at {changed[0]}")
        if rows[rank, 160:].any():
            news.append(f"block {rank} loads {rows[rank, 160]:#x} {rows[rank, 161]:#x}")
    given = np.array(found[384:], np.uint32)
    if (given != np.arange(0x555000, 0x555080)).any():
        news.append(f"global memory has {given[0]:#x}")
    return "; ".join(news) or "nothing changed"


def answered(theirs: list[int] | str) -> bool:
    """Words, or an error of the kernel's, which the driver's code tells from that nothing ran."""
    return not isinstance(theirs, str) or bool(re.search(FAULT, theirs))


def agree(ours: list[int] | str, theirs: list[int] | str) -> bool:
    """The same words, or an error of the kernel's on both."""
    return ours == theirs or (isinstance(ours, str) and isinstance(theirs, str) and answered(theirs))


def keep(path: Path, known: dict[Case, list[int] | str]) -> None:
    """Whole at any time, for a run that is cut short."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps([[*case, theirs] for case, theirs in known.items()]).replace("], [", "],\n["))
    new.replace(path)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.reach", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="cases with one of these in their names; all without any")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json", type=Path, help="file for what was found; what it has answers for is not asked again")
    parser.add_argument("--at-once", type=int, default=8, help="cases at once; those without an answer again, alone")
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS", help="for one case")
    asked = parser.parse_args(words)
    if asked.device not in loader.devices():
        parser.error(f"{asked.device} is not there; there are: {', '.join(loader.devices())}")
    chosen = [case for case in cases() if not asked.words or any(word in told(case) for word in asked.words)]
    made = cubin()
    known: dict[Case, list[int] | str] = {}
    if asked.json and asked.json.exists():
        known = {(name, *three): theirs for name, *three, theirs in json.loads(asked.json.read_text())}
    off: dict[Case, bool] = {}

    def tell(case: Case, ours: list[int] | str, theirs: list[int] | str) -> None:
        off[case] = not agree(ours, theirs)
        mark = "?" if not answered(theirs) else "!" if off[case] else " "
        print(f"{mark} {told(case)}: {where(case, theirs)}", flush=True)
        if off[case]:
            print(f"      the CPU device: {where(case, ours)}", flush=True)

    for case in chosen:
        if case in known and answered(known[case]):
            tell(case, run(case, "cpu", made), known[case])
    ask = functools.partial(both, device=asked.device, made=made)
    for at_once in (asked.at_once, 1):
        left = [case for case in chosen if case not in known or not answered(known[case])]
        for case, found in apart(ask, left, at_once, asked.limit):
            ours, theirs = found if isinstance(found, list) else (run(case, "cpu", made), found)
            known[case] = theirs
            if asked.json:
                keep(asked.json, known)
            tell(case, ours, theirs)
    silent = sum(not answered(known[case]) for case in chosen)
    print(f"{sum(off.values()) - silent} of {len(chosen)} differ, {silent} have no answer", flush=True)
    return int(any(off.values()))


if __name__ == "__main__":
    os._exit(main())  # which waits for no process that the driver does not let go

"""`turingas bench networks` in bounded time on several GPUs: ``python -m tests.bench.networks FOLDER CLAIMS SECONDS``.

Start one for each GPU (CUDA_VISIBLE_DEVICES), all with the same folder CLAIMS, which is empty at first, and
TORCHINDUCTOR_COMPILE_THREADS at the processors of each. Each takes the longest setting that nobody has taken and that
ends within SECONDS as far as is known, measures it, and writes it to a file of its own in FOLDER. What is cut off, or
crashes, loses the setting that it was at. The files are put together by `turingas bench networks --join`.

A fourth argument, PLAN, is another plan: names of settings in the order in which they are taken, such as
"resnet18 N8 autotuned,unet N1"; "autotuned": max-autotune takes part.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from pathlib import Path

from kernels_sass.bench import networks
from kernels_sass.bench.networks import BATCHES, NETWORKS, Asked
from turingas.errors import LaunchError

#: Inductor's default brings NCHW into channels_last, so "compile" is as good as the same in both layouts; with the
#: layout kept there is nothing new in NHWC.
WHO = "eager", "ours", "compile, layout kept NCHW", "compile NHWC", "ours, compile NHWC"
#: cuDNN's search for the fastest algorithms in channels_last takes minutes here, and the whole has ten
COMPILED = "unet N128 compiled"  # the compiler may not come to an end: without it there is a result before
LONG = {
    "unet N128": ("eager NCHW", "ours NCHW"), COMPILED: ("eager NCHW", "ours NCHW", WHO[2]),
    "unet N32": ("eager NCHW", "ours NCHW", WHO[2]),
    "vae_decoder N32": ("eager NCHW", *WHO[1:3], WHO[4]),
}  # fmt: skip
LEFT_OUT = "vae_decoder N128",  # nobody asks for it  # fmt: skip
AUTOTUNED = " autotuned"  # behind a setting's name in a plan
LIMIT = 420.0  # seconds in which all contenders of a setting must be ready
#: seconds that settings took, about, which the results that are kept do not have with these contenders
ESTIMATED = {"unet N128": 330, COMPILED: 250, "unet N8": 200, "unet N1": 170, "unet N32": 150, "densenet121 N1": 110}
TUNING = 200.0  # seconds that max-autotune takes


TOOK = networks.took()


def plan(other: str = "") -> dict[str, Asked]:
    """What is asked for by setting: all, the longest first, or another plan."""
    every = [f"{name} N{batch}" for name in NETWORKS for batch in BATCHES if f"{name} N{batch}" not in LEFT_OUT]
    found = dict[str, Asked]()
    for name in other.split(",") if other else sorted(every, key=expected, reverse=True):
        network, batch = name.removesuffix(AUTOTUNED).removesuffix(" compiled").split(" N")
        who = LONG.get(name.removesuffix(AUTOTUNED), WHO) + ("max-autotune NHWC",) * name.endswith(AUTOTUNED)
        found[name] = Asked((network,), (int(batch),), who=who, limit=LIMIT)
    return found


def expected(name: str) -> float:
    """Seconds that a setting takes, as far as is known."""
    plain = name.removesuffix(AUTOTUNED)
    return (ESTIMATED.get(plain) or TOOK.get(plain, 0.0)) + TUNING * (plain != name)


def main(folder: Path, claims: Path, seconds: float, other: str = "") -> int:
    """1 if a setting failed: the GPU may be of no more use to this process, and another goes on."""
    start = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    claims.mkdir(parents=True, exist_ok=True)
    try:
        for name, asked in plan(other).items():
            if time.monotonic() - start + expected(name) > seconds:
                continue
            with contextlib.suppress(FileExistsError):
                (claims / name.replace(" ", "_")).mkdir()
                told(f"{time.monotonic() - start:.0f} s: {name} is begun")
                networks.run(asked, folder / f"networks_{name.replace(' ', '_')}.json", told)
    except (LaunchError, RuntimeError) as error:
        told(f"{name}: {error}")
        return 1
    told(f"{time.monotonic() - start:.0f} s: nothing is left that would end in time")
    return 0


def told(line: str) -> None:
    """At once, as a process that is cut off prints nothing more."""
    print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for word, kind in (("FOLDER", Path), ("CLAIMS", Path), ("SECONDS", float)):
        parser.add_argument(word, type=kind)
    parser.add_argument("PLAN", nargs="?", default="")
    given = parser.parse_args()
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    logging.getLogger("loader.bench").setLevel(logging.DEBUG)
    sys.exit(main(given.FOLDER, given.CLAIMS, given.SECONDS, given.PLAN))

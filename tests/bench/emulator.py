"""How fast the CPU device is: ``python -m tests.bench.emulator [--json FILE] [--workers N]``.

``ffma``: a loop of FFMA with uniform control flow, random values. ``winograd``: what the main loop of Yan, Wang and
Chu's kernel executes (outer.sass) for the whole of layer Conv2 at N = 32: 784 blocks of 256 threads,
2.5e9 lane instructions.
Targets, on two cores: 3e8 lane instructions a second, and 30 seconds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
from pathlib import Path

import numpy as np

from turingas import assemble
from turingas.emulate import launch

FFMA = """
.arch sm_75
.kernel ffma
.param out 8
.param in 8
.param count 4
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:-:-:6 MOV R2, 0x4;
01:-:-:-:6 IMAD.WIDE R4, R0, R2, c[0x0][0x168];
--:-:-:-:6 MOV R1, RZ;
<code>
for n in range(96):
    out_ += f"--:-:1:-:2 LDG.E.SYS R{8 + n}, [R4+{hex(4 * n)}];\\n"
</code>
02:-:-:-:6 NOP;
loop:
<code>
for n in range(512):
    out_ += f"--:-:-:-:2 FFMA R{40 + n % 64}, R{8 + n % 8}, R{16 + n // 8 % 8}, R{40 + n % 64};\\n"
</code>
--:-:-:-:6 IADD3 R1, R1, 0x1, RZ;
--:-:-:Y:d ISETP.LT.AND P0, PT, R1, c[0x0][0x170], PT;
--:-:-:-:5 @P0 BRA loop;
--:-:-:-:5 EXIT;
"""
BLOCKS, STEPS = 784, 10  # Conv2 at N = 32: 28 x 28 tiles of 32 images, 32 tiles and 64 filters a block


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--workers", type=int, default=0, help="threads (one a core)")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    values = (random.standard_normal(65536) * 0.3).astype(np.float32)
    out = np.zeros(BLOCKS * 256 + 64, np.float32)
    ffma = launch(assemble(FFMA), "ffma", 512, 256, [out, values, 10], workers=options.workers)
    rate = ffma.lane_instructions / ffma.seconds
    count = ffma.lane_instructions
    print(f"ffma      {count:,} lane instructions in {ffma.seconds:.2f} s: {rate / 1e6:,.0f} million/s")
    print("          " + ("target 300: " + ("met" if rate >= 3e8 else "MISSED")))
    source = (Path(__file__).parent / "outer.sass").read_text()
    data = np.concatenate([values, values, values, values])
    conv = launch(assemble(source), "outer", BLOCKS, 256, [out, data, STEPS], workers=options.workers)
    print(
        f"winograd  {conv.lane_instructions:,} lane instructions in {conv.seconds:.2f} s: "
        f"{conv.lane_instructions / conv.seconds / 1e6:,.0f} million/s"
    )
    print("          " + ("target 30 s: " + ("met" if conv.seconds <= 30 else "MISSED")))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory    {memory:,.0f} MB at most")
    if options.json:
        found = {
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "processor": platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "workers": options.workers,
            "numpy": np.__version__,
            "ffma lane instructions/s": rate,
            "winograd lane instructions": conv.lane_instructions,
            "winograd seconds": conv.seconds,
            "peak MB": memory,
        }
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()

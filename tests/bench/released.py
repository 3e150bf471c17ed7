"""Measures when scoreboards are released on a GPU: ``python -m tests.bench.released [--json FILE] [--check]``.

One warp, with nothing else on its SM, reads the clock, issues one instruction with a scoreboard, waits for that, and
reads the clock again; the same with a NOP tells what reading the clock takes. It does so ``ROUNDS`` times, of which the
median of the later ones counts. turingas/scheduler/warp.py takes its times from here. ``--check`` runs it on the CPU
device, which tells no times.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np

import loader
import turingas
from loader.bench import results
from loader.cuda import Buffer, device_named

ARCH = "sm_90"
ROUNDS, FIRST = 16, 4
#: name -> what is issued, and what is put before it
ASKED = {
    "LDS": ("LDS R12, [R6]", ""),
    "LDS.128": ("LDS.128 R12, [R6]", ""),
    "LDSM": ("LDSM.16.M88.4 R12, [R6]", ""),
    "SHFL": ("SHFL.IDX PT, R12, R6, R7, 0x1f", ""),
    "LDC": ("LDC R12, c[0x0][R6+0x210]", ""),
    "S2R": ("S2R R12, SR_TID.X", ""),
    "S2UR": ("S2UR UR8, SR_CTAID.X", ""),
    "MUFU": ("MUFU.RCP R12, R6", ""),
    "POPC": ("POPC R12, R6", ""),
    "I2F": ("I2F.F64 R12, R6", ""),
    "LDG, L1": ("LDG.E R12, desc[UR4][R8.64]", ""),
    "LDG, L2": ("LDG.E.STRONG.GPU R12, desc[UR4][R8.64]", ""),
    "MEMBAR.ALL.CTA": ("MEMBAR.ALL.CTA", ""),
    "MEMBAR.ALL.CTA behind STS": ("MEMBAR.ALL.CTA", "STS [R6], R7"),
    "FENCE.VIEW.ASYNC": ("FENCE.VIEW.ASYNC.S", ""),
    "FENCE.VIEW.ASYNC behind STS": ("FENCE.VIEW.ASYNC.S", "STS [R6], R7"),
}
#: what has a read scoreboard alone, as compilers have it, and the stall that these give it
READ, LONGER = {"MEMBAR.ALL.CTA"}, "6"
NOTHING = "NOP"

SOURCE = """
.arch {arch}
.kernel released
.param out, u32*
.param any, u32*
.shared 1024
    ULDC.64 UR4, c[0x0][0x208];
    MOV R6, 0x0;
    MOV R7, 0x0;
    MOV R8, c[0x0][0x218];
    MOV R9, c[0x0][0x21c];
    MOV R2, c[0x0][0x210];
    MOV R3, c[0x0][0x214];
    MOV R4, 0x0;
    STS [R6], R7;
    LDG.E R12, desc[UR4][R8.64];
    IADD3 R12, R12, R7, RZ;
    BAR.SYNC.DEFER_BLOCKING 0x0;
again:
.schedule off
    --:-:-:Y:f  NOP;
    --:-:-:Y:f  NOP;
{before}
    --:-:-:-:8  CS2R.32 R10, SR_CLOCKLO;
    --:{read}:{write}:-:{stall}  {what};
    {wait}:-:-:-:8  CS2R.32 R11, SR_CLOCKLO;
    --:-:-:Y:f  NOP;
.schedule on
    IADD3 R11, R11, -R10, RZ;
    STG.E desc[UR4][R2.64], R11;
    IADD3 R2, P0, R2, 0x4, RZ;
    IADD3.X R3, R3, RZ, RZ, P0, !PT;
    IADD3 R4, R4, 0x1, RZ;
    ISETP.LT.AND P1, PT, R4, {rounds}, PT;
@P1 BRA again;
    EXIT;
"""


def source(what: str, before: str, arch: str = ARCH) -> str:
    """The kernel that asks for one instruction."""
    reads = what.split()[0] in READ
    read, write = ("0", "-") if reads else ("-", "-" if what == NOTHING else "0")
    wait = "--" if what == NOTHING else "01"
    line = f"    --:-:-:-:2  {before};" if before else ""
    codes = {"read": read, "write": write, "wait": wait, "stall": LONGER if reads else "2"}
    return SOURCE.format(arch=arch, before=line, what=what, rounds=ROUNDS, **codes)


def rounds_of(what: str, before: str, device: str) -> list[int]:
    """Cycles of each round between the two looks at the clock."""
    cubin = turingas.assemble(source(what, before))
    with loader.load(cubin, device) as module:
        if device == "cpu":
            out, any_ = np.zeros(ROUNDS, np.uint32), np.zeros(32, np.uint32)
            module.kernel().launch(1, 32, out, any_)
            return [int(one) for one in out]
        with Buffer(ROUNDS, np.uint32, device) as there, Buffer.of(np.zeros(32, np.uint32), device) as other:
            module.kernel().launch(1, 32, there, other)
            module.synchronize()
            return [int(one) for one in there.numpy()]


def measured(device: str) -> dict[str, float]:
    """Name -> cycles until its scoreboard is released."""
    none = statistics.median(rounds_of(NOTHING, "", device)[FIRST:])
    found = {}
    for name, (what, before) in ASKED.items():
        base = statistics.median(rounds_of(NOTHING, before, device)[FIRST:]) if before else none
        found[name] = float(statistics.median(rounds_of(what, before, device)[FIRST:]) - base)
        print(f"{name:30} {found[name]:6.0f}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    found = measured("cpu" if asked.check else "cuda:0")
    if asked.json and not asked.check:
        facts = results.facts("released", device_named("cuda:0"), ())
        asked.json.write_text(results.text({**facts, "cycles": found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Any words in any cubin, and any source: lint, run, info, check and disassemble give findings or an error of ours."""

from __future__ import annotations

import io
import random
import time

import numpy as np
import pytest

import turingas
from tests.cubin import cubins
from turingas import disassembler, info
from turingas.check.command import lines, look
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.emulate import launch
from turingas.emulate.errors import DeviceError
from turingas.errors import AsmError, CubinError, LaunchError
from turingas.isa import control

OURS = (AsmError, CubinError, LaunchError, DeviceError)
NAMES = ("plain_cuda12_sm75", "plain_cuda13_sm90a", "memory_cuda12_sm80", "plain_cuda11_sm90")
SECONDS = 1.2  # of one test; what comes first is always the same
MODES = ({}, {"strict": True}, {"strict": True, "stale": True}, {"races": True, "written": True})


def mutate_word(dice: random.Random, word: int) -> int:
    """Another control code, another bit, another field of eight bits, or anything."""
    kind = dice.randrange(6)
    if kind < 2:
        return word & ~control.MASK | dice.getrandbits(21) << control.STALL & control.MASK
    if kind < 4:
        return word ^ 1 << dice.randrange(128)
    if kind == 4:
        at = dice.choice((12, 16, 24, 32, 40, 64, 72, 80, 84, 88))
        return (word & ~(255 << at) | dice.getrandbits(8) << at) & (1 << 128) - 1
    return dice.getrandbits(128)


def arguments(kernel: Kernel) -> list[object]:
    return [np.zeros(64, "u4") if p.size == 8 else 3 if p.size == 4 else bytes(p.size) for p in kernel.params]


def everything(data: bytes, dice: random.Random) -> None:
    """All that the commands do with a cubin."""
    try:
        cubin = Cubin.from_bytes(data)
        kernels = cubin.kernels
        for line in lines(look(cubin, "x.cubin"), "note", loops=True):
            assert line
        "\n".join(info.describe(cubin))
        disassembler.check(cubin)
        disassembler.write_source(cubin, io.StringIO())
    except OURS as error:
        assert str(error)
        return
    for kernel in kernels:
        for mode in dice.sample(MODES, 2):
            try:
                launch(data, kernel.name, 2, 33, arguments(kernel), budget=300, **mode)
            except OURS as error:
                assert str(error)


@pytest.mark.parametrize("name", NAMES)
def test_changed_words(name):
    dice, start = random.Random(name), time.process_time()
    original = cubins.named(name)
    while time.process_time() - start < SECONDS:
        cubin = Cubin.from_bytes(original)
        for kernel in cubin.texts:
            for _ in range(dice.randrange(1, 5)):
                n = dice.randrange(len(kernel.words))
                kernel.words[n] = mutate_word(dice, kernel.words[n])
        everything(cubin.to_bytes(), dice)


def test_changed_bytes():
    """Of headers, tables and notes, too."""
    dice, start = random.Random(0), time.process_time()
    while time.process_time() - start < SECONDS:
        data = bytearray(cubins.named(dice.choice(NAMES)))
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        everything(bytes(data), dice)


@pytest.mark.filterwarnings("ignore::turingas.errors.AsmWarning")
def test_changed_sources():
    """Lines that go, come twice, change places or lose a character."""
    dice, start = random.Random(1), time.process_time()
    texts = [disassembler.disassemble(cubins.named(name)).splitlines() for name in NAMES]
    while time.process_time() - start < SECONDS:
        text = list(dice.choice(texts))
        for _ in range(dice.randrange(1, 6)):
            n, m = dice.randrange(len(text)), dice.randrange(len(text))
            kind = dice.randrange(4)
            if kind == 0:
                del text[n]
            elif kind == 1:
                text.insert(n, text[m])
            elif kind == 2:
                text[n], text[m] = text[m], text[n]
            elif text[n]:
                at = dice.randrange(len(text[n]))
                text[n] = text[n][:at] + dice.choice(("", "7", "R", "]", "6:")) + text[n][at + 1 :]
        try:
            cubin = turingas.assemble("\n".join(text))
        except AsmError as error:
            assert str(error)
        else:
            everything(cubin.to_bytes(), dice)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize("names", [{"write": 6}, {"read": 6}, {"write": 6, "read": 6}])
def test_a_scoreboard_that_there_is_not(names, arch):
    (word, *rest) = turingas.encode("--:-:-:-:4 MOV R1, R2\n--:-:-:-:1 MOV R3, R1\n--:-:-:Y:5 EXIT", arch)
    for name, number in names.items():
        at = {"write": control.WRITE, "read": control.READ}[name]
        word = word & ~(7 << at) | number << at
    cubin = turingas.assemble("\n".join(f".word {w:#x}" for w in (word, *rest)), arch)
    found = [f for f in turingas.lint(cubin) if f.severity == "error"]
    assert [(f.kind, f.address) for f in found] == [("missing-scoreboard", 0)] and "scoreboard 6" in found[0].message
    launch(cubin, None, 1, 32, [])
    with pytest.raises(DeviceError, match="scoreboard 6"):
        launch(cubin, None, 1, 32, [], strict=True)

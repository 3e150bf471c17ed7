"""What the parser relies on: the encoder takes nvdisasm's spelling alone, so what it has encoded needs no repair."""

from __future__ import annotations

import itertools

import pytest

from tests.isa.words import ARCHS
from turingas.errors import EncodeError
from turingas.isa.arch import arch as facts_of
from turingas.isa.isa import Isa, instruction_set
from turingas.source.dialect import Dialect

REPAIRED = [
    "IADD3.X R0, R1, R2, R3",
    "IADD3.X R0, R1, R2, R3, P0",
    "IADD3.X R0, P1, R1, R2, R3, P0",
    "UIADD3.X UR0, UR1, UR2, UR3, UP0",
    "LOP3.LUT R0, R1, R2, R3, 0x3c",
    "LOP3.LUT P0, R0, R1, R2, R3, 0x3c",
    "P2R R0, PR, 0x7f",
    "LDC R0, c[0x3][0x0]",
    "LDC.64 R0, c[0x3][0x00]",
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("arch", ARCHS)
def test_mnemonics_that_can_be_encoded_are_not_respelled(arch):
    isa, dialect = instruction_set(arch), Dialect(facts_of(arch).orders_by_name, clock32=False)
    checked = 0
    for row in isa.rows:
        parts = isa.forms.mnemonic(row).parts
        choices = [[part] if isinstance(part, str) else list(part.values) for part in parts]
        for name in map("".join, itertools.islice(itertools.product(*choices), 0, None, 7)):
            assert dialect[name][0] == name
            checked += 1
    assert checked > 1000


@pytest.mark.parametrize("arch", ARCHS)
def test_operands_that_need_repair_cannot_be_encoded(arch):
    isa, dialect = instruction_set(arch), Dialect(facts_of(arch).orders_by_name, clock32=False)
    repaired = 0
    for line in REPAIRED:
        mnemonic, _, operands = line.partition(" ")
        name, repair = dialect[mnemonic]
        assert repair is not None, line
        assert repair(name, operands.split(", ")) != line
        repaired += _encodes(isa, repair(name, operands.split(", ")))
        assert not _encodes(isa, line), line
    assert repaired > 3


def _encodes(isa: Isa, line: str) -> bool:
    try:
        isa.encode(line)
    except EncodeError:
        return False
    return True

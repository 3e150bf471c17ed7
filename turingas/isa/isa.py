"""The instruction set of one architecture: encoder, decoder, and what both are asked of a word."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from turingas.errors import AsmError, EncodeError
from turingas.forks import freed
from turingas.isa import control, describe, diagnose, forms, table
from turingas.isa.decode import SEEN, Decoder
from turingas.isa.encode import Encoder
from turingas.isa.fields import Number, Register
from turingas.isa.forms import Forms


class Isa:
    """Get one from ``instruction_set(arch)``: threads share it, and with it one set of forms and of memories."""

    def __init__(self, forms: Forms) -> None:
        self.forms, self.name, self.rows = forms, forms.name, forms.rows
        self.named, self.all_forms, self.mnemonics, self.anywhere = (
            forms.named, forms.all_forms, forms.mnemonics, forms.anywhere
        )  # fmt: skip
        self.encoder, self.decoder = Encoder(forms), Decoder(forms)
        self.encode, self.find = self.encoder.encode, self.encoder.find
        self.decode, self.lines, self.explain = self.decoder.decode, self.decoder.lines, self.decoder.explain
        self.line, self.lines_anywhere = self.decoder.line, self.decoder.anywhere
        #: whole lines with control code, and their words: what ``turingas.encode`` has seen
        self.lines_seen: dict[str, int] = {}
        #: lines of sources, spelled as nvdisasm does -> what they say (``source.parse.Statement``)
        self.statements: dict[str, Any] = {}
        #: words without control code, and what they mean: what ``instruction`` has seen
        self.bodies: dict[int, Any] = {}
        #: the same of words whose meaning depends on their address, at address 0
        self.branches: dict[int, Any] = {}
        self._opcodes: dict[tuple[str, ...], frozenset[int]] = {}
        self._needs: dict[str, int] = {}  # of instructions that mean the same everywhere

    def opcodes(self, *bases: str) -> frozenset[int]:
        """Bits 0 to 11 of the words of these mnemonics (without modifiers)."""
        found = self._opcodes.get(bases)
        if found is None:
            forms = [form for base in bases for form in self.named(base)]
            found = self._opcodes[bases] = frozenset(form.value & 0xFFF for form in forms)
        return found

    def needs(self, text: str, address: int, labels: Mapping[str, int]) -> int:
        """The word of one instruction, control bits 0, and above its 128 bits those that tell which general registers
        it uses: the highest one of several instructions tells how many registers they need (``Register.end``)."""
        found = self._needs.get(text)
        if found is None:
            found, form = self.encoder.read(text, address, labels)
            if not form.has_target:
                if len(self._needs) >= SEEN:
                    self._needs.clear()
                self._needs[text] = found
        return found

    def whole(self, bits: int, code: int) -> int | None:
        """What ``needs`` gave, with a control code; None where ``join`` is to tell whether the two go together."""
        word = bits | code
        if word & control.REUSE_MASK and (code & control.REUSE_MASK or control.illegal(word)):
            return None
        return word

    def join(self, bits: int, code: int) -> int:
        """The word of an instruction and its control code. EncodeError when the two do not go together."""
        word = bits | code
        if word & control.REUSE_MASK:
            problem = control.illegal(word)
            if problem:
                raise EncodeError(problem[0], 0, problem[1])
            if code & control.REUSE_MASK:
                form = self.explain(word)
                if form is not None and code & control.REUSE_MASK & ~(form.loose | form.known):
                    raise EncodeError("the control code sets a reuse bit of no operand", 0, "leave :abc out")
                if form is None:
                    raise EncodeError("the control code sets a reuse bit that this instruction lacks", 0)
        return word

    def target(self, word: int, address: int) -> int | None:
        """The address a relative branch goes to, if the instruction names one."""
        branch = self.decoder.branch(word)
        if branch is not None:
            return branch[1].address(word, address)
        form = self.explain(word)
        if form is not None and form.has_target:
            for operand in form.operands:
                if operand.target is not None and operand.target.relative:
                    return operand.target.address(word, address)
        return None

    def registers(self, word: int) -> int:
        """One more than the highest general register that the word reads or writes; 0 when it uses none."""
        form = self.explain(word)
        return 0 if form is None else form.registers(word)

    def barriers(self, word: int) -> int:
        """One more than the highest named barrier that the word uses by number; 16 when a register names it."""
        form = self.explain(word)
        if form is None or form.base not in ("BAR", "B2R"):
            return 0
        for operand in form.operands:
            for f in operand.fields:
                if isinstance(f, Number) and f.width == 4:
                    return f.get(word) + 1
        return 16 if form.base == "BAR" and any(isinstance(f, Register) for o in form.operands for f in o.fields) else 1

    def example(self, base: str) -> str:
        """A line with this mnemonic that can be encoded here and is printed so; "" if there is none."""
        for line in table.OPS[base].examples:
            with contextlib.suppress(EncodeError):
                if self.decode(self.encode(line)) == line:
                    return line
        return ""

    def search(self, words: str) -> list[str]:
        """The mnemonics that have all of these words, as describe.search finds them."""
        return describe.search(self.forms, words)

    def describe(self, mnemonic: str) -> str:
        """How an instruction is written, its operands and modifiers and their bits, as text. AsmError if there is
        none: its hint names those that PTX or CUDA C++ call so."""
        base = mnemonic.upper().partition(".")[0]
        name_of_ptx = "." in mnemonic and mnemonic.islower()
        if name_of_ptx or base not in table.OPS:
            called = diagnose.meant(self.forms, mnemonic)
            if called:
                raise AsmError(f"{mnemonic!r} is not a mnemonic", hint=called)
        if not self.named(base):
            unknown = diagnose.unknown(self.forms, base, 0)
            raise AsmError(unknown.message, hint=unknown.hint)
        return describe.describe(self.forms, base, self.example(base))


_KNOWN: dict[str, Isa] = {}
_LOCK = freed(threading.Lock())


def instruction_set(arch: str) -> Isa:
    """The instruction set of an architecture ("sm_75"). AsmError for another name."""
    found = _KNOWN.get(arch)
    if found is None or found.forms is not forms.forms(arch):
        made = Isa(forms.forms(arch))
        with _LOCK:
            found = _KNOWN[arch] = made
    return found

"""``turingas.encode`` and ``turingas.decode``: bare instruction lines to words and back."""

from __future__ import annotations

import re
from collections.abc import Iterable

from turingas import collector
from turingas.errors import AsmError, EncodeError, raise_all
from turingas.isa import control
from turingas.isa.decode import SEEN
from turingas.isa.form import WORD
from turingas.isa.isa import Isa, instruction_set

COMMENT = re.compile(r"/\*.*?\*/|//.*|(?<!\w)#.*")
LABEL = re.compile(r"([A-Za-z_.$][\w.$@]*)\s*:(?=\s|$)")
OPAQUE = re.compile(r"\.word\s+0[xX]([0-9a-fA-F]{1,32})")


@collector.paused()
def encode(text: str, arch: str = "sm_75", default_control: str | None = None, address: int = 0) -> list[int]:
    """Encode instruction lines: one 128-bit int a line; empty lines, comments and labels give none.

    A line is ``control  @guard MNEMONIC operands``, in nvdisasm's spelling. ``default_control`` serves the lines that
    have no control code; without it they are errors. ``address`` is the byte address of the first instruction; branch
    targets are labels of this text, or absolute addresses. Raises AsmError, which carries the errors of all lines.
    """
    isa = instruction_set(arch)
    errors: list[AsmError] = []
    default: int | None = None
    if default_control is not None:
        try:
            default = control.parse(default_control)
        except control.ControlError as error:
            raise AsmError(f"default control code: {error.message}", hint=error.hint) from None
    seen = isa.lines_seen
    lines = text.split("\n")
    words: list[int] = []
    pending: list[tuple[int, int, str]] = []  # place of the word, line number, the line without comments and labels
    labels: dict[str, int] = {}
    reuse = control.REUSE_MASK
    parsed, read, known, branch = control.known, isa.encoder.read, isa.encoder.known, isa.encoder.branch
    for number, line in enumerate(lines):
        word = seen.get(line)
        if word is not None:
            words.append(word)
            continue
        head, _, body = line.partition("  ")  # as ``decode`` writes it
        bits = parsed.get(head)
        if bits is None:
            bits = control.parsed(head)
        if bits is not None:
            word = known(body)
            if word is not None:
                word = word & WORD | bits
                if not word & reuse or not (bits & reuse or control.illegal(word)):
                    words.append(word)
                    if len(seen) > SEEN:
                        seen.clear()
                    seen[line] = word
                    continue
            elif not bits & reuse and (found := branch(body, address + 16 * len(words), labels)):
                words.append(found[0] & WORD | bits)
                continue
        body = line
        if "/" in body or "#" in body:
            body = COMMENT.sub(lambda m: " " * len(m[0]), body)
        body = body.rstrip(" ;\t\r")
        head, _, rest = body.lstrip().partition(" ")
        bits = control.parsed(head)
        if bits is not None and rest:  # the common case: a control code, and no label
            try:
                word, form = read(rest.lstrip(), address + 16 * len(words), labels)
                word = word & WORD | bits
                if word & control.REUSE_MASK:
                    word = isa.join(word, bits)
            except EncodeError:
                pass  # wrong, or a branch to a label further down: the second round says which
            else:
                words.append(word)
                if not form.has_target:
                    if len(seen) > SEEN:
                        seen.clear()
                    seen[line] = word
                continue
        while ":" in body:
            label = LABEL.match(body, len(body) - len(body.lstrip()))
            if label is None:
                break
            name = label[1]
            if name in labels:
                problem = f"duplicate label {name!r}"
                errors.append(AsmError(problem, "<text>", number + 1, label.start() + 1, "", line))
            labels[name] = address + 16 * len(words)
            body = (" " * label.end() + body[label.end() :]).rstrip()
        if body and not body.isspace():
            pending.append((len(words), number, body))
            words.append(0)
    for place, number, body in pending:
        try:
            words[place] = _slow(isa, body.strip(), default, address + 16 * place, labels)
        except EncodeError as error:
            column = len(body) - len(body.lstrip()) + error.position + 1
            errors.append(AsmError(error.message, "<text>", number + 1, column, error.hint, lines[number]))
    errors.sort(key=lambda error: error.line)
    raise_all(errors)
    return words


def _slow(isa: Isa, line: str, default: int | None, address: int, labels: dict[str, int]) -> int:
    """A line that is not as most are: a branch to a label further down, an opaque word, no control code, a mistake."""
    match = control.LIKE.match(line)
    if match:
        try:
            bits = control.parse(match[0])
        except control.ControlError as error:
            raise EncodeError(error.message, 0, error.hint) from None
        rest = line[match.end() :]
        body = rest.lstrip()
        skip = len(line) - len(body)
        if not body:
            raise EncodeError("a control code without an instruction", 0)
        try:
            return isa.join(isa.encode(body, address, labels), bits)
        except EncodeError as error:
            raise EncodeError(error.message, error.position + skip, error.hint) from None
    if line.startswith(".word"):
        opaque = OPAQUE.fullmatch(line)
        if opaque is None:
            raise EncodeError("an opaque word is .word 0x and up to 32 hexadecimal digits", 0)
        return int(opaque[1], 16)
    if default is None:
        raise EncodeError("this line has no control code", 0, control.FORM + ", or give a default one")
    return isa.join(isa.encode(line, address, labels), default)


@collector.paused()
def decode(words: Iterable[int], arch: str = "sm_75", address: int = 0, control: bool = True) -> list[str]:
    """Decode 128-bit words: one line a word, which ``encode`` turns into the same word again.

    ``address`` is the byte address of the first word; branch targets are shown as absolute addresses. Words that no
    row of the table explains come out as ``.word 0x...``. With ``control=False`` the lines are nvdisasm's spelling
    alone: no control code, and also none of what nvdisasm does not print (descriptor registers before sm_90, the
    reuse flags of yielding instructions, the bits of NaNs); such lines do not always determine the word.
    """
    isa = instruction_set(arch)
    if isinstance(words, (bytes, bytearray, memoryview, str)):
        raise TypeError("decode takes 128-bit ints; of bytes, int.from_bytes(code[at : at + 16], 'little') makes one")
    words = list(words)
    for word in (min(words), max(words)) if words else ():
        if not 0 <= word < 1 << 128:
            raise ValueError(f"{word:#x} is not a 128-bit word")
    return isa.lines(words, address, control)

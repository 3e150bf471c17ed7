"""Listings of cuobjdump -sass and nvdisasm as source.

An instruction comes from its word, if that stands in comments behind it (cuobjdump; nvdisasm -hex), with its control
code; else from its text, and the scheduler fills the code in. nvdisasm's listing of a whole cubin tells parameters,
registers, shared memory, constants, variables and attributes, too; cuobjdump's, and those of code alone (-c), do not.
Each line of the source comes from a line of the listing, and what is said of it is said of that one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from turingas.cubin import nvinfo
from turingas.cubin.nvinfo import BVAL, HVAL, NVAL, Info
from turingas.errors import AsmError
from turingas.isa.arch import WORD_BYTES
from turingas.isa.arch import arch as find_arch
from turingas.isa.isa import Isa, instruction_set
from turingas.source.elf_text import ElfText, Line, Place, Section, Symbol, Unclear, architectures

#: of nvdisasm and cuobjdump, and of no source
MARKS = re.compile(r"^\s*(\.(headerflags|sectioninfo|elftype)\b|Function : \S)", re.MULTILINE)
MARKED = (".headerflags", ".sectioninfo", ".elftype", "Function : ")  # one is in what MARKS finds, and sooner seen
WORD = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/.*/\* 0x[0-9a-f]{16} \*/\s*$", re.MULTILINE)
REGISTERS = re.compile(r"SHI_REGISTERS=(\d+)")
BARRIERS = re.compile(r"SHF_BARRIERS=(\d+)")
NOTE = re.compile(r"\s*(?:\(\*.*?\*\)|//.*|[;}]\s*$)|\.reuse\b")
LABEL = re.compile(r"`\(([^()\s]+)\)")
HALF = re.compile(r"32@(lo|hi)\(\(?([^()\s]+)(?: \+ ([^()\s]+))?\)?\)")
FROM_START = re.compile(r"`\(\(\([^()]* - \.\) - 0x10\)\)")  # an indirect branch: counted from the function's first
HIDDEN = re.compile(r"\[(R\d+)\.64(?=\]|\+-?0x)")  # an address whose descriptor nvdisasm does not print
#: a NaN, of which the text does not say which; and FP32 arithmetic, whose result is the same with any
NAN = re.compile(r"(?<![\w.])([-+]?)QNAN\b")
ARITHMETIC = re.compile(r"(?:@!?U?P\w+\s+)?(?:MUFU|FADD|FMUL|FFMA|FSETP|FMNMX)\b")
BANK = re.compile(r"\.nv\.constant(\d+)(?:\.(.+))?")
VARIABLES = re.compile(r"\.nv\.(global(\.init)?|constant[1-9]\d*)")
SHT = {"progbits": 0x1, "nobits": 0x8}
FLAGS = {"w": 1, "a": 2, "x": 4}
#: of the function that an attribute of .nv.info names: how a source says it
OF_FUNCTION = {"REGCOUNT": ".registers", "FRAME_SIZE": ".frame", "MIN_STACK_SIZE": ".stack",
               "MAX_STACK_SIZE": ".max_stack"}  # fmt: skip
#: attributes that the assembler makes itself
DERIVED = """PARAM_CBANK CBANK_PARAM_SIZE EXIT_INSTR_OFFSETS CTAIDZ_USED CUDA_API_VERSION SW_WAR SW2861232_WAR 0x5f
    SPARSE_MMA_MASK MAXREG_COUNT VRC_CTA_INIT_COUNT""".split()  # noqa: SIM905
CALL = "CALL.ABS"
RELOCATABLE = "relocatable code does not tell in its text which relocation an instruction has"


class Source(NamedTuple):
    """The lines of a source, each with the number of the line that it comes from (from 1), and the architecture.
    ``whole`` is whether the listing told more than code."""

    lines: list[tuple[int, str]]
    arch: str
    whole: bool


def is_listing(text: str) -> bool:
    """Whether nvdisasm or cuobjdump printed it."""
    if "/" not in text:  # both begin every line of code with its address, /*0000*/, and sources are long
        return False
    if any(mark in text for mark in MARKED) and MARKS.search(text):
        return True
    return "/* 0x" in text and WORD.search(text) is not None


def to_source(text: str, arch: str, filename: str = "") -> Source:
    """The source of a listing; ``arch`` is taken where there are several, or none is said.

    Raises AsmError where it is of several architectures and not of ``arch``, where words, or half of one, are missing,
    and where the text of what has no word does not tell it."""
    lines = text.splitlines()
    elf = ElfText(lines, filename)
    there = [one or arch for one in architectures(elf.sections)]
    if not there:
        raise AsmError("this listing holds no instructions", filename)
    wanted = arch if arch in there else there[0]
    if len(set(there)) > 1 and arch not in there:
        several = ", ".join(dict.fromkeys(there))
        raise AsmError(f"this listing is of {several}", filename, hint="choose one with --arch")
    return _Maker(elf, wanted, filename, lines).source()


@functools.lru_cache(1024)
def quoted(name: str) -> str:
    """A name as a directive takes it: no character that the language uses, not a number."""
    text = quote(name, safe="_.$", errors="surrogateescape").replace("~", "%7E").replace("-", "%2D")
    return f"%{ord(text[0]):02X}{text[1:]}" if text[:1].isdigit() else text or "-"


class _Maker:
    def __init__(self, elf: ElfText, arch: str, filename: str, lines: list[str]) -> None:
        self.elf, self.arch, self.filename, self.texts = elf, arch, filename, lines
        self.isa: Isa = instruction_set(arch)
        facts = find_arch(arch)
        self.hidden = facts.global_descriptor is not None and not facts.newer_elf
        self.lines: list[tuple[int, str]] = []
        self.functions = {one.function: one for one in elf.texts(arch)}
        self.symbols: dict[str, str] = {}  # what is declared, and how
        #: constant banks of functions, but for that of the parameters
        self.banks: dict[str, list[tuple[int, Section]]] = {}
        for one in elf.sections:
            if (match := BANK.fullmatch(one.name)) and match[2] and match[1] != "0":
                self.banks.setdefault(match[2], []).append((int(match[1]), one))

    def source(self) -> Source:
        try:
            variables = [one for one in self.elf.sections if VARIABLES.fullmatch(one.name) and one.size]
            rows = {one.name: self.elf.contents(one) for one in variables}
            self.declare(variables, [place for _, places in rows.values() for _, _, place in places])
            facts = self.of_functions()
            self.put(0, f".arch {self.arch}")
            for section in self.functions.values():
                self.function(section, facts.get(section.function, {}))
            for section in variables:
                self.variable(section, *rows[section.name])
            for declaration in self.symbols.values():
                self.put(variables[-1].line if variables else 0, declaration)
        except Unclear as error:
            raise self.wrong(error.line, f"the listing does not tell what {error.text} is") from None
        return Source(self.lines, self.arch, self.elf.named(".nv.info") is not None)

    def put(self, line: int, text: str) -> None:
        self.lines.append((line + 1, text))

    def wrong(self, line: int, message: str) -> AsmError:
        hint = "of the cubin itself `turingas disassemble` makes a source"
        return AsmError(message, self.filename, line + 1, hint=hint, text=self.texts[line])

    # -- symbols and variables

    def declare(self, variables: list[Section], places: list[Place]) -> None:
        """Gather the symbols that a source has to declare: variables, and what their contents or the code refer to."""
        for section in variables:
            for symbol in [one for one in section.symbols if one.name in section.labels]:
                self.symbol(symbol, section)
        code = [match[2] for one in self.functions.values() for line in one.code if "32@" in line.text
                for match in HALF.finditer(line.text)]  # fmt: skip
        calls = [match[1] for one in self.functions.values() for line in one.code if CALL in line.text
                 for match in LABEL.finditer(line.text)]  # fmt: skip
        for name in dict.fromkeys([*(place.symbol for place in places), *code, *calls]):
            if name in self.functions or name in self.symbols:
                continue
            inside = next((one for one in self.functions.values() if name in one.labels), None)
            symbol = self.elf.symbols.get(name, Symbol(name, "function"))
            self.symbol(symbol, inside)

    def symbol(self, symbol: Symbol, section: Section | None) -> None:
        options = {
            "section": quoted(section.name) if section else "",
            "value": f"{section.labels.get(symbol.name, 0):#x}" if section else "",
            "size": f"{self.elf.length(symbol):#x}" if section else "",
            "type": {"object": "object", "function": "func"}.get(symbol.kind, ""),
            "bind": symbol.bind if section else "global",
        }
        said = " ".join(f"{key}={value}" for key, value in options.items() if value)
        self.symbols[symbol.name] = f".symbol {quoted(symbol.name)} {said}"

    def variable(self, section: Section, data: bytes, places: list[tuple[int, int, Place]]) -> None:
        """A section of data, and its relocations."""
        name, flags = quoted(section.name), sum(FLAGS.get(letter, 0) for letter in section.flags)
        head = f".section {name} type={SHT.get(section.kind, 1):#x} flags={flags:#x} align={section.align}"
        if section.kind == "nobits":
            self.put(section.line, f"{head} size={section.size:#x}")
            return
        self.put(section.line, head)
        self.data(section.line, data)
        if places:
            rela = f".section .rela{name} type=0x4 flags=0x40 align=8 entry=24 link=.symtab info={name}"
            self.put(section.line, rela)
        for at, size, place in places:
            if size != 8:
                raise self.wrong(section.line, "an address that does not take 8 bytes")
            self.put(section.line, f".row {at:#x} R_CUDA_64 {quoted(place.symbol)} {place.addend:#x}")

    def data(self, line: int, data: bytes) -> None:
        for at in range(0, len(data), 32):
            row = data[at : at + 32]
            self.put(line, f".bytes {row.hex()}" if any(row) else f".zero {len(row)}")

    # -- functions

    def of_functions(self) -> dict[str, dict[str, int]]:
        """What .nv.info says of each function."""
        found: dict[str, dict[str, int]] = {}
        names = {number: name for name, number in self.elf.numbers.items()}
        for info in self.infos(".nv.info"):
            if info.name in OF_FUNCTION and len(info.words) == 2:
                found.setdefault(names.get(info.words[0], ""), {})[OF_FUNCTION[info.name]] = info.words[1]
        return found

    def infos(self, name: str) -> list[Info]:
        section = self.elf.named(name)
        return nvinfo.parse(self.elf.contents(section)[0]) if section else []

    def function(self, section: Section, facts: dict[str, int]) -> None:
        """A kernel or a function: what is known of it, its instructions, its constants."""
        name, line = section.function, section.line
        symbol = self.elf.symbols.get(name)
        entry = symbol is None or "STO_CUDA_ENTRY" in symbol.other
        bind = f" bind={symbol.bind}" if symbol and symbol.bind != "global" else ""
        self.put(line, f"{'.kernel' if entry else '.function'} {quoted(name)}{bind}")
        if match := REGISTERS.search(section.notes):
            facts.setdefault(".registers", int(match[1]))
        if match := BARRIERS.search(section.notes):
            facts.setdefault(".barriers", int(match[1]))
        if not entry or facts.get(".stack") == facts.get(".frame"):
            facts.pop(".stack", None)
        for directive, value in facts.items():
            if value or directive != ".frame":
                self.put(line, f"{directive} {value}")
        shared = self.elf.named(".nv.shared." + name)
        if shared is not None and shared.size:
            self.put(shared.line, f".shared {shared.size}" + (f" align={shared.align}" if shared.align != 16 else ""))
        labels = self.labels(section)
        infos = self.infos(".nv.info." + name)
        params = [info.words for info in infos if info.name.startswith("KPARAM_INFO")]
        for _, where, size, *_ in sorted(params, key=lambda words: words[1] >> 16):
            wide = any(info.name == "KPARAM_INFO_V2" for info in infos)
            self.put(line, f".param {size & 0xFFFF if wide else size >> 18} offset={where >> 16:#x}")
        for info in infos:
            for said in self.info(info, labels):
                self.put(line, said)
        self.put(line, ".tail none")  # it is in the listing
        self.code(section, labels)
        for number, bank in self.banks.get(name, ()):
            self.bank(bank, number, section, labels)

    def labels(self, section: Section) -> dict[int, str]:
        """Address -> a name, of all places in the code that anything refers to. AsmError where instructions are
        missing."""
        wanted: set[int] = set()
        for n, line in enumerate(section.code):
            if line.address != WORD_BYTES * n:
                message = f"the instruction at {WORD_BYTES * n:#x} is missing"
                raise AsmError(message, self.filename, line.line + 1, text=self.texts[line.line])
            if line.word is not None and not self.isa.anywhere[line.word & 0xFFF]:
                target = self.isa.target(line.word, line.address)
                wanted |= set() if target is None else {target}
            elif line.word is None:
                wanted |= {section.labels[name] for name in LABEL.findall(line.text) if name in section.labels}
            for match in HALF.finditer(line.text) if "32@" in line.text else ():
                wanted |= {self.offset(match[3], line)} if match[3] and match[2] in self.functions else set()
        for info in self.infos(".nv.info." + section.function):
            wanted |= {word for word, is_address in info.marked if is_address}
        for _, bank in self.banks.get(section.function, ()):
            names = [text.removesuffix("@srel") for _, _, text, _ in bank.rows]
            wanted |= {section.labels[name] for name in names if name in section.labels}
        inside = {at for at in wanted if 0 <= at < WORD_BYTES * len(section.code) and at % WORD_BYTES == 0}
        return {at: f"L_{at:04x}" for at in sorted(inside)}

    def offset(self, text: str, line: Line) -> int:
        found = self.elf.value(text, line.line)
        if not isinstance(found, int):
            raise Unclear(text, line.line)
        return found

    def info(self, info: Info, labels: dict[int, str]) -> Iterator[str]:
        """The directives of an attribute, if it is none that follows from the rest."""
        if info.name in DERIVED or info.name.startswith("KPARAM_INFO"):
            return
        if info.name == "NUM_BARRIERS":
            yield f".barriers {info.words[0] & 0xFF}"
        elif isinstance(info.value, int):
            kind = {NVAL: "flag", BVAL: "byte", HVAL: "half"}[info.format]
            yield f".info {info.name} {kind} {info.value:#x}"
        elif info.name == "EXTERNS":
            names = {number: name for name, number in self.elf.numbers.items()}
            order = {name: n for n, name in enumerate(self.symbols, 1)}
            known = [order[names[word]] for word in info.words if names.get(word) in order]
            if known:
                yield " ".join([".info EXTERNS", *map(str, known)])
        elif len(info.value) % 4:
            yield f".info {info.name} hex {info.value.hex()}"
        else:
            texts = [labels.get(word, f"{word:#x}") if is_address else f"{word:#x}" for word, is_address in info.marked]
            yield " ".join([".info", info.name, *texts])

    def bank(self, section: Section, number: int, of: Section, labels: dict[int, str]) -> None:
        """A constant bank of a function; addresses in it, of tables of branches, become labels."""
        self.put(section.line, f".bank {number}")
        named = {at: text.removesuffix("@srel") for at, _, text, _ in section.rows}
        data, places = self.elf.contents(section)
        sizes = {at: size for at, size, text, _ in section.rows if named[at] in of.labels}
        for _, _, place in places:
            if place.symbol not in of.labels or place.addend:
                raise self.wrong(section.line, f"the address of {place.symbol} in a bank of {of.function}")
        at = 0
        while at < len(data):
            if size := sizes.get(at):
                self.put(section.line, f"{'.long' if size == 4 else '.quad'} {labels[of.labels[named[at]]]}")
                at += size
                continue
            end = min((place for place in sizes if place > at), default=len(data))
            self.data(section.line, data[at:end])
            at = end

    # -- instructions

    def code(self, section: Section, labels: dict[int, str]) -> None:
        words = [line.word for line in section.code if line.word is not None]
        if len(words) == len(section.code):
            texts = self.isa.lines(words, 0, True, labels)
        elif words:
            at = next(line for line in section.code if line.word is None)
            raise AsmError("the word of this instruction is missing", self.filename, at.line + 1,
                           text=self.texts[at.line])  # fmt: skip
        else:
            texts = [self.plain(line, section, labels) for line in section.code]
        for line, text in zip(section.code, texts):
            if line.address in labels:
                self.put(line.line, labels[line.address] + ":")
            for row in self.relocations(line, labels) if "32@" in line.text or CALL in line.text else ():
                self.put(line.line, row)
            self.put(line.line, text if text.startswith(".") else text + ";")

    def plain(self, line: Line, section: Section, labels: dict[int, str]) -> str:
        """The text of an instruction as source has it."""
        text = NOTE.sub("", NOTE.sub("", line.text)).strip()
        if "QNAN" in text and ARITHMETIC.match(text):
            text = NAN.sub(lambda found: "0xffc00000" if found[1] == "-" else "0x7fc00000", text)
        if "`" not in text and "[" not in text and "32@" not in text:
            return text
        text = HIDDEN.sub(r"[\1.64+URZ" if "LDGSTS" in text else r"[\1", text) if self.hidden else text
        text = FROM_START.sub(f"-{line.address + WORD_BYTES:#x}", HALF.sub("0x0", text))

        def label(match: re.Match[str]) -> str:
            if match[1] in section.labels:
                return labels[section.labels[match[1]]]
            if CALL in text:
                return "0x0"
            raise self.wrong(line.line, RELOCATABLE)

        return LABEL.sub(label, text)

    def relocations(self, line: Line, labels: dict[int, str]) -> Iterator[str]:
        """What a linker or the driver writes into an instruction."""
        for match in HALF.finditer(line.text):
            at = self.offset(match[3], line) if match[3] else 0
            addend = labels[at] if match[3] and match[2] in self.functions else f"{at:#x}"
            yield f".reloc R_CUDA_ABS32_{match[1].upper()}_32 {quoted(match[2])} {addend}"
        called = LABEL.search(line.text)
        if called and CALL in line.text and called[1] in self.symbols:
            yield f".reloc R_CUDA_ABS47_34 {quoted(called[1])} 0x0"

"""What the inline Python of the convolutions' sources has in common. They include this file, so that ARCH and what -D
gives are globals here.

Stalls and reuse flags are worked out by turingas/scheduler: ``settle(lines, names)`` of it, ``Weave`` and others are
names of the sources too, for which they are imported here.
"""

from turingas.errors import EncodeError
from turingas.isa.arch import arch, since
from turingas.isa.instruction import instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import latencies
from turingas.scheduler import Line, Weave, parts, settle, stalls  # noqa: F401
from turingas.source.names import Names

ISA = instruction_set(ARCH)


def has(line):
    """Whether the architecture has this instruction."""
    try:
        ISA.encode(line, 0, {})
    except EncodeError:
        return False
    return True


def cc(*wait, read="-", write="-", yields="-"):
    """A control code that waits for the scoreboards ``wait`` and sets those that are given."""
    mask = f"{sum(1 << sb for sb in wait):02x}" if wait else "--"
    return f"{mask}:{read}:{write}:{yields}:* "


def needs(least):
    """ValueError for an architecture before sm_<least>."""
    if arch(ARCH) not in since(f"sm_{least}"):
        raise ValueError(f"this is for sm_{least} and later, not for {ARCH}: say --arch sm_90")


def only(name, what):
    """ValueError for another architecture than ``name``, which has ``what``."""
    if arch(ARCH) != arch(name):
        raise ValueError(f"this is for {name}, which has {what}, not for {ARCH}")


def choose(name, default, known):
    """The parameter that -D gives, or the default; ValueError names what it can be, if these are many the first."""
    found = {str(one): one for one in known}.get(str(globals().get(name, default)))
    if found is None:
        some = ", ".join(map(str, list(known)[:12]))
        raise ValueError(f"-D {name}={globals()[name]}: there are {some}{', ...' if len(known) > 12 else ''}")
    return found


FFMA_CYCLES = latencies(ARCH).issue(instruction(ISA, ISA.encode("FFMA R0, R0, R0, R0", 0, {})))  # from one to the next
SYS = has("LDG.E.SYS R0, [R2]")  # loads and stores say that they are for the whole system
SMEM = arch(ARCH).shared_counted  # where a block's shared memory begins; the system has what lies before
# The next kernel may begin: it waits as this one does (ACQBULK), ahead of its first load, for the one before it to end.
PREEXIT, ACQBULK = (["PREEXIT"], ["ACQBULK"]) if has("PREEXIT") else ([], [])
AT = arch(ARCH).global_descriptor
DESCRIPTOR = [] if AT is None else [f"ULDC.64 UR4, c[0x0][0x{AT:x}]"]
if AT is not None and not has(DESCRIPTOR[0]):  # .preload makes moves of these
    DESCRIPTOR = [f"ULDC UR{4 + n}, c[0x0][0x{AT + 4 * n:x}]" for n in (0, 1)]
HIDDEN = "~" if has("LDG.E R0, ~desc[UR4][R2.64]") else ""  # nvdisasm does not show the descriptor


def memory(pair, offset=0):
    """A global address: the pair of registers from ``pair`` on."""
    return f"{HIDDEN}desc[UR4][{pair}.64+0x{offset:x}]" if DESCRIPTOR else f"[{pair}+0x{offset:x}]"


def uniform(pair, offset):
    """A global address that all lanes have: the pair of uniform registers from ``pair`` on. sm_80 and later."""
    lane = "" if has("LDG.E R0, [UR4]") else "RZ.U32+"
    return f"[{lane}{pair}{f'+{offset:#x}' if offset else ''}]"


def ldg(to, address, size=""):
    return f"LDG.E{size}{'.SYS' * SYS} {to}, {address}"


def stg(address, value, size=""):
    return f"STG.E{size}{'.SYS' * SYS} {address}, {value}"


# Unsigned division by a number that is known late. Once, its inverse m = 2^32 / b, which is too small by less than 2;
# then q = a m / 2^32, too small by 1 at most for a < 2^31, which the remainder tells. inverse() and quotient() have a
# pair of registers for IMAD.WIDE, and take b from a parameter; reciprocal() and divide() have one register, for b.


def estimate(m, b, sb, least="*"):
    """m: the inverse, right in its upper bits. Takes scoreboard sb."""
    here = f"{1 << sb:02x}"
    return [
        f"--:-:{sb}:-:{least} I2F.U32.RP {m}, {b}",
        f"{here}:-:{sb}:-:{least} MUFU.RCP {m}, {m}",
        f"{here}:-:-:-:* IADD3 {m}, {m}, 0xffffffe, RZ",
        f"--:-:{sb}:-:{least} F2I.FTZ.U32.TRUNC.NTZ {m}, {m}",
    ]


def corrected(q, r, b, p="P0"):
    """q, r: right if q is too small by 1."""
    return [
        f"ISETP.GE.U32.AND {p}, PT, {r}, {b}, PT",
        f"@{p} IADD3 {r}, {r}, -{b}, RZ",
        f"@{p} IADD3 {q}, {q}, 0x1, RZ",
    ]


def inverse(n, b):
    """inv<n>: the inverse of the parameter b. Takes the pair of x0 or y0 or z0, and scoreboard n."""
    low, high = f"{'xyz'[n]}0", f"{'xyz'[n]}1"
    return [
        *estimate(f"inv{n}", b, n),
        f"{cc(n)} IADD3 {low}, RZ, -inv{n}, RZ",
        f"IMAD {low}, {low}, {b}, RZ",  # what is missing of 2^32
        f"IMAD.WIDE.U32 {low}, inv{n}, {low}, RZ",
        f"IADD3 inv{n}, inv{n}, {high}, RZ",
    ]


def quotient(q, r, a, n, b):
    """q, r = divmod(a, b). Takes the pair of x0. Text."""
    lines = [
        f"IMAD.WIDE.U32 x0, inv{n}, {a}, RZ",
        f"MOV {q}, x1",
        "IADD3 x0, RZ, -x1, RZ",
        f"IMAD {r}, x0, {b}, {a}",
        *corrected(q, r, b),
    ]
    return "\n".join(["", *lines])


def reciprocal(m, b, t, sb=5):
    """m: the inverse of b. Takes the register t, which m may not be, and scoreboard sb. Text."""
    lines = [
        f"MOV {t}, {b}",
        *estimate(m, t, sb, 2),
        f"{1 << sb:02x}:-:-:-:* IMAD {t}, {t}, {m}, RZ",
        f"IADD3 {t}, -{t}, RZ, RZ",
        f"IMAD.HI.U32 {t}, {m}, {t}, RZ",
        f"IADD3 {m}, {m}, {t}, RZ",
    ]
    return "\n".join(lines) + "\n"


def divide(q, r, a, b, m, t, p="P0"):
    """q, r = divmod(a, b), by the inverse m. Takes the register t. Text."""
    lines = [
        f"MOV {t}, {b}",
        f"IMAD.HI.U32 {q}, {a}, {m}, RZ",
        f"IADD3 {r}, -{q}, RZ, RZ",
        f"IMAD {r}, {r}, {t}, {a}",
        *corrected(q, r, t, p),
    ]
    return "\n".join(lines) + "\n"


def table(regs, params):
    """Names for settle(), and the text of the blocks <regs> and <params> that declare them."""
    registers = [line.strip() for line in code(regs) if line.strip()]
    parameters = [one.strip() for line in code(params) for one in line.split(";") if one.strip()]
    names = Names(arch(ARCH))
    for line in registers:
        names.register(line, None)
    for one in parameters:
        names.parameter(one.replace(" ", "").split(","), None)
    return names, "\n".join(["<regs>", *registers, "</regs>", "<params>", *parameters, "</params>", ""])


def code(*some):
    """The lines of strings, and of what yields strings, without comments."""
    for part in some:
        if isinstance(part, str):
            yield from (line.partition("#")[0] for line in part.splitlines())
        else:
            yield from code(*part)

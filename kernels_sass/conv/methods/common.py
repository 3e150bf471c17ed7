"""What the inline Python of the convolutions' sources has in common. They include this file, so that ARCH and what -D
gives are globals here.

Stalls and reuse flags are worked out by turingas/scheduler: ``settle(lines, names)`` of it, ``Weave`` and others are
names of the sources too, for which they are imported here.
"""

from turingas.isa.arch import arch
from turingas.scheduler import Line, Weave, parts, settle, stalls  # noqa: F401
from turingas.source.names import Names

SM = arch(ARCH).sm


def cc(*wait, read="-", write="-", yields="-"):
    """A control code that waits for the scoreboards ``wait`` and sets those that are given."""
    mask = f"{sum(1 << sb for sb in wait):02x}" if wait else "--"
    return f"{mask}:{read}:{write}:{yields}:* "


def needs(least):
    """ValueError for an architecture before sm_<least>."""
    if SM < least:
        raise ValueError(f"this is for sm_{least} and later, not for {ARCH}: say --arch sm_90")


def choose(name, default, known):
    """The parameter that -D gives, or the default; ValueError names what it can be, if these are many the first."""
    found = {str(one): one for one in known}.get(str(globals().get(name, default)))
    if found is None:
        some = ", ".join(map(str, list(known)[:12]))
        raise ValueError(f"-D {name}={globals()[name]}: there are {some}{', ...' if len(known) > 12 else ''}")
    return found


SMEM = 1024 if SM >= 90 else 0  # where a block's shared memory begins; the system has what lies before
# The next kernel may begin: it waits as this one does (ACQBULK), ahead of its first load, for the one before it to end.
PREEXIT, ACQBULK = (["PREEXIT"], ["ACQBULK"]) if SM >= 90 else ([], [])
DESCRIPTOR = [f"ULDC.64 UR4, c[0x0][0x{arch(ARCH).global_descriptor:x}]"] if SM >= 80 else []


def memory(pair, offset=0):
    """A global address: the pair of registers from ``pair`` on."""
    if SM >= 80:
        return f"{'' if SM >= 90 else '~'}desc[UR4][{pair}.64+0x{offset:x}]"
    return f"[{pair}+0x{offset:x}]"


def uniform(pair, offset):
    """A global address that all lanes have: the pair of uniform registers from ``pair`` on. sm_80 and later."""
    return f"[{'RZ.U32+' if SM >= 90 else ''}{pair}{f'+{offset:#x}' if offset else ''}]"


def ldg(to, address, size=""):
    return f"LDG.E{size}{'.SYS' if SM < 80 else ''} {to}, {address}"


def stg(address, value, size=""):
    return f"STG.E{size}{'.SYS' if SM < 80 else ''} {address}, {value}"


def inverse(n, b):
    """inv<n>: 2^32 / b, or a little less, for the parameter b. Takes the pair of x0 or y0 or z0, and scoreboard n."""
    low, high = f"{'xyz'[n]}0", f"{'xyz'[n]}1"
    return [
        f"{cc(write=n)} I2F.U32.RP inv{n}, {b}",
        f"{cc(n, write=n)} MUFU.RCP inv{n}, inv{n}",
        f"{cc(n)} IADD3 inv{n}, inv{n}, 0xffffffe, RZ",
        f"{cc(write=n)} F2I.FTZ.U32.TRUNC.NTZ inv{n}, inv{n}",
        f"{cc(n)} IADD3 {low}, RZ, -inv{n}, RZ",
        f"IMAD {low}, {low}, {b}, RZ",  # what is missing of 2^32
        f"IMAD.WIDE.U32 {low}, inv{n}, {low}, RZ",
        f"IADD3 inv{n}, inv{n}, {high}, RZ",
    ]


def quotient(q, r, a, n, b):
    """q, r = divmod(a, b). The inverse is too small by less than 2, so that q is by 1 at most for a < 2^31."""
    return f"""
                    IMAD.WIDE.U32 x0, inv{n}, {a}, RZ
                    MOV {q}, x1
                    IADD3 x0, RZ, -x1, RZ
                    IMAD {r}, x0, {b}, {a}
                    ISETP.GE.U32.AND P0, PT, {r}, {b}, PT
                    @P0 IADD3 {r}, {r}, -{b}, RZ
                    @P0 IADD3 {q}, {q}, 0x1, RZ"""


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

"""What `turingas info` tells of a kernel: resources, instruction mix, and how many warps of it fit on an SM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.flow.graph import Graph
from turingas.flow.known import told
from turingas.isa.arch import Arch
from turingas.isa.descriptors import kinds_of
from turingas.isa.isa import instruction_set
from turingas.listing import PLAIN, Shown

WARP = 32  # threads
REGISTER_ALLOCATION = 256  # registers of a warp are allocated in these
PARTITIONS = 4  # of an SM, each with its own quarter of the registers
BLOCK_SIZES = (32, 64, 128, 256, 512, 1024)


def resident_warps(arch: Arch, registers: int, shared: int, threads: int) -> tuple[int, str]:
    """Warps of one SM that blocks of ``threads`` threads can occupy, and what keeps it from being more. ``shared``:
    bytes of a block, as a cubin declares them: from sm_90 on, the reserved ones are among them."""
    warps = -(-threads // WARP)
    unit = arch.shared_unit
    own = max(shared - arch.shared_counted, 0)
    shared_block = -(-(own + arch.shared_reserved) // unit) * unit
    per_warp = -(-max(registers, 1) * WARP // REGISTER_ALLOCATION) * REGISTER_ALLOCATION
    by_registers = arch.registers_per_sm // PARTITIONS // per_warp * PARTITIONS
    limits = {
        "warps": arch.max_warps // warps,
        "blocks": arch.max_blocks,
        "registers": by_registers // warps,
        "shared memory": arch.shared_per_sm // shared_block if shared_block else arch.max_blocks,
    }
    limit = min(limits, key=lambda name: limits[name])
    return limits[limit] * warps, limit


def instruction_mix(kernel: Kernel) -> Counter[str]:
    """How often each mnemonic occurs, modifiers aside; words that no instruction explains count as `.word`."""
    decode = instruction_set(kernel.arch).decode
    mix: Counter[str] = Counter()
    for word, count in Counter(kernel.words).items():
        first, _, rest = decode(word).partition(" ")
        name = rest.partition(" ")[0] if first.startswith("@") else first
        mix[name if name.startswith(".") else name.partition(".")[0]] += count
    return mix


def descriptors(kernel: Kernel) -> Counter[tuple[str, str, str]]:
    """How often which descriptor is taken, as far as the code alone tells: mnemonic, operand, text."""
    if not any(kinds_of(base) for base in instruction_mix(kernel)):
        return Counter()
    graph = Graph(kernel)
    return Counter(
        (graph.text(n).split()[graph.text(n).startswith("@")].partition(".")[0], of, text)
        for n, every in told(graph).items() for of, text in every
    )  # fmt: skip


def describe(cubin: Cubin) -> Iterator[str]:
    """The lines that `turingas info` prints."""
    yield f"architecture {cubin.arch}, {_count(len(cubin.kernels), 'kernel')}"
    for kernel in cubin.kernels:
        yield ""
        yield from _kernel(kernel)


def as_dict(cubin: Cubin) -> dict[str, Any]:
    """The same for programs."""
    kernels = []
    for kernel in cubin.kernels:
        kernels.append(resources(kernel) | {
            "occupancy": [
                {"threads": threads, "warps": warps, "limited_by": limit} for threads in BLOCK_SIZES
                for warps, limit in [resident_warps(kernel.facts, kernel.registers, kernel.shared_bytes, threads)]
            ],
            "descriptors": [{"instruction": name, "operand": of, "fields": text, "count": count}
                            for (name, of, text), count in descriptors(kernel).items()],
            "mix": dict(instruction_mix(kernel).most_common()),
        })  # fmt: skip
    return {"arch": cubin.arch, "kernels": kernels}


def resources(kernel: Kernel) -> dict[str, Any]:
    """Those of a kernel, for programs."""
    base = kernel.facts.param_base
    return {
        "name": kernel.name, "instructions": len(kernel.words), "registers": kernel.registers,
        "shared_bytes": kernel.shared_bytes, "barriers": kernel.barriers, "local_bytes": kernel.frame_bytes,
        "parameters": [{"name": p.name, "bytes": p.size, "constant_bank_0": base + p.offset} for p in kernel.params],
    }  # fmt: skip


def listing(cubin: Cubin, shown: Shown = PLAIN) -> dict[str, Any]:
    """Kernels and functions as data: each instruction with its address, its word and its text, and the line of its
    source where that is known."""
    decode = instruction_set(cubin.arch).lines
    kernels = []
    for text in cubin.texts:
        if not shown.wants(text):
            continue
        rows: list[dict[str, Any]] = [
            {"address": 16 * n, "word": f"0x{word:032x}", "text": line}
            for n, (word, line) in enumerate(zip(text.words, decode(text.words)))
        ]
        for row, (file, line) in zip(rows, text.lines):
            row.update({"file": file, "line": line} if line else {})
        kernels.append({"name": text.name, "kernel": text.entry, "registers": text.registers, "instructions": rows})
    return {"arch": cubin.arch, "texts": kernels}


def _kernel(kernel: Kernel) -> Iterator[str]:
    words = len(kernel.words)
    yield f"kernel {kernel.name}"
    yield f"  code           {_count(words, 'instruction')}, {16 * words} bytes"
    yield f"  registers      {kernel.registers} a thread"
    counted = kernel.facts.shared_counted
    kept = f", {counted} of them the system's" if 0 < counted <= kernel.shared_bytes else ""
    yield f"  shared memory  {kernel.shared_bytes} bytes, static{kept}"
    yield f"  barriers       {kernel.barriers}"
    yield f"  local memory   {kernel.frame_bytes} bytes a thread"
    yield f"  parameters     {_count(len(kernel.params), 'parameter')}, {kernel.param_bytes} bytes"
    base = kernel.facts.param_base
    for number, param in enumerate(kernel.params):
        place = f"c[0x0][0x{base + param.offset:x}]"
        line = f"    {number}: {param.name or '-':16} {param.size:5} bytes at {place}"
        yield f"{line}  {param.type}" if param.type else line
    yield "  occupancy      threads a block: resident warps of an SM, and what limits them"
    for threads in BLOCK_SIZES:
        warps, limit = resident_warps(kernel.facts, kernel.registers, kernel.shared_bytes, threads)
        share = 100 * warps / kernel.facts.max_warps
        yield f"    {threads:5}: {warps:3} of {kernel.facts.max_warps} ({share:3.0f}%), limited by {limit}"
    mix = instruction_mix(kernel)
    if found := descriptors(kernel):
        yield "  descriptors    what the code alone tells of them, and how often"
        for (name, of, text), count in found.items():
            yield f"    {count:4}  {name} {of}: {text}"
    yield "  instructions"
    for name, count in mix.most_common():
        yield f"    {name:12} {count:8} {100 * count / max(words, 1):5.1f}%"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")

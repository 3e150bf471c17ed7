"""Write random PTX kernels, so that ptxas combines what single forms cannot show: carries, predicates under pressure,
uniform and divergent values in one instruction, fused operations, loops and branches.

The instructions are those of ptx_table.txt without addresses, textures and barriers. Every kernel keeps a pool of live
registers of each kind, parts of it uniform (from parameters), and writes the pool to memory at its end.

    python -m tests.tools.ptx_random OUT_FOLDER sm_75 ... [--seed=1] [--files=20] [--uniform=1] [--version=8.8]
                                                          [-maxrregcount=24]
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.tools.ptx_forms import OPERAND, REGISTER, Form, forms_for
from tests.tools.ptxas import PtxasError, assemble_ptx

POOL = {"b16": 4, "b32": 14, "b64": 6, "f32": 10, "f64": 4, "pred": 7}  # live registers of each kind, in the mean
AVOID = re.compile(
    r"\[|%|trap|brkpt|exit|bar|sync|fence|membar|tensor|multimem|wgmma|mma|stack|alloca|pmevent|nanosleep|tex|tld4"
    r"|cp\.|griddep|elect|setmaxnreg|b128|div|rem|sqrt|isspacep|cvta|mapa|getctarank|istypep|fns|policy|testp"
)
SOMETIMES = re.compile(r"vadd|vsub|vabs|vmin|vmax|vavrg|vset|vshl|vshr|vmad|f64|cvt|\.u8|f16|sad|rcp|24")
UNIFORM = re.compile(  # what the uniform datapath has
    r"^(add|sub|mul|mad|min|max|and|or|xor|not|lop3|shl|shr|shf|setp\.\w+(\.\w+)?\.[su](32|64)|selp|prmt|bfe|bfi|bmsk|popc|brev"
    r"|bfind|clz|mov|vote|cvt\.[us]\d+\.[us]|neg|abs|slct|szext)(?!.*(f16|f32|f64))"
)
REGISTERS = re.compile(r"%(b16|b32|b64|f32|f64|pred)_(\d+)")
CONSTANT = {"b16": ("7", "-3"), "b32": ("5", "0x7fff0001", "-1", "31"), "b64": ("9", "0x123456789"),
            "f32": ("0f3F800000", "0f40490FDB", "0fBF000000"), "f64": ("0d3FF0000000000000",)}  # fmt: skip


class Kernel:
    """One random kernel: registers by kind, lines of text."""

    def __init__(
        self, chance: random.Random, forms: Sequence[Form], rare: Sequence[Form], number: int, size: int, uniform: bool
    ) -> None:
        self.uniform = uniform  # every value is the same in all threads
        self.chance, self.forms, self.rare, self.size = chance, forms, rare, size
        self.lines: list[str] = []
        self.pools: dict[str, list[str]] = {kind: [] for kind in POOL}
        self.count = self.labels = 0
        self.number = number

    def new(self, kind: str) -> str:
        """Name a fresh register."""
        self.count += 1
        return f"%{kind}_{self.count}"

    def keep(self, kind: str, name: str) -> None:
        """Add a value to the pool; an old one falls out when it is full."""
        pool = self.pools[kind]
        pool.append(name)
        if len(pool) > POOL[kind] * 1.5:
            pool.pop(self.chance.randrange(len(pool)))

    def source(self, kind: str, literal: bool = True) -> str:
        """Choose a live register, or a constant."""
        if literal and kind in CONSTANT and self.chance.random() < 0.12:
            return self.chance.choice(CONSTANT[kind])
        return self.chance.choice(self.pools[kind])

    def seed(self) -> None:
        """Fill the pools: parameters (uniform), the thread's index and loads (divergent)."""
        for kind in POOL:
            for turn in range(3):
                name = self.new(kind)
                size = {"b16": 2, "b64": 8, "f64": 8}.get(kind, 4)
                if kind == "pred":
                    how, (left, right) = self.chance.choice(["lt.s32", "eq.s32", "hi.u32"]), self.pools["b32"][:2]
                    self.lines.append(f"setp.{how} {name}, {left}, {right};")
                elif turn < 2 or self.uniform:
                    self.lines.append(f"ld.param.{kind} {name}, [num+{8 * self.chance.randrange(16)}];")
                else:
                    self.lines.append(f"ld.global.{kind} {name}, [%in+{size * self.chance.randrange(64)}];")
                self.keep(kind, name)
        for special in ("ctaid.x", "ctaid.y") if self.uniform else ("tid.x", "ctaid.x", "ntid.y", "laneid"):
            name = self.new("b32")
            self.lines.append(f"mov.u32 {name}, %{special};")
            self.keep("b32", name)

    def instruction(self) -> None:
        """Add one random instruction; destinations inside conditional code are registers that exist already."""
        roll = self.chance.random()
        if roll < 0.08:  # the same bits as another kind
            a, b = self.chance.choice([("b32", "f32"), ("f32", "b32"), ("b64", "f64"), ("f64", "b64")])
            name = self.new(b)
            self.lines.append(f"mov.{'b32' if '32' in a else 'b64'} {name}, {self.source(a, False)};")
            self.keep(b, name)
            return
        if roll < 0.12 and not self.uniform:
            kind = self.chance.choice(["b32", "f32", "b64", "b16"])
            name, at = self.new(kind), self.new("b64")
            self.lines.append(f"mul.wide.u32 {at}, {self.source('b32', False)}, 8; add.u64 {at}, {at}, %in;")
            self.lines.append(f"ld.global.{kind} {name}, [{at}+{8 * self.chance.randrange(-9, 9)}];")
            self.keep(kind, name)
            return
        form = self.chance.choice(self.rare if self.chance.random() < 0.15 else self.forms)
        results: list[tuple[str, str]] = []
        guard = f"@{self.chance.choice(['', '!'])}{self.source('pred')} " if self.chance.random() < 0.15 else ""

        def replace(match: re.Match[str]) -> str:
            kind, names = REGISTER[match[2]], []
            for _ in range(int(match[3] or 1)):
                if match[1] == "=" and not guard:
                    results.append((kind, self.new(kind)))
                    names.append(results[-1][1])
                else:
                    after = form.text[match.end() : match.end() + 1]
                    names.append(self.source(kind, not match[1] and after != "."))
            return ", ".join(names)

        text = OPERAND.sub(replace, form.text)
        if guard and ";" in text:
            guard = ""
        self.lines.append(f"{guard}{text};")
        for kind, name in results:
            self.keep(kind, name)

    def block(self, depth: int, length: int) -> None:
        """Add instructions, branches and loops."""
        while length > 0:
            roll = self.chance.random()
            if depth < 3 and roll < 0.05:
                label, inner = self.label(), self.chance.randrange(2, 12)
                saved = {kind: list(pool) for kind, pool in self.pools.items()}
                sign, uniform = self.chance.choice(["", "!"]), self.chance.choice(["", "", ".uni"])
                self.lines.append(f"@{sign}{self.source('pred')} bra{uniform} {label};")
                self.block(depth + 1, inner)
                self.merge(saved)
                self.lines.append(f"{label}:")
                length -= inner
            elif depth < 2 and roll < 0.075:
                label, inner, i, p = self.label(), self.chance.randrange(3, 14), self.new("b32"), self.new("pred")
                bound = self.source("b32")
                self.lines += [f"mov.u32 {i}, 0;", f"{label}:"]
                saved = {kind: list(pool) for kind, pool in self.pools.items()}
                self.pools["b32"].append(i)
                self.block(depth + 1, inner)
                self.merge(saved)
                step = self.chance.choice(["1", "4", self.source("b32")])
                self.lines += [f"add.u32 {i}, {i}, {step};", f"setp.lt.s32 {p}, {i}, {bound};", f"@{p} bra {label};"]
                length -= inner
            else:
                self.instruction()
                length -= 1

    def merge(self, saved: dict[str, list[str]]) -> None:
        """Leave conditional code: move some of its values to registers that live on, drop the others."""
        for kind, pool in self.pools.items():
            fresh = [name for name in pool if name not in saved[kind]]
            for name in fresh[:3]:
                move = f"mov.{kind}" if kind != "pred" else "mov.pred"
                self.lines.append(f"{move} {self.chance.choice(saved[kind])}, {name};")
        self.pools = saved

    def label(self) -> str:
        """Name a label."""
        self.labels += 1
        return f"L_{self.number}_{self.labels}"

    def text(self) -> list[str]:
        """Write the kernel."""
        self.seed()
        self.block(0, self.size)
        place = 0
        for kind, pool in self.pools.items():
            for name in pool:
                place += 8
                if kind == "pred":
                    self.lines.append(f"selp.b32 %last, {place}, 0, {name}; st.global.b32 [%out+{place}], %last;")
                else:
                    self.lines.append(f"st.global.{kind} [%out+{place}], {name};")
        declared = [f".reg .{kind} %{kind}_<{self.count + 1}>;" for kind in POOL]
        return [
            f".visible .entry random_{self.number}(.param .u64 src, .param .u64 dst, .param .align 16 .b8 num[512]) {{",
            *declared,
            ".reg .b64 %in, %out, %wide; .reg .b32 %thr, %last;",
            "ld.param.u64 %in, [src]; ld.param.u64 %out, [dst]; mov.u32 %thr, %tid.x; mul.wide.u32 %wide, %thr, 4096;",
            "cvta.to.global.u64 %in, %in; add.u64 %in, %in, %wide;",
            "cvta.to.global.u64 %out, %out; add.u64 %out, %out, %wide;",
            *self.lines,
            "ret;",
            "}",
        ]


def instead(lines: Sequence[str], number: int) -> str:
    """What stands in the place of a line that ptxas refuses: zeros for the registers that it was to define, which would
    be read unwritten else."""
    start = max(n for n in range(number) if lines[n].startswith(".visible"))
    before = " ".join(line for line in lines[start:number] if not line.startswith((".reg", ".visible")))
    known = set(REGISTERS.findall(before))
    new = [pair for pair in dict.fromkeys(REGISTERS.findall(lines[number])) if pair not in known]
    zero = {"f32": "0f00000000", "f64": "0d0000000000000000"}
    return " ".join(f"mov.{kind} %{kind}_{index}, {zero.get(kind, '0')};" for kind, index in new)


def make(
    arch: str, forms: Sequence[Form], chance: random.Random, options: Sequence[str], uniform: bool, version: str,
    kernels: int = 24,
) -> bytes | None:
    """Assemble a file of random kernels, leaving out lines that ptxas refuses."""
    plain = [f for f in forms if not SOMETIMES.search(f.text)]
    rare = [f for f in forms if SOMETIMES.search(f.text)]
    lines = [f".version {version}", f".target {arch}", ".address_size 64"]
    for number in range(kernels):
        lines += Kernel(chance, plain, rare, number, chance.choice([30, 80, 160]), uniform).text()
    for _ in range(60):
        try:
            return assemble_ptx("\n".join(lines) + "\n", arch, options, 100)
        except subprocess.TimeoutExpired:
            return None
        except PtxasError as error:
            bad = {int(n) for n in re.findall(r"line (\d+); *(?:error|fatal)", str(error))}
            if not bad or min(bad) < 4:  # the head of the file
                print(arch, str(error)[:300])
                return None
            for number in bad:
                lines[number - 1] = instead(lines, number - 1)
    return None


def main(arguments: Sequence[str]) -> None:
    """Write random cubins for the architectures named."""
    values = dict(a[2:].split("=", 1) for a in arguments if a.startswith("--"))
    options = [a for a in arguments if a.startswith("-") and not a.startswith("--")]
    folder, *archs = [a for a in arguments if not a.startswith("-")]
    seed, files = int(values.get("seed", 1)), int(values.get("files", 20))
    for arch in archs:
        out = Path(folder, arch)
        out.mkdir(parents=True, exist_ok=True)
        forms = [f for f in forms_for(arch) if not AVOID.search(f.text)]
        refused = out / "forms_refused.txt"
        if refused.exists():
            lost = {line.split("\t")[0] for line in refused.read_text().splitlines()}
            forms = [f for f in forms if f.text not in lost]
        if "uniform" in values:
            forms = [f for f in forms if UNIFORM.search(f.text)]
        made = 0
        for number in range(files):
            cubin = make(arch, forms, random.Random(f"{seed} {number} {arch}"), options, "uniform" in values,
                         values.get("version", "8.8"))  # fmt: skip
            if cubin:
                tag = "".join(o.replace("=", "") for o in options)
                out.joinpath(f"random{tag}_{seed}_{number:03}.cubin").write_bytes(cubin)
                made += 1
        print(f"{arch}: {len(forms)} forms, {made} files", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Random programs whose result the language defines, so that every compiler, architecture and optimisation level must
leave the same bits in memory, whichever instructions it chose.

A program is CUDA C++ of one kernel: every thread has variables of all types, works on them in branches, loops, switches
and functions (recursive ones and pointers to them too), trades values with its warp and its block where all threads
come by, counts with atomics whose order does not show, and writes its variables to memory at last. Signed arithmetic
is done unsigned, divisors are looked at, shift counts masked, floats become bits only after all NaNs are made one, and
nothing is used that hardware approximates.

    python -m tests.emulate.programs --count 50 --seed 1 [--modes]     # prints what differs, keeps no files

``--modes`` runs each cubin in the CPU device's other modes too: strict, stale, small waves, several workers.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.tools import nvrtc
from turingas.emulate import DeviceError, launch

BLOCKS, THREADS = 2, 96
INPUTS = 1536  # of 64 bits, for each block
KEPT, LOCAL = 24, 8  # variables and elements of a local array that each thread writes at its end
STACK = 8192  # bytes; recursive functions compiled with -G need more than the 1024 that are the default

#: architecture and options of NVRTC
COMPILERS = [
    ("sm_70", ()),
    ("sm_75", ()),
    ("sm_80", ()),
    ("sm_86", ("--ptxas-options=-O1",)),
    ("sm_89", ()),
    ("sm_90", ()),
    ("sm_75", ("--ptxas-options=-O0",)),
    ("sm_90", ("-G",)),
]

INTEGERS = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")
TYPES = (*INTEGERS, "f32", "f64", "h", "h2")
OFTEN = ("u32", "i32", "u32", "f32", "u64", "i64")

CONSTANTS = {
    **{t: ("0", "1", "2", "7", "0x55", "-1", "-2", f"1ull << {int(t[1:]) - 1}", f"(1ull << {int(t[1:]) - 1}) - 1",
           "0x123456789abcdefull") for t in INTEGERS},
    "f32": ("1.0f", "-0.5f", "3.25f", "1e-40f", "-0.0f", "16777217.0f", "0.1f", "-3e38f", "0x1p-149f"),
    "f64": ("1.0", "-0.5", "3.25", "1e-310", "-0.0", "4503599627370497.5", "0.1", "-1e308"),
    "h": tuple(f"to_h({n:#x}u)" for n in (0x3C00, 0xB800, 0x7BFF, 1, 0x8000, 0x3555)),
    "h2": tuple(f"to_h2({n:#x}u)" for n in (0x3C003C00, 0xB8007BFF, 0x00018000, 0x3555C000)),
}  # fmt: skip

# Expressions of each type: {u32} is an expression of that type, {self} of the same type, {any} of any integer type,
# {a|b} a choice, {type} the type's name, {unsigned} that of the unsigned type as wide, {low} the greatest shift.
# ptx2(text) and ptx3(text) stand for functions that are a PTX instruction with so many sources of 32 bits.
_SMALL = (
    "({type})((u32){self} {+|-|*|&|^} (u32){self})",
    "({type})((u32){self} << ({u32} & {low}))",
    "({type})({self} >> ({u32} & {low}))",
    "({type}){min|max}((i32){self}, (i32){self})",
    "({type}){quotient|remainder}({self}, {self})",
)
_WIDE = (
    *("({type})(({unsigned}){self} {+|-|*} ({unsigned}){self})",) * 2,
    "({self} {&|^} {self})",
    "({self} | {self})",
    "({type})~{self}",
    "({type})(({unsigned}){self} << ({u32} & {low}))",
    "({self} >> ({u32} & {low}))",
    "{min|max}({self}, {self})",
    "{quotient|remainder}({self}, {self})",
    "({condition} ? {self} : {self})",
)
_WORD = (
    *_WIDE,
    "({type}){__popc|__clz|__ffs|__brev}({self})",
    "({type}){__popcll|__clzll|__ffsll}({i64})",
    "({type}){__umulhi|__uhadd|__urhadd|__umul24}({u32}, {u32})",
    "({type}){__mulhi|__hadd|__rhadd|__mul24}({i32}, {i32})",
    "({type})__byte_perm({u32}, {u32}, {u32})",
    "({type}){__vadd4|__vsub2|__vmaxs4|__vminu2|__vabsdiffs4|__vcmpgts2|__vavgu4|__vaddss4|__vsetltu4|__vsads2|__vcmpeq4"
    "|__vsubus2|__vhaddu4}({u32}, {u32})",
    "({type})ptx2({shl.b32|shr.u32|shr.s32|mul.hi.s32|mul.hi.u32|add.sat.s32|sub.sat.s32|mul24.lo.s32|mul24.hi.u32"
    "|vadd.s32.u32.s32.sat|vsub.u32.s32.u32|vabsdiff.u32.s32.s32|vmin.s32.s32.u32|vshl.u32.u32.u32.clamp"
    "|vshr.u32.u32.u32.wrap|bmsk.clamp.b32|bmsk.wrap.b32|szext.clamp.s32|szext.wrap.u32})({u32}, {u32})",
    "({type})ptx3({bfe.u32|bfe.s32|prmt.b32|prmt.b32.f4e|prmt.b32.b4e|prmt.b32.rc8|prmt.b32.ecl|prmt.b32.ecr"
    "|prmt.b32.rc16|mad.lo.u32|mad.hi.u32|mad.hi.s32|mad.hi.sat.s32|mad24.lo.u32|mad24.hi.s32|sad.s32|sad.u32"
    "|shf.l.clamp.b32|shf.l.wrap.b32|shf.r.clamp.b32|shf.r.wrap.b32|slct.u32.s32|dp4a.u32.u32|dp4a.s32.u32|dp4a.u32.s32"
    "|dp4a.s32.s32|dp2a.lo.u32.s32|dp2a.hi.s32.s32|lop3.b32})({u32}, {u32}, {u32})",
    "({type})ptx3({vadd|vsub|vavrg|vabsdiff|vmin|vmax}{2|4}.{s32.u32.s32|u32.s32.u32|u32.u32.u32|s32.s32.s32}"
    "{.sat|.add|})({u32}, {u32}, {u32})",
)  # fmt: skip
_LONG = (
    *_WIDE,
    "({type})__brevll({self})",
    "({type}){__umul64hi({u64}, {u64})|__mul64hi({i64}, {i64})}",
    "({type})((u64){u32} * (u64){u32} + {u64})",
    "({type})((i64){i32} * (i64){i32})",
)
_HALF_PAIR = (
    *("{__hadd|__hsub|__hmul}2{_sat|_rn|}({h2}, {h2})",) * 2,
    "{__hfma2|__hfma2_sat}({h2}, {h2}, {h2})",
    "{__hneg2|__habs2|h2floor|h2rint|__lowhigh2highlow|__low2half2|__high2half2}({h2})",
    "{__hmin2|__hmax2|__heq2|__hltu2|__hgt2}({h2}, {h2})",
    "__halves2half2({h}, {h})",
    "__floats2half2_rn({f32}, {f32})",
    "to_h2({u32})",
)
EXPRESSIONS: dict[str, Sequence[str]] = {
    **dict.fromkeys(("u8", "i8", "u16", "i16"), _SMALL),
    **dict.fromkeys(("u32", "i32"), _WORD),
    **dict.fromkeys(("u64", "i64"), _LONG),
    "f32": (
        *("({f32} {+|-|*} {f32})",) * 2,
        "({f32} / {f32})",
        "__{fadd|fsub|fmul|fdiv}_{rn|rz|ru|rd}({f32}, {f32})",
        *("__fmaf_{rn|rz|ru|rd}({f32}, {f32}, {f32})",) * 2,
        "__{fsqrt|frcp}_{rn|rz|ru|rd}({f32})",
        "{sqrtf|fabsf|floorf|ceilf|rintf|truncf|roundf|__saturatef|-}({f32})",
        "{fminf|fmaxf|copysignf|fdimf}({f32}, {f32})",
        "ldexpf({f32}, (i32){i8})",
        "to_f32({u32})",
    ),
    "f64": (
        *("({f64} {+|-|*} {f64})",) * 2,
        "({f64} / {f64})",
        "__{dadd|dsub|dmul|ddiv}_{rn|rz|ru|rd}({f64}, {f64})",
        *("__fma_{rn|rz|ru|rd}({f64}, {f64}, {f64})",) * 2,
        "__{dsqrt|drcp}_{rn|rz|ru|rd}({f64})",
        "{sqrt|fabs|floor|ceil|rint|trunc|round|-}({f64})",
        "{fmin|fmax|copysign}({f64}, {f64})",
        "to_f64({u64})",
    ),
    "h": (
        *("{__hadd|__hsub|__hmul}{_sat|_rn|}({h}, {h})",) * 2,
        "{__hfma|__hfma_sat}({h}, {h}, {h})",
        "{__hneg|__habs|hfloor|hceil|hrint|htrunc}({h})",
        "{__hmin|__hmax}({h}, {h})",
        "{__low2half|__high2half}({h2})",
        "to_h({u32})",
    ),
    "h2": _HALF_PAIR,
}
_TO_INTEGER = (
    "({type}){bits({f32})|bits({f64})|bits({h})|bits({h2})}",
    "({type})__float2{uint|int|ull|ll}_{rn|rz|ru|rd}({f32})",
    "({type})__double2{uint|int|ull|ll}_{rn|rz|ru|rd}({f64})",
    "({type})__half2{int|uint|short|ushort|ll|ull}_{rn|rz|ru|rd}({h})",
    *("({type}){any}",) * 2,
)
CONVERSIONS: dict[str, Sequence[str]] = {
    **dict.fromkeys(INTEGERS, _TO_INTEGER),
    "f32": (
        "{__uint2float_{rn|rz|ru|rd}({u32})|__int2float_{rn|rz|ru|rd}({i32})}",
        "{__ull2float_{rn|rz|ru|rd}({u64})|__ll2float_{rn|rz|ru|rd}({i64})}",
        "__double2float_{rn|rz|ru|rd}({f64})",
        "__half2float({h})",
        "(f32){any}",
    ),
    "f64": ("{__ull2double_{rn|rz|ru|rd}({u64})|__ll2double_{rn|rz|ru|rd}({i64})}", "(f64){f32}", "(f64){any}"),
    "h": (
        "__float2half_{rn|rz|ru|rd}({f32})",
        "__double2half({f64})",
        "{__int2half_{rn|rz|ru|rd}({i32})|__uint2half_{rn|rz|ru|rd}({u32})|__short2half_{rn|rz|ru|rd}({i16})}",
        "{__ll2half_{rn|rz|ru|rd}({i64})|__ull2half_{rn|rz|ru|rd}({u64})|__ushort2half_{rn|rz|ru|rd}({u16})}",
    ),
    "h2": ("__floats2half2_rn({f32}, {f32})",),
}
CONDITIONS = (
    *("({same} {<|<=|==|!=|>|>=} {same})",) * 5,
    "({condition} && {condition})",
    "({condition} != {condition})",
    "{__hlt|__hgeu|__heq|__hneu}({h}, {h})",
    "(({u32} & {1|4|16|128}) != 0)",
)
#: statements for places where all threads of a block come by; @u32 is a variable
EXCHANGES = (
    "@u32 = __shfl_{sync(ALL, @u32, {u32} & 31|xor_sync(ALL, @u32, 5|up_sync(ALL, @u32, 3|down_sync(ALL, @u32, 17}"
    "{, 16|, 8|});",
    "@u64 = __shfl_{sync(ALL, @u64, {u32} & 31|xor_sync(ALL, @u64, 30|up_sync(ALL, @u64, 1|down_sync(ALL, @u64, 9});",
    "@f64 = __shfl_sync(ALL, @f64, {u32} & 31);",
    "@u32 ^= __ballot_sync(ALL, {condition});",
    "@u32 += {__any_sync|__all_sync}(ALL, {condition});",
    "@u32 ^= __match_any_sync(ALL, {u32} & 7);",
    "@u32 ^= __match_any_sync(ALL, {u64} & 3);",
    "{ int whole; @u32 += __match_all_sync(ALL, {u32} & 1, &whole); @u32 += whole; }",
    "{ u32 some = __ballot_sync(ALL, {condition}); if (some >> lane & 1) { @u32 += __shfl_sync(some, @u32, __ffs(some) "
    "- 1); __syncwarp(some); @u32 ^= __ballot_sync(some, {condition}); } }",
    "@u32 += __syncthreads_{count|and|or}({condition});",
    *(f"in_{t}[tid] = @{t}; __syncthreads(); @{t} = in_{t}[(tid * {{1|3|5|7}} + {{0|1|33|95}}) % {THREADS}]; "
      "__syncthreads();" for t in ("u8", "u16", "u32", "u64", "f64")),
    "{ const uint4 four = ((const uint4 *)in)[(tid + ({u32} & 31)) % 96]; @u32 += four.x ^ four.w; @u32 = four.y - "
    "four.z; }",
    "@u32 += reduced(@u32);",
)  # fmt: skip
ATOMICS = ("Add", "Min", "Max", "And", "Or", "Xor")

PRELUDE = """#include <cuda_fp16.h>
typedef unsigned char u8; typedef signed char i8; typedef unsigned short u16; typedef short i16;
typedef unsigned u32; typedef int i32; typedef unsigned long long u64; typedef long long i64;
typedef float f32; typedef double f64; typedef __half h; typedef __half2 h2;
#define ALL 0xffffffffu
#define INLINE __device__ __forceinline__
INLINE u32 bits(f32 x) { return x != x ? 0x7fffffffu : __float_as_uint(x); }
INLINE u64 bits(f64 x) { return x != x ? 0x7fffffffffffffffull : (u64)__double_as_longlong(x); }
INLINE u16 bits(h x) { return __hisnan(x) ? 0x7fff : __half_as_ushort(x); }
INLINE u32 bits(h2 x) { return bits(__low2half(x)) | (u32)bits(__high2half(x)) << 16; }
template <class T> INLINE u64 bits(T x) { return (u64)x; }
INLINE f32 to_f32(u64 x) { return __uint_as_float((u32)x); }
INLINE f64 to_f64(u64 x) { return __longlong_as_double(x); }
INLINE h to_h(u64 x) { return __ushort_as_half((u16)x); }
INLINE h2 to_h2(u64 x) { return __halves2half2(to_h(x), to_h(x >> 16)); }
template <class T> INLINE T quotient(T a, T b) {
  return b == T(0) ? T(7) : T(-1) < T(0) && b == T(-1) ? T(~a) : T(a / b);
}
template <class T> INLINE T remainder(T a, T b) { return b == T(0) || (T(-1) < T(0) && b == T(-1)) ? T(9) : T(a % b); }
INLINE u32 reduced(u32 a) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(ALL, a) ^ __reduce_max_sync(ALL, (i32)a) ^ __reduce_min_sync(ALL, a)
      ^ __reduce_xor_sync(ALL, a) ^ __reduce_or_sync(ALL, a & 0xff00ff) ^ __reduce_and_sync(ALL, a | 0xff00ff);
#else
  u32 sum = 0, parity = 0, some = 0, every = ~0u, least = ~0u; i32 most = 0x80000000;
  for (int i = 0; i < 32; i++) {
    const u32 v = __shfl_sync(ALL, a, i);
    sum += v; parity ^= v; some |= v & 0xff00ff; every &= v | 0xff00ff; least = min(least, v); most = max(most, (i32)v);
  }
  return sum ^ most ^ least ^ parity ^ some ^ every;
#endif
}
"""


class Program:
    """One random program; the same for a seed. ``source`` is its text."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.variables: list[tuple[str, str]] = []  # those that exist here: name and type
        self.ptx: dict[tuple[str, int], str] = {}  # PTX instructions with their number of sources
        self.functions: list[str] = []
        self.names = 0
        functions = [self._function() for _ in range(self.chance.randrange(4))]
        kernel = self._kernel()
        self.source = "\n".join([PRELUDE, *map(self._wrapper, self.ptx), *functions, *kernel]) + "\n"

    # -- expressions

    def _expand(self, template: str, kind: str, depth: int) -> str:
        """A template with choices made and expressions put in."""
        while (text := CHOICE.sub(lambda m: self.chance.choice(m[1].split("|")), template, count=1)) != template:
            template = text
        text = re.sub(r"ptx([23])\(([^()]*)\)", lambda m: self._instruction(m[2], int(m[1])), text)
        if "{same}" in text:
            kind = self.chance.choice((*TYPES[:10], *OFTEN))
            text = text.replace("{same}", "{self}")
        width = int(kind[1:]) if kind in INTEGERS else 0
        text = text.replace("{type}", kind).replace("{unsigned}", f"u{width}").replace("{low}", str(width - 1))

        def replace(match: re.Match[str]) -> str:
            if match[1] == "condition":
                return self._condition(depth)
            wanted = {"self": kind, "any": self.chance.choice(INTEGERS)}.get(match[1], match[1])
            return self._expression(wanted, depth + 1)

        return re.sub(r"@(\w+)", lambda m: self._variable(m[1]), ATOM.sub(replace, text))

    def _expression(self, kind: str, depth: int = 0) -> str:
        roll = self.chance.random()
        if depth > 3 or roll < 0.15 * (1 + depth):
            return self._variable(kind) if roll < 0.12 * (1 + depth) else self._constant(kind)
        if self.functions and kind == "u32" and roll > 0.97:
            name = self.chance.choice(self.functions)
            return f"{name}({', '.join(self._expression(t, depth + 1) for t in ('u32', 'i64', 'f32'))})"
        if roll > 0.92:
            return f"({self._condition(depth)} ? {self._expression(kind, depth + 1)} : {self._variable(kind)})"
        table = CONVERSIONS if roll > 0.8 else EXPRESSIONS
        return self._expand(self.chance.choice(table[kind]), kind, depth)

    def _condition(self, depth: int) -> str:
        return self._expand(self.chance.choice(CONDITIONS[: 5 if depth > 2 else None]), "", depth + 1)

    def _variable(self, kind: str) -> str:
        return self.chance.choice([name for name, known in self.variables if known == kind])

    def _constant(self, kind: str) -> str:
        text = self.chance.choice(CONSTANTS[kind])
        return f"({kind})({text})" if kind in INTEGERS else text

    def _instruction(self, text: str, sources: int) -> str:
        """The name of a function that is one PTX instruction."""
        return self.ptx.setdefault((text, sources), f"ptx_{len(self.ptx)}")

    def _wrapper(self, key: tuple[str, int]) -> str:
        text, sources = key
        extra = f", {self.chance.randrange(256)}" if text == "lop3.b32" else ""
        places = ", ".join(f"%{n}" for n in range(sources + 1))
        names = "abc"[:sources]
        parameters, values = ", ".join(f"u32 {n}" for n in names), ", ".join(f'"r"({n})' for n in names)
        return (f"INLINE u32 {self.ptx[key]}({parameters}) {{ u32 d; "
                f'asm("{text} {places}{extra};" : "=r"(d) : {values}); return d; }}')  # fmt: skip

    def _name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    # -- statements

    def _block(self, count: int, depth: int, function: bool, loop: bool = False) -> Iterator[str]:
        """Lines of ``count`` statements. ``function``: they may return, but not use what only the kernel has."""
        known = list(self.variables)
        for _ in range(count):
            yield from self._statement(depth, function, loop)
        if depth:
            self.variables = known

    def _statement(self, depth: int, function: bool, loop: bool) -> Iterator[str]:
        chance, roll, few = self.chance, self.chance.random(), self.chance.randrange(1, 4)
        if depth < 3 and roll < 0.13:
            yield f"if ({self._condition(0)}) {{"
            yield from self._block(few, depth + 1, function, loop)
            if chance.random() < 0.5:
                yield "} else {"
                yield from self._block(few, depth + 1, function, loop)
            yield "}"
        elif depth < 2 and roll < 0.20:
            i = self._name("i")
            yield f"{{ const u32 end = {self._expression('u32', 1)} & 7;"
            yield chance.choice(["", "#pragma unroll 1"])
            yield f"for (u32 {i} = 0; {i} < end; {i}++) {{ @u32 += {i};".replace("@u32", self._variable("u32"))
            yield from self._block(few, depth + 1, function, True)
            yield "} }"
        elif depth < 2 and roll < 0.25:
            i = self._name("i")
            yield f"{{ u32 {i} = {self._expression('u32', 1)} & 15; do {{"
            yield from self._block(few, depth + 1, function, True)
            yield f"}} while ({i}-- && {self._condition(1)}); }}"
        elif depth < 3 and roll < 0.30:
            yield f"switch ({self._expression('u32', 1)} & {chance.choice([3, 7])}) {{"
            for n in range(chance.randrange(2, 7)):
                yield f"case {n}: {{"
                yield from self._block(1, depth + 1, function)
                yield chance.choice(["} break;", "} break;", "}"])
            yield "}"
        elif loop and roll < 0.34:
            yield f"if ({self._condition(0)}) {chance.choice(['break', 'continue'])};"
        elif function and roll < 0.37:
            yield f"if ({self._condition(0)}) return {self._expression('u32')};"
        elif not function and roll < 0.42:
            yield f"local[{self._expression('u32', 2)} & {LOCAL - 1}] = {self._expression('u32')};"
        elif not function and roll < 0.46:
            yield f"{self._variable('u32')} ^= local[{self._expression('u32', 2)} & {LOCAL - 1}];"
        elif not function and roll < 0.50:
            n, kind = chance.randrange(len(ATOMICS)), chance.choice(["u32", "u64"])
            place = f"&sum_{kind}[{4 * n} + ({self._expression('u32', 2)} & 3)]"
            yield f"atomic{ATOMICS[n]}({place}, {self._expression(kind)});"
        elif not function and depth == 0 and roll < 0.70:
            yield self._expand(chance.choice(EXCHANGES), "", 1)
        else:
            kind = chance.choice((*TYPES, *OFTEN))
            yield f"{self._variable(kind)} = {self._expression(kind)};"

    # -- functions

    def _function(self) -> str:
        """A function; one in three calls itself, so often as two bits of its first parameter say."""
        name = f"f{len(self.functions)}"
        self.variables = [("a", "u32"), ("b", "i64"), ("c", "f32")]
        lines = ["const u32 left = a & 3;"]
        for n, kind in enumerate(k for k in TYPES if k not in ("u32", "i64", "f32")):
            cast = f"({kind})" if kind in INTEGERS else f"to_{kind}"
            lines.append(f"{kind} v{n} = {cast}(a + (u64)b);")
            self.variables.append((f"v{n}", kind))
        lines += self._block(self.chance.randrange(2, 6), 0, True)
        inline = self.chance.random() < 0.2
        if not inline and self.chance.random() < 0.4:
            lines.append(f"if (left && {self._condition(1)}) a += 3 * {name}(left - 1, b, c);")
        self.functions.append(name)
        values = " ^ ".join(f"(u32)bits({v})" for v, _ in self.variables)
        head = f"{'' if inline else '__noinline__ '}__device__ u32 {name}(u32 a, i64 b, f32 c) {{"
        return "\n".join([head, *lines, f"return {values};", "}"])

    def _kernel(self) -> list[str]:
        lines = ['extern "C" __global__ void kernel(const u64 *in, u64 *out, u32 *sum_u32, u64 *sum_u64) {',
                 "const u32 tid = threadIdx.x, lane = tid & 31, at = blockIdx.x * blockDim.x + tid;",
                 *(f"__shared__ {t} in_{t}[{THREADS}];" for t in ("u8", "u16", "u32", "u64", "f64")),
                 f"u32 local[{LOCAL}]; for (int i = 0; i < {LOCAL}; i++) local[i] = tid * i;"]  # fmt: skip
        self.variables = []
        for n, kind in enumerate((*TYPES, "u32", "i32", "u64", "f32")):
            read = f"in[blockIdx.x * {INPUTS} + (tid * 16 + {n}) % {INPUTS}]"
            lines.append(f"{kind} v{n} = {f'to_{kind}' if kind in ('f32', 'f64', 'h', 'h2') else f'({kind})'}({read});")
            self.variables.append((f"v{n}", kind))
        if len(self.functions) > 1:
            lines.append(f"u32 (*const table[])(u32, i64, f32) = {{{', '.join(self.functions)}}};")
            lines.append(f"v4 ^= table[(v12 & 255) % {len(self.functions)}](tid, v7, v8);")
        lines += self._block(self.chance.randrange(6, 24), 0, False)
        lines += [f"out[at * {KEPT} + {n}] = bits({name});" for n, (name, _) in enumerate(self.variables)]
        return [*lines, f"for (int i = 0; i < {LOCAL}; i++) out[at * {KEPT} + {KEPT - LOCAL} + i] = local[i];", "}"]


#: a choice with no other inside; {name} of an expression may stand in it
CHOICE = re.compile(r"\{(?! )((?:[^{}|]|\{\w+\})*(?:\|(?:[^{}|]|\{\w+\})*)+)\}")
ATOM = re.compile(r"\{(\w+)\}")


def inputs(seed: int) -> np.ndarray[Any, Any]:
    """Random bits, small integers, numbers of all formats, special ones: uint64."""
    rng, count = np.random.default_rng(seed), BLOCKS * INPUTS
    small = rng.integers(0, 64, count)
    special = [0x7F8000007F800000, 0xFF800000FF800000, 0x7FC000007FC00000, 1 << 63 | 1 << 31, 0x7FF0 << 48,
               0xFFF8 << 48, 0x3FF000003F800000, 0x00010001007FFFFF]  # fmt: skip
    single = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 9, count)).astype(np.float32).view(np.uint32)
    kinds = [
        rng.integers(0, 1 << 64, count, dtype=np.uint64),
        small.astype(np.uint64),
        (-small).view(np.uint64),
        single * np.uint64(0x100000001),
        (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 18, count)).view(np.uint64),
        rng.standard_normal((count, 4)).astype(np.float16).view(np.uint64)[:, 0],
        rng.choice(np.array(special, np.uint64), count),
    ]
    return np.choose(rng.integers(0, len(kinds), count), kinds)


@dataclass
class Run:
    """What a run left in memory, and what the CPU device had to say."""

    memory: np.ndarray[Any, Any]
    hazards: list[Any]


def run(cubin: bytes, seed: int, **options: Any) -> Run:
    """Run a program's cubin on the inputs of a seed."""
    out = np.zeros(BLOCKS * THREADS * KEPT, np.uint64)
    sums = np.full(4 * len(ATOMICS), 0x5A5A5A5A, np.uint32), np.full(4 * len(ATOMICS), 0x5A5A5A5A12345678, np.uint64)
    report = launch(cubin, "kernel", BLOCKS, THREADS, [inputs(seed), out, *sums], stack=STACK, **options)
    return Run(np.concatenate([out, *(s.astype(np.uint64) for s in sums)]), report.hazards)


def compiled(program: Program, arch: str, options: Sequence[str] = ()) -> bytes:
    """Its cubin; products and sums stay apart."""
    return nvrtc.compile_source(program.source, arch, ("--fmad=false", *options))


MODES: list[dict[str, Any]] = [{"strict": True}, {"strict": True, "stale": True}, {"lanes": 64},
                               {"workers": 2, "lanes": 96}, {"races": True}, {"counters": True}]  # fmt: skip


def differences(seed: int, compilers: Sequence[tuple[str, Sequence[str]]], modes: bool) -> Iterator[str]:
    """Run a program as each of the compilers has it, and say what is not as it should be."""
    program = Program(seed)
    first: np.ndarray[Any, Any] | None = None
    for arch, options in compilers:
        who = " ".join([f"program {seed}, {arch}", *options])
        cubin = compiled(program, arch, options)
        for mode in [{}, *(MODES if modes else [])]:
            try:
                left = run(cubin, seed, **mode)
            except DeviceError as error:
                yield f"{who} {mode}: {error}"
                continue
            if left.hazards:
                yield f"{who} {mode}: {len(left.hazards)} hazards, first {left.hazards[0]}"
            first = left.memory if first is None else first
            if (wrong := np.flatnonzero(left.memory != first)).size:
                n = int(wrong[0])
                yield (f"{who} {mode}: {wrong.size} words differ, first thread {n // KEPT} value {n % KEPT}: "
                       f"{left.memory[n]:#x}, not {first[n]:#x}")  # fmt: skip


def main() -> None:
    """Run many programs."""
    parser = argparse.ArgumentParser(description="Run random programs on the CPU device and compare.")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", action="store_true")
    parser.add_argument("--source", action="store_true", help="print the program of --seed, and run none")
    chosen = parser.parse_args()
    if chosen.source:
        print(Program(chosen.seed).source)
        return
    bad = 0
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        for text in differences(seed, COMPILERS, chosen.modes):
            bad += 1
            print(text, flush=True)
    print(f"{chosen.count} programs, {bad} differences")


if __name__ == "__main__":
    main()

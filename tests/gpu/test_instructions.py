"""Single instructions on a GPU (sm_90) and on the CPU device: the same bits in all registers and predicates.

tests/gpu/instructions.py has the list and the operands. Functions of the MUFU are near: their largest errors against
the exact values are measured, and held against what the emulator says of them.
TURINGAS_RECORD names a file for the result, as kernels_sass/results/instructions_sm90.json keeps it.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loader.bench import results as kept
from tests.gpu import instructions
from tests.gpu.cuda import Gpu
from tests.gpu.instructions import BLOCK, IN, LANES, OUT, Array, Form
from tests.gpu.test_agreement import commit
from turingas.emulate import launch
from turingas.emulate.semantics.mufu import FUNCTIONS

pytestmark = pytest.mark.gpu

FORMS = instructions.all_forms()
EXACT = [form for form in FORMS if not form.near]
MNEMONICS = sorted({instructions.mnemonic(form).partition(".")[0] for form in EXACT})


def on_cpu(form: Form) -> tuple[Form, bytes, Array]:
    """A form's kernel, and what it leaves on the CPU device."""
    cubin = form.cubin()
    out, memory = blank(LANES)
    launch(cubin, "kern", LANES // BLOCK, BLOCK, [out, instructions.operands(form.kind), memory])
    return form, cubin.to_bytes(), out


def blank(lanes: int) -> tuple[Array, Array]:
    """Room for results, and for atomics."""
    return np.zeros((lanes, OUT), np.uint32), np.zeros((lanes, 4), np.uint32)


def on_gpu(gpu: Gpu, cubin: bytes, words: Array) -> Array:
    """What a kernel leaves on the GPU."""
    out, memory = blank(len(words))
    gpu.run(cubin, "kern", (len(words) // BLOCK,), (BLOCK,), [out, words, memory])
    return out


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    """Processes for the CPU device; they begin before CUDA does."""
    for kind in instructions.KINDS:
        instructions.operands(kind)
    with multiprocessing.get_context("fork").Pool() as processes:
        yield processes


@pytest.fixture(scope="module")
def gpu(pool: Any) -> Iterator[Gpu]:
    found = Gpu()
    yield found
    found.call("cuDevicePrimaryCtxRelease", found.device)


@pytest.fixture(scope="module")
def record(gpu: Gpu) -> Iterator[dict[str, Any]]:
    """What the tests find out, written down at the end where that is asked for: one line an instruction."""
    found: dict[str, Any] = {"instructions": {}, "errors": {}}
    yield found
    if path := os.environ.get("TURINGAS_RECORD"):
        facts = {"date": datetime.date.today().isoformat(), "commit": commit(), **gpu.description()}
        in_order = {name: dict(sorted(part.items())) for name, part in found.items()}
        Path(path).write_text(kept.text({**facts, **in_order}))


@pytest.fixture(scope="module")
def wrong(gpu: Gpu, pool: Any, record: dict[str, Any]) -> dict[str, list[str]]:
    """Runs all forms; by mnemonic (without modifiers) what differs."""
    found: dict[str, list[str]] = {name: [] for name in MNEMONICS}
    for form, cubin, expected in pool.imap(on_cpu, EXACT, chunksize=8):
        words = instructions.operands(form.kind)
        got = on_gpu(gpu, cubin, words)
        lanes = np.flatnonzero((got != expected).any(axis=1))
        name = instructions.mnemonic(form)
        row = record["instructions"].setdefault(name, {"forms": 0, "lanes": 0, "differ": 0})
        for key, count in (("forms", 1), ("lanes", LANES), ("differ", len(lanes))):
            row[key] += count
        if len(lanes):
            n = lanes[0]
            sources, *results = ([hex(v) for v in part[n].tolist()] for part in (words, got, expected))
            found[name.partition(".")[0]].append(
                f"{form.text} ({form.kind}): {len(lanes)} lanes differ; lane {n}, sources {sources}: GPU {results[0]},"
                f" CPU device {results[1]}"
            )
    return found


@pytest.mark.parametrize("name", MNEMONICS)
def test_bits(name: str, wrong: dict[str, list[str]]) -> None:
    assert not wrong[name], "\n".join(wrong[name][:5])


# ---- functions of the MUFU

def near_words(name: str) -> Array:
    """Many sources for a function: every exponent, and where it is interesting; (n, 16) words."""
    rng = np.random.default_rng(3)
    count = 1 << 17
    if name.endswith("16"):
        values = np.resize(np.arange(1 << 16, dtype=np.uint32), count)
    elif name.endswith("64H"):
        values = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    else:
        any_bits = rng.integers(0, 1 << 32, count // 4, dtype=np.uint32)
        wide = rng.uniform(-150, 150, count // 4)
        some = rng.uniform(-4, 4, count // 4)
        ones = 1 + rng.uniform(-0.5, 1, count // 4)
        values = np.concatenate([any_bits, *(v.astype(np.float32).view(np.uint32) for v in (wide, some, ones))])
    words = np.zeros((count, IN), np.uint32)
    words[:, 1 if name.endswith("64H") else 0] = values
    return words


def as_number(bits: Array, name: str) -> Array:
    """Results of a function as doubles."""
    if name.endswith("BF16"):
        return (bits << np.uint32(16)).view(np.float32).astype(np.float64)
    if name.endswith("F16"):
        return bits.astype(np.uint16).view(np.float16).astype(np.float64)
    if name.endswith("64H"):
        return (bits.astype(np.uint64) << np.uint64(32)).view(np.float64)
    return bits.view(np.float32).astype(np.float64)


@pytest.mark.parametrize("form", [form for form in FORMS if form.near], ids=lambda form: form.text.split()[0])
def test_functions(form: Form, gpu: Gpu, record: dict[str, Any]) -> None:
    """Special values as the emulator has them; all others no further from the exact value than is said."""
    name = instructions.mnemonic(form)
    words, cubin = near_words(name), form.cubin()
    got = on_gpu(gpu, cubin.to_bytes(), words)
    expected, memory = blank(len(words))
    launch(cubin, "kern", len(words) // BLOCK, BLOCK, [expected, words, memory])
    assert (got[:, 1:] == expected[:, 1:]).all()

    with np.errstate(all="ignore"):
        source = as_number(words[:, 1 if name.endswith("64H") else 0], name)
        a, b = as_number(got[:, 0], name), as_number(expected[:, 0], name)
        special = ~np.isfinite(b) | (source == 0)
        if "SIN" not in name and "COS" not in name:
            special |= b == 0
        odd = np.flatnonzero(special & (got[:, 0] != expected[:, 0]))
        exact = FUNCTIONS[name.split(".")[1][:3] if name.endswith("64H") else name.split(".")[1]](source)
        absolute = np.abs(a - exact)
        relative = absolute / np.abs(exact)
    row: dict[str, Any] = {"values": len(words), "same bits": int((got[:, 0] == expected[:, 0]).sum())}
    bad = []
    for kind, low, high, most in instructions.CLAIMS[name]:
        if kind == "bits":
            bad += [f"{name} differs"] * bool((got[:, 0] != expected[:, 0]).any())
            continue
        chosen = ~special & (np.abs(source) >= low) & (np.abs(source) <= high)
        error = float((absolute if kind == "absolute" else relative)[chosen].max())
        row[f"{kind} error, |x| from {low:g} to {high:g}"] = f"2^{np.log2(error):.2f}"
        if not error <= most:
            bad.append(f"{kind} error 2^{np.log2(error):.2f} of {name}, more than 2^{np.log2(most):.2f}")
    record["errors"][name] = row
    shown = [(hex(words[n].max()), hex(got[n, 0]), hex(expected[n, 0])) for n in odd[:4]]
    assert not len(odd), f"{len(odd)} special values differ: {shown}"
    assert not bad, bad

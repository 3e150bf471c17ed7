"""``turingas.tune_triton``: a Triton kernel's cubin, tuned and put where Triton launches it from.

Triton itself is not imported here: a compiled kernel is anything that has ``asm["cubin"]``, ``metadata`` and ``src`` as
``triton.compiler.CompiledKernel`` of Triton 3.1 to 3.6 has them, and loads what ``kernel`` holds in ``_init_handles``.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loader import cuda
from loader.nvrtc import cache_folder
from loader.tune.command import json as result
from loader.tune.judge import MODEL, Order, with_words
from loader.tune.launches import argument, stated
from loader.tune.search import INPUTS, Search, Tell
from loader.workers import GPUS, Workers
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel, Param
from turingas.cubin.split import without_capsule
from turingas.errors import AsmError, CubinError, LaunchError
from turingas.isa.arch import chip
from turingas.launch import find

WARP = 32
CUBIN = "cubin"
FIRST = "turingas_first"  # attribute of a compiled kernel: the cubin that Triton made
SECONDS = 120.0


@dataclass(frozen=True)
class Tuned:
    """What ``tune_triton`` came to. ``kernel``: Triton's compiled kernel, which has the tuned cubin if ``gained``;
    ``figure``: its time, the original's being 1 (without a GPU: its cycles in the model); ``why``: "" or what stood in
    the way, where the original is left in place; ``cached``: nothing was searched this time; ``facts``: what
    `turingas tune --json` tells."""

    kernel: Any
    gained: bool
    figure: float
    why: str = ""
    cached: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


def tune_triton(
    kernel: Any,
    grid: Any,
    args: Sequence[Any],
    *,
    meta: Mapping[str, Any] | None = None,
    check: Mapping[str, Any] | None = None,
    seconds: float = SECONDS,
    rounds: int | None = None,
    workers: str | Workers = GPUS,
    seed: int = 0,
    inputs: int = INPUTS,
    folder: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    state: str | os.PathLike[str] | None = None,
    tell: Tell = lambda text: None,
) -> Tuned:
    """Search for a faster cubin of a Triton kernel, and have Triton launch that from now on.

    ``kernel``: a function with ``@triton.jit``, one with ``@triton.autotune`` that has run (its best configuration is
    taken), or a compiled kernel. ``grid``: as in ``kernel[grid](...)``, one to three numbers or a function of ``meta``.
    ``args``: the arguments, tensors or numpy arrays and numbers, in the order of the function's; ``meta``: those given
    by name, constexprs and options such as ``num_warps``. ``check``: grid and block of the launch on the CPU device
    (the grid's first block unless it says so). The other options are those of ``turingas tune``; ``workers`` "here"
    searches in this process, whose GPU is of no more use once a candidate reads a wrong address; a ``loader.workers.
    Workers`` that is there already stays open.

    Floats are drawn anew for every comparison, integers stay what they are in ``args``, which are not written.
    What is found is kept in ``folder`` (TURINGAS_CACHE, ~/.cache/turingas) by the hash of the original cubin, and taken
    from there the next time, unless it shall be ``fresh``. ``state``: a folder in which the search is kept after each
    round, and from which it goes on. What does not fit leaves the original in place, and
    ``Tuned.why`` says what.
    """
    compiled, values = _compiled(kernel, grid, args, dict(meta or {}))
    if (first := getattr(compiled, FIRST, None)) is not None:  # it has a tuned one by now
        why = _load(compiled, first)
        if why:
            return Tuned(compiled, False, 1.0, why)
    original = bytes(compiled.asm[CUBIN])
    place = Path(folder or cache_folder()) / "tuned" / hashlib.sha256(original).hexdigest()
    try:
        kept = None if fresh else _kept(place, compiled.metadata.name)
        if kept is not None:
            facts, data = kept
            why = put(compiled, original, data) if facts["gained"] else ""
            return Tuned(compiled, facts["gained"] and not why, facts["figure"], why, True, facts)
        order = order_of(compiled, original, grid(values) if callable(grid) else grid, values, check or {})
        with nullcontext(workers) if isinstance(workers, Workers) else Workers(workers) as pool:
            search = Search.kept(order, seed, state)
            search.run(pool, rounds, seconds, tell)
            found = search.proven(pool, inputs, tell)
    except (LaunchError, AsmError, CubinError, OSError) as error:
        return Tuned(compiled, False, 1.0, str(error))
    data = found.cubin.to_bytes()
    facts = {**result(found), "kernel": order.kernel, "date": datetime.date.today().isoformat()}
    _keep(place, facts, data, tell)
    why = put(compiled, original, data) if found.gained else ""
    return Tuned(compiled, found.gained and not why, found.figure, why, False, facts)


# ---- Triton ------------------------------------------------------------------------------------------------------


def _compiled(kernel: Any, grid: Any, args: Sequence[Any], meta: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The compiled kernel, and all arguments by their names."""
    while hasattr(kernel, "configs") or hasattr(kernel, "values"):  # what triton.autotune and triton.heuristics make
        if hasattr(kernel, "values"):
            given = {**dict(zip(kernel.arg_names, args)), **meta}
            meta |= {name: rule(given) for name, rule in kernel.values.items()}
        elif getattr(kernel, "best_config", None) is None:
            raise LaunchError("the autotuned kernel has no best configuration yet", "launch it once, and then tune it")
        else:
            meta = {**kernel.best_config.all_kwargs(), **meta}
        kernel = kernel.fn
    if not hasattr(kernel, "asm"):
        kernel = kernel.warmup(*args, grid=grid, **meta)  # compiles, or gives what is compiled already
        if hasattr(kernel, "result"):  # it is still being compiled
            kernel = kernel.result()
    names = list(getattr(getattr(kernel.src, "fn", None), "arg_names", ()))
    return kernel, {**dict(zip(names, args)), **meta}


def order_of(compiled: Any, original: bytes, grid: Any, values: Mapping[str, Any], check: Mapping[str, Any]) -> Order:
    """What is to be tuned. LaunchError for launches that are not understood."""
    metadata = compiled.metadata
    clusters = tuple(getattr(metadata, "cluster_dims", None) or (1, 1, 1))
    if any(size != 1 for size in clusters) or getattr(metadata, "num_ctas", 1) != 1:
        raise LaunchError(f"{metadata.name} runs in clusters of {clusters} blocks", "the loader launches none")
    if getattr(metadata, "global_scratch_size", 0) or getattr(metadata, "profile_scratch_size", 0):
        raise LaunchError(f"{metadata.name} wants scratch memory of the launcher")
    kernel = find(Cubin.from_bytes(original), metadata.name)
    arguments = _described(compiled.src, kernel, values)
    text = stated(arguments, grid, WARP * metadata.num_warps, metadata.shared, {"grid": 1, **check})
    device = "cuda" if cuda.count() else "cpu"
    return Order(without_capsule(Cubin.from_bytes(original)), kernel.name, text, f"<{kernel.name} of Triton>", device)


def _described(src: Any, kernel: Kernel, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arguments of the cubin's kernel, those that Triton has not made constants of, as JSON has them."""
    names = list(src.fn.arg_names)

    def place(key: Any) -> int:
        key = key[0] if isinstance(key, tuple) else key
        return names.index(key) if isinstance(key, str) else int(key)

    constants = {place(key) for key in src.constants}
    types = {place(key): kind for key, kind in src.signature.items()}
    params: list[Param] = sorted(kernel.params, key=lambda param: param.offset)
    wanted = [number for number in sorted(types) if types[number] != "constexpr" and number not in constants]
    made = []
    for number in wanted:
        name, kind = names[number], types[number]
        if name not in values:
            raise LaunchError(f"no argument is given for {name}", "args in the order of the function, or meta by name")
        if not isinstance(kind, str) or kind.startswith(("tensordesc", "nvTmaDesc")):
            raise LaunchError(f"{name} is a {kind}", "pointers and numbers can be tuned")
        value = values[name]
        if kind.startswith("*") and isinstance(value, (int, float)):
            raise LaunchError(f"{name} is a {type(value).__name__}", "a tensor of PyTorch, or a numpy array")
        number_of = float if kind.startswith(("fp", "bf")) else int
        made.append(argument(value if kind.startswith("*") else number_of(value), name))
    rest = params[len(made) :]
    if len(params) < len(made) or any(param.size != 8 for param in rest):
        sizes = ", ".join(str(param.size) for param in params)
        raise LaunchError(f"{kernel.name} has parameters of {sizes} bytes, and {len(made)} arguments are known")
    return made + [{"number": 0}] * len(rest)  # pointers to scratch memory, of which there is none


def put(compiled: Any, original: bytes, tuned: bytes) -> str:
    """Have Triton launch ``tuned`` in the place of ``original``: "", or why it stays as it was. Whoever launches the
    kernel asks it for ``function`` each time, so all later launches are of the tuned one."""
    why = misfit(compiled, original, tuned) or _load(compiled, tuned)
    if not why:
        setattr(compiled, FIRST, original)
    return why


def _load(compiled: Any, data: bytes) -> str:
    """Have Triton load another cubin: "", or why the one before stays."""
    names = ("kernel", "module", "function", "n_regs", "n_spills", "n_max_threads", "run", "_run")
    before = {name: vars(compiled)[name] for name in names if name in vars(compiled)}
    cubin = compiled.asm[CUBIN]
    try:
        compiled.asm[CUBIN] = compiled.kernel = data
        for name in ("module", "function", "_run"):
            if name in before:
                setattr(compiled, name, None)
        compiled._init_handles()
        return ""
    except Exception as error:  # of Triton's driver, whatever it is: the kernel must run as before
        compiled.asm[CUBIN] = cubin
        vars(compiled).update(before)
        return f"Triton does not load it: {type(error).__name__}: {error}"


def misfit(compiled: Any, original: bytes, tuned: bytes) -> str:
    """Why ``tuned`` cannot stand in ``original``'s place; "" if it can: the same file but for the kernel's words, for
    the same architecture, and what Triton's launcher counts on."""
    if bytes(compiled.asm[CUBIN]) != original:
        return "the kernel has another cubin by now"
    try:
        cubin, name = Cubin.from_bytes(tuned), compiled.metadata.name
        now, then = cubin.kernel(name), Cubin.from_bytes(original).kernel(name)
    except (CubinError, KeyError) as error:
        return f"it is no cubin of this kernel: {error}"
    target = getattr(compiled.metadata, "target", None)
    if target is not None and chip(cubin.arch) != f"sm_{target.arch}":
        return f"it is for {cubin.arch}, and Triton's kernel for sm_{target.arch}"
    limit = shared_limit()
    if limit and compiled.metadata.shared > limit:
        return f"it takes {compiled.metadata.shared} bytes of shared memory, and this GPU gives {limit}"
    bare = without_capsule(Cubin.from_bytes(original), warn=False)
    if len(now.words) != len(then.words) or with_words(bare, name, tuple(now.words)).to_bytes() != tuned:
        return "it differs in more than the kernel's instructions"
    return ""


def shared_limit() -> int:
    """Bytes of shared memory that a block can have on this machine's first GPU; 0 without one."""
    return int(cuda.device(0).attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")) if cuda.count() else 0


# ---- the cache ---------------------------------------------------------------------------------------------------


def _kept(place: Path, name: str) -> tuple[dict[str, Any], bytes] | None:
    """What was found for this cubin; None if nothing, or nothing whole."""
    try:
        facts = json.loads(place.with_suffix(".json").read_text())
        data = place.with_suffix(".cubin").read_bytes()
        whole = facts["sha256"] == hashlib.sha256(data).hexdigest() and facts["kernel"] == name
        whole = whole and not (facts["device"] == MODEL and cuda.count())  # the model's figures say nothing of a GPU
        return ({**facts, "gained": bool(facts["gained"]), "figure": float(facts["figure"])}, data) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(place: Path, facts: Mapping[str, Any], data: bytes, tell: Callable[[str], None]) -> None:
    """Both files whole or not at all; the facts last, for they vouch for the cubin."""
    facts = {**facts, "sha256": hashlib.sha256(data).hexdigest()}
    text = json.dumps(facts, indent=1).encode()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for suffix, content in ((".cubin", data), (".json", text)):
            draft = place.with_suffix(f"{suffix}.{os.getpid()}.tmp")
            draft.write_bytes(content)
            os.replace(draft, place.with_suffix(suffix))
    except OSError as error:
        tell(f"what was found is not kept: {error}")

"""What queues launches, written out as Python: for each mix of arguments and each grid a function of its own.

A loop over the arguments that calls a function for each, and one over the kernels, would take the host half a
microsecond longer (``python -m tests.bench.host``).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from loader.cuda.packer import ALIKE, never
from loader.cuda.streams import handle_of

if TYPE_CHECKING:
    from loader.cuda.gpu import Device
    from loader.cuda.packer import Packer

PLACE = "<a launch written out by loader.cuda>"  # what a traceback says


class Loaded(Protocol):
    """A module that holds kernels."""

    closed: bool

    def _open(self) -> None:
        """LaunchError if it is closed."""


class Launched(Protocol):
    """A kernel, as a launch knows it."""

    gpu: Device
    name: str

    @property
    def module(self) -> Loaded: ...
    @property
    def handle(self) -> Any: ...


Step = tuple[Launched, Any, int]  # a kernel, its configuration, the address of its table of parameters
Launch = Callable[[Sequence[Any], Any], bool]  # of the arguments and the stream
Run = Callable[..., None]  # of the stream, a number, and of values in a tuple


def launch(step: Step, packer: Packer, memory: Any, lock: Any) -> Launch:
    """A launch of a kernel: a function of the arguments and of the stream as ``Kernel.launch`` takes it. False, and
    nothing is done, for arguments of other types than the packer's. ``lock``: held while ``memory``, that of the
    parameters, and the module are in use. Raises as the packer's takes, ``pack_into`` and ``queueing`` do. What is
    written for a packer does for all its launches, which are of one kernel, but for the configuration."""
    if packer.written is not None:
        others = {"config0": step[1], "before": 0, "left": ALIKE}
        return FunctionType(packer.written.__code__, {**packer.written.__globals__, **others})
    args, types = [f"a{n}" for n in range(len(packer.types))], [f"type{n}" for n in range(len(packer.types))]
    names = {
        **packer.names, **dict(zip(types, packer.types)), "ask": packer.ask, "handle_of": handle_of,
        "acquire": lock.acquire, "release": lock.release, "let_go": let_go,
    }  # fmt: skip
    lines = [f"if len(args) != {len(args)}:", "    return False"]
    if args:
        other = " or ".join(f"type({arg}) is not {kind}" for arg, kind in zip(args, types))
        lines += [f"{', '.join(args)}, = args", f"if {other}:", "    return False"]
    asked = "0" if packer.ask is None else f"ask({args[packer.first]})"
    lines += ["if stream is None:", f"    stream = {asked}"]
    lines += ["elif type(stream) is not int:", "    stream = handle_of(stream)"]
    group = "".join(f"a{n}, " for n in packer.group)
    if group:
        names |= {"alike": never, "again": packer.again, "left": ALIKE}
        lines += ["global alike, left", f"if alike({group}):"]
        lines += _in(f"v{n} = {read}" for n, read in packer.group.items())
        lines += ["else:", *_in(f"v{n} = {packer.reads[n]}" for n in packer.group)]
        lines += ["    if left:", f"        alike, left = again(left, {group})"]
    lines += [f"v{n} = {read}" for n, read in enumerate(packer.reads) if n not in packer.group]
    lines += ["try:", "    acquire()", *_in(queueing([step], packer.pack_into, memory, len(args), names))]
    lines += ["except BaseException:", "    let_go(release)", "    raise", "release()", "return True"]
    packer.written = made("args, stream", lines, names)
    return packer.written


def queue(steps: Sequence[Step], pack_into: Callable[..., None], memory: Any, count: int) -> tuple[Run, Any]:
    """Launches one behind the other: a function of the stream, a number, and of ``count`` values in a tuple, which are
    packed into ``memory``. The second: to be called by who changes the stream of a configuration. Whoever calls them
    holds a lock for memory, configurations and modules."""
    names: dict[str, Any] = {}
    lines = [f"{_values(count)} = values"] if count else []
    run = made("stream, values", [*lines, *queueing(steps, pack_into, memory, count, names)], names)
    return run, functools.partial(names.__setitem__, "before", None)


def queueing(
    steps: Sequence[Step], pack_into: Callable[..., None], memory: Any, count: int, names: dict[str, Any]
) -> Iterable[str]:
    """Lines that pack ``v0``, ``v1``, ... ``count`` of them, and queue the kernels on ``stream``; what they name is put
    into ``names``. The driver is called once to look at the context, and once for each kernel."""
    gpu = steps[0][0].gpu
    names |= {"gpu": gpu, "current": gpu.driver.cuCtxGetCurrent, "pop": gpu.driver.cuCtxPopCurrent,
              "context": gpu.context, "launch": gpu.driver.cuLaunchKernelEx, "pack_into": pack_into, "memory": memory,
              "before": 0}  # fmt: skip
    # before: the stream that all configurations have; None: not all the same
    yield from ("global before", "if gpu.lost is not None:", "    raise gpu.gone()")
    for n, module in enumerate({id(kernel.module): kernel.module for kernel, _, _ in steps}.values()):
        names[f"module{n}"] = module
        yield from (f"if module{n}.closed:", f"    module{n}._open()")
    yield "pushed = current()[1] != context and gpu.push()"  # contexts of old cuda-python's are never equal
    yield from ("try:", "    if stream != before:", "        before = None")
    yield from (f"        config{n}.hStream = stream" for n in range(len(steps)))
    yield "        before = stream"
    yield f"    pack_into(memory, 0, {_values(count)})"
    for n, (kernel, config, table) in enumerate(steps):
        names |= {f"config{n}": config, f"handle{n}": kernel.handle, f"table{n}": table, f"name{n}": kernel.name}
        yield f"    (error,) = launch(config{n}, handle{n}, table{n}, 0)"
        yield from ("    if error:", f"        raise gpu.failed(error, 'cuLaunchKernelEx', name{n})")
        yield f"    gpu.kernel = name{n}"
    yield from ("finally:", "    if pushed:", "        pop()")


def _values(count: int) -> str:
    return "".join(f"v{n}, " for n in range(count))


def _in(lines: Iterable[str]) -> Iterable[str]:
    return ("    " + line for line in lines)


def made(arguments: str, lines: Iterable[str], names: dict[str, Any]) -> FunctionType:
    """The function of these lines, which know the names and nothing else."""
    exec(_compiled(arguments, "\n".join(_in(lines))), names)
    found: FunctionType = names.pop("run")  # or else it would go round in circles
    return found


@functools.lru_cache(512)
def _compiled(arguments: str, body: str) -> CodeType:
    return compile(f"def run({arguments}):\n{body}", PLACE, "exec")


def let_go(release: Callable[[], None]) -> None:
    """Of a lock after an exception, which may have come (Ctrl-C) while the lock was waited for."""
    with contextlib.suppress(RuntimeError):
        release()

"""Any kernel, against another with the same arguments, a float64 function, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import loader
from loader.reference.runner import Runner
from loader.validate.call import Call, launch, line, value
from loader.validate.device import Watched, compiled, device_of, options_for
from loader.validate.verdict import Array, Result, Sides, judge
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError


def arrays(
    cubin: Cubin | bytes,
    call: Call,
    *,
    reference: str | Path | None = None,
    truth: Callable[..., Any] | None = None,
    device: str | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    options: dict[str, Any] | None = None,
    name: str = "kernel",
) -> Result:
    """Any kernel: against ``reference``, a CUDA C++ file whose kernel is given the same arguments, and ``truth``.

    Arrays that have no value (``f32[64]``) are the outputs and poisoned. All arrays are compared with the reference's;
    the outputs with what ``truth`` gives: a function of all arguments as they were before, outputs as zeros, that
    returns the output, or a list of the outputs in their order. The reference is launched as ``call`` says, or as the
    line ``// validate: --grid ... --block ...`` in it.

    ``options``: strict, races, ... of the CPU device, for the kernel. LaunchError for what cannot be launched;
    DeviceError, CudaError, NvrtcError as they come.
    """
    if reference is None and truth is None:
        raise LaunchError("nothing to compare with", "give --reference FILE.cu, --truth FILE.py:FUNCTION or, for a "
                          "convolution, --layer or --shape")  # fmt: skip
    random = np.random.default_rng(seed)
    made = [value(text, {}, random) for text in call.args]
    outputs = [n for n, (_, output) in enumerate(made) if output]

    def run(module: Any, how: Call) -> list[Any]:
        given = [runner.array(one) if isinstance(one, np.ndarray) else one for one, _ in made]
        launch(module, how, given, {})
        return [runner.numpy(there) if isinstance(one, np.ndarray) else one for (one, _), there in zip(made, given)]

    with Runner(device_of(device)) as runner, loader.load(cubin, runner.device) as module:
        watched = Watched(module, options_for(runner.device, options))
        found = run(watched, call)
        expected: list[Any] | None = None
        if reference is not None:
            path = Path(reference).absolute()
            if path.suffix != ".cu":
                raise LaunchError(
                    f"--reference {reference}: for a kernel that is not a convolution, write a file that ends in .cu",
                    "--layer or --shape say that it is one",
                )
            words = line(path.read_text())
            how = replace(call, kernel=None).changed(words)
            if how.args != call.args:
                raise LaunchError(f"{path.name} has arguments of its own in its 'validate:' line",
                                  "it takes those of the kernel: only a convolution knows which is which")  # fmt: skip
            expected = run(compiled(runner, path, how), how)
        what = f"{name} on {runner.device}, {', '.join(call.args)}, seed {seed}"
    exact: dict[int, Array] = {}
    if truth is not None:
        before = [np.zeros_like(one) if output else one.copy() if isinstance(one, np.ndarray) else one
                  for one, output in made]  # fmt: skip
        exact = _outputs(truth(*before), outputs, made)
    sides = [
        Sides(f"argument {n}", found[n], None if expected is None else expected[n], exact.get(n), output)
        for n, (one, output) in enumerate(made)
        if isinstance(one, np.ndarray) and (expected is not None or n in exact)
    ]
    if not sides:
        raise LaunchError("no array to compare", "write an output as f32[64], without a value")
    result = judge(what, name, Path(reference).name if reference else "", sides, tolerance)
    result.wrong += watched.found
    return result


def _outputs(given: Any, outputs: list[int], made: list[tuple[Any, bool]]) -> dict[int, Array]:
    """What the float64 function gave, by argument."""
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(found) != len(outputs):
        raise LaunchError(f"the float64 function gives {len(found)} arrays; the kernel has {len(outputs)} outputs")
    exact = {n: np.asarray(one) for n, one in zip(outputs, found)}
    for n, one in exact.items():
        if one.shape != made[n][0].shape:
            raise LaunchError(f"the float64 function gives {one.shape} for argument {n}, {made[n][0].shape}")
    return exact

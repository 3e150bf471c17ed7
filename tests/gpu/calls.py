"""What kernels print and how they end: ``python -m tests.gpu.calls NAME DEVICE``, a process each, as most of these take
theirs along.

On stdout what kernel NAME of tests/emulate/test_calls.py prints, and a line of what it leaves or of the error.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np

import loader
from loader.cuda import Buffer, CudaError
from tests.emulate import test_calls
from tests.tools.nvrtc import compile_source
from turingas.emulate import DeviceError

NAMES = ("formats", "order", "assert", "trap")


def tell(*words: object) -> None:
    """A line behind what the kernel printed, which the driver leaves in C's buffer."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    print("\n:", *words, flush=True)


def main(name: str, device: str) -> None:
    x = np.full(64, 9 if name == "assert" else 0, np.int32)
    with loader.load(compile_source(test_calls.source(), "sm_90", ("-lineinfo",)), device) as module:
        there = x if device == "cpu" else Buffer.of(x, device)
        kernel = module.kernel("order" if name == "assert" else name)
        try:
            if name == "formats":
                for which in range(len(test_calls.FORMATS)):
                    kernel.launch(1, 1, there, which, 7, 2.5)
                    module.synchronize()
                    tell((there if device == "cpu" else there.numpy())[0])
            else:
                kernel.launch(1, 3 if name == "assert" else 32, there)
                module.synchronize()
                tell(*(there if device == "cpu" else there.numpy()))
        except (DeviceError, CudaError) as error:
            tell("error", getattr(error, "kind", None) or str(error).splitlines()[0])
            print(error, file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A process that is forked while another thread is at work: what it does then does not wait for that thread, which is
not there."""

from __future__ import annotations

import os
import signal
import threading
import traceback

import numpy as np
import pytest

import loader
from kernels_sass.conv import Conv2d, code
from loader import nvrtc
from loader.cuda import gpu
from tests.emulate.test_device import ADD
from tests.loader.conftest import N
from tests.tools import nvrtc as tools
from turingas import assemble
from turingas.emulate.memory import Global
from turingas.errors import LaunchError
from turingas.isa import forms, isa
from turingas.source import python

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
              pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")]  # fmt: skip
SECONDS = 60
COUNTED = """__device__ int count[4];
extern "C" __global__ void add(float* out, float* in, int n, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = scale * in[i] + count[0];
}
"""


def forked(work):
    """What ``work`` gives, "right" or what it says, in a process that is forked now."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it hangs
        signal.alarm(SECONDS)
        try:
            said = work() or "right"
        except BaseException:
            said = traceback.format_exc()
        os.write(write, said.encode()[:4000])
        os._exit(0)
    os.close(write)
    with open(read) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said or "it hung"


class Busy:
    """Another thread, whose ``work(self)`` calls ``wait``, and is in there meanwhile."""

    def __init__(self, work):
        self.inside, self.over = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=work, args=(self,))

    def wait(self):
        self.inside.set()
        self.over.wait(SECONDS)

    def __enter__(self):
        self.thread.start()
        assert self.inside.wait(SECONDS)
        return self

    def __exit__(self, *what):
        self.over.set()
        self.thread.join()


def launched(kernel):
    out, values = np.zeros(N, np.float32), np.arange(N, dtype=np.float32)
    kernel.launch(2, 32, out, values, N, 2.0)
    return "" if (out == 2 * values).all() else f"wrong: {out}"


def launches(module):
    """A launch of the module's kernel that ends when it is told to."""
    def work(busy):
        real = module._module.launch

        def launch(*given, **options):
            module._module.device.memory.lock.acquire()  # as an atomic has it
            busy.wait()
            module._module.device.memory.lock.release()
            return real(*given, **options)

        module._module.launch = launch
        try:
            assert not launched(module.kernel("add"))
        finally:
            del module._module.launch

    return work


def test_launches_on_the_cpu_device():
    """In the child the launch is not under way; here it ends as it would."""
    module = loader.load(assemble(ADD), "cpu")
    kernel = module.kernel("add")
    with Busy(launches(module)):
        assert forked(lambda: launched(kernel) or launched(kernel)) == "right"
    assert not launched(kernel) and forked(lambda: launched(kernel)) == "right"


def test_a_module_with_variables():
    """They hold what the launch had written by then."""
    if tools.library_path() is None:
        pytest.skip("NVRTC is not installed")
    module = loader.load(tools.compile_source(COUNTED, "sm_75"), "cpu")

    def refused():
        with pytest.raises(LaunchError, match="(?s)when this process was forked.*hint: load the cubin again"):
            launched(module.kernel("add"))
        return launched(loader.load(module.cubin, "cpu").kernel("add"))

    module.variable("count")[4:] = 7
    with Busy(launches(module)):
        assert forked(refused) == "right"
    assert forked(lambda: launched(module.kernel("add")) or str(module.variable("count")[4:6])) == "[7 7]"


def locks():
    conv = Conv2d(np.ones((8, 1, 3, 3), np.float32), device="cpu")
    conv(np.ones((1, 1, 4, 4), np.float32))
    hgmma = Conv2d(np.ones((8, 8, 3, 3), np.float32), device="cpu", kernel="hgmma")
    return {
        "inline Python": python._IMPORTS, "instruction sets": isa._LOCK, "forms": forms._LOCK,
        "those of an architecture": forms.forms("sm_75")._lock, "memory of the CPU device": Global().lock,
        "GPUs": gpu._lock, "NVRTC": nvrtc._lock, "assembled kernels": code.Kernels._lock, "Conv2d": conv._lock,
        "Conv2d on a device": conv._places[-1].lock, "Conv2d, HGMMA": hgmma._implicit.lock,
    }  # fmt: skip


def test_locks():
    """Each is free in the child, and held as before in this process."""
    every = locks()

    def hold(busy):
        for lock in every.values():
            lock.acquire()
        busy.wait()
        for lock in every.values():
            lock.release()

    def taken():
        return ", ".join(name for name, lock in every.items() if not lock.acquire(timeout=1))

    with Busy(hold):
        assert forked(taken) == "right"
        assert all(not lock.acquire(blocking=False) for lock in every.values())
    assert forked(taken) == "right"


def test_who_forks_within_a_lock_still_has_it():
    lock = forms.forms("sm_75")._lock

    def mine():
        free = []
        other = threading.Thread(target=lambda: free.append(lock.acquire(blocking=False)))
        other.start()
        other.join()
        return "free" if free == [True] else "right"

    with lock:
        assert forked(mine) == "right"


def test_conv2d():
    """A layer that another thread calls."""
    conv, x = Conv2d(np.ones((8, 1, 3, 3), np.float32), device="cpu"), np.ones((1, 1, 4, 4), np.float32)
    wanted = conv(x)
    place = conv._places[-1]

    def work(busy):
        with place.lock:
            busy.wait()

    with Busy(work):
        assert forked(lambda: "" if (conv(x) == wanted).all() else "wrong") == "right"

"""What a kernel does wrong, what is given back, threads and interruptions: over a driver on the CPU device."""

from __future__ import annotations

import gc
import signal
import threading

import numpy as np
import pytest

import loader
from loader import cuda
from loader.cuda import Buffer, CudaError
from tests.loader.conftest import N, arrays
from turingas.errors import LaunchError


def test_a_fault_is_told_once_and_then_that_the_context_is_lost(driver, cubin):
    module = loader.load(cubin)
    out, values = arrays()
    kernel, other = module.kernel("add"), module.kernel("other")
    kernel.launch(3, 32, out, values, 3 * 32, 2.0)
    with pytest.raises(CudaError) as caught:
        module.synchronize()
    error = caught.value
    assert (error.name, error.code, error.meaning, error.kernel, error.lost) == (
        "CUDA_ERROR_ILLEGAL_ADDRESS", 700, "what 700 means", "add", True,
    )  # fmt: skip
    assert "add: CUDA_ERROR_ILLEGAL_ADDRESS (700): what 700 means" in str(error) and "device='cpu'" in str(error)
    uses = [module.synchronize, lambda: other.launch(1, 1), out.numpy, lambda: Buffer(4), lambda: loader.load(cubin)]
    for use in uses:
        with pytest.raises(cuda.ContextLost, match=r"0 is lost since CUDA_ERROR_ILLEGAL_ADDRESS \(700\), when add"):
            use()
    module.close()
    out.free()
    loader.load(cubin, "cpu").kernel("other").launch(1, 1)


def test_a_fault_found_at_the_next_launch_is_the_one_befores(driver, cubin):
    module = loader.load(cubin)
    out, values = arrays()
    add, other = module.kernel("add"), module.kernel("other")
    add.launch(3, 32, out, values, 3 * 32, 2.0)
    with pytest.raises(CudaError, match="^add: .*add was the last kernel launched before"):
        other.launch(1, 1)


def test_an_error_that_is_no_fault(driver, cubin):
    kernel = loader.load(cubin).kernel("other")
    driver.fails["cuLaunchKernelEx"] = 1
    with pytest.raises(CudaError, match=r"^other: CUDA_ERROR_INVALID_VALUE \(1\): what 1 means \(cuLaunchKernelEx on"):
        kernel.launch(1, 1)
    driver.fails.clear()
    kernel.launch(1, 1)


# ---- life and death ----------------------------------------------------------------------------------------------


def test_modules_and_memory_go_back(driver, cubin):
    with loader.load(cubin) as module:
        kernel = module.kernel("other")
        assert module.kernel("other") is kernel
    for use in (lambda: kernel.launch(1, 1), lambda: module.kernel("add"), lambda: module.variable("x")):
        with pytest.raises(LaunchError, match="the module is closed"):
            use()
    module.close()
    assert driver.calls["cuModuleUnload"] == 1
    loader.load(cubin).kernel("add")
    gc.collect()
    assert driver.calls["cuModuleUnload"] == 2
    out = Buffer(8)
    out.free()
    out.free()
    for use in (Buffer.numpy, lambda b: b.fill(0), lambda b: b.__cuda_array_interface__):
        with pytest.raises(LaunchError, match="given back"):
            use(out)
    assert driver.calls["cuMemFree"] == driver.calls["cuMemAlloc"] == 1


def test_a_closed_module_is_not_asked_for_anything(driver, cubin):
    """Its handle and those of its kernels mean nothing to the driver any more."""
    module = loader.load(cubin)
    kernel = module.kernel("other")
    kernel.launch(1, 1)
    module.close()
    driver.calls.clear()
    for use in (lambda: kernel.launch(1, 1, shared=60_000), lambda: kernel.attribute("NUM_REGS")):
        with pytest.raises(LaunchError, match="the module is closed"):
            use()
    assert not driver.calls


@pytest.mark.parametrize("use", [lambda m, k: m.kernel("add"), lambda m, k: m.variable("x"),
                                 lambda m, k: k.launch(1, 1, shared=60_000)])  # fmt: skip
def test_a_module_closed_while_another_thread_waits_for_it(driver, cubin, use):
    module = loader.load(cubin)
    kernel, refused = module.kernel("other"), []

    def work():
        try:
            use(module, kernel)
        except LaunchError as error:
            refused.append(error.message)

    driver.calls.clear()
    thread = threading.Thread(target=work)
    with module._lock:  # as close() has it
        thread.start()
        thread.join(0.05)
        module.closed = True
    thread.join()
    assert refused == ["the module is closed"] and not driver.calls


def test_threads_share_a_kernel(driver, cubin):
    """Each gets its own arguments, and one that closes the module does so between launches."""
    kernel = loader.load(cubin).kernel("add")
    results, refused = {}, []

    def work(scale):
        out, values = arrays()
        for _ in range(20):
            try:
                kernel.launch(2, 32, out, values, N, float(scale))
            except LaunchError:
                refused.append(scale)
                return
            results[scale] = results.get(scale, True) and bool((out.numpy() == scale * np.arange(N)).all())

    threads = [threading.Thread(target=work, args=(scale,)) for scale in range(1, 9)]
    for thread in threads:
        thread.start()
    threads[0].join()
    kernel.module.close()
    for thread in threads:
        thread.join()
    assert all(results.values()) and 1 in results and 1 not in refused
    assert len({*results, *refused}) == 8  # no thread ended in another way


def test_interrupted(driver, cubin):
    """While a launch waits for another thread's, and while it is with the driver: Ctrl-C stays what it is, and the
    lock and the thread's context are as before."""
    out, values = arrays("cuda:1")
    kernel = loader.load(cubin, "cuda:1").kernel("add")
    kernel.launch(2, 32, out, values, N, 2.0)
    lock, held, ends, main = kernel.module._lock, threading.Event(), threading.Event(), threading.get_ident()

    def hold():
        with lock:
            held.set()
            while not ends.wait(0.05):
                signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=hold)
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            held.wait()
            kernel.launch(2, 32, out, values, N, 3.0)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ends.set()
        thread.join()
        signal.signal(signal.SIGINT, before)

    def interrupted(launch):
        raise KeyboardInterrupt

    driver.run, driver.thread.stack = interrupted, [1000]
    with pytest.raises(KeyboardInterrupt):
        kernel.launch(2, 32, out, values, N, 3.0)
    assert driver.thread.stack == [1000]
    del driver.run
    thread = threading.Thread(target=lambda: kernel.launch(2, 32, out, values, N, 5.0))
    thread.start()
    thread.join(10)
    assert not thread.is_alive() and (out.numpy() == 5 * np.arange(N)).all()


def test_threads_share_a_kernel_of_the_cpu_device(cubin):
    kernel, results = loader.load(cubin, "cpu").kernel("add"), {}

    def work(scale):
        out, values = np.zeros(N, np.float32), np.arange(N, dtype=np.float32)
        for _ in range(5):
            kernel.launch(2, 32, out, values, N, float(scale))
        results[scale] = (out == scale * values).all()

    threads = [threading.Thread(target=work, args=(scale,)) for scale in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(results.values())

"""What tests of the loader share: a driver on the CPU device in the place of cuda-python's, kernels, workers."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import turingas
from loader import cuda
from loader.cuda import Buffer, gpu
from loader.tune.judge import Order
from loader.workers import Workers
from tests.emulate.test_device import ADD
from tests.loader.driver import Driver
from tests.loader.tuning import BENCH, SOURCE
from turingas import assemble

N = 64


@pytest.fixture(scope="module")
def cubin():
    return turingas.assemble(ADD, filename="add.sass")


@pytest.fixture
def install(monkeypatch):
    """Puts a driver in the place of cuda-python's, and takes it away again."""

    def put(driver, name="cuda.bindings.driver"):
        for known in gpu.DRIVERS:
            monkeypatch.setitem(sys.modules, known, driver if known == name else None)
        forget()
        return driver

    yield put
    forget()


def forget():
    gc.collect()  # what tests before left goes back to the driver that it came from
    gc.freeze()  # what is left is in use, and need not be looked through the next time
    cuda.driver.cache_clear()
    cuda.count.cache_clear()
    gpu._devices.clear()


@pytest.fixture
def driver(install):
    return install(Driver())


def arrays(device="cuda:0"):
    return Buffer(N, np.float32, device).fill(0), Buffer.of(np.arange(N, dtype=np.float32), device)


@pytest.fixture(scope="module")
def order():
    return Order(assemble(SOURCE).to_bytes(), "two", BENCH, "two_bench.py", "cpu")


@pytest.fixture
def here():
    with Workers("here") as workers:
        yield workers

"""Products of warp groups on a GPU (sm_90a) and on the CPU device: the same bits.

Every product of tests/emulate/wgmma.py and every width, on numbers near 1 and on any bits. TURINGAS_RECORD_PRODUCTS
names a file for the result, one line a product; what it has is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.emulate import wgmma
from tests.gpu.cuda import Gpu
from tests.gpu.keep import keep
from tests.gpu.test_agreement import facts

pytestmark = pytest.mark.gpu

BLOCKS = 32
WIDTHS = [wgmma.Product(n, ("F16", "F16", "F32"), (128, 128)) for n in range(8, 257, 8)]
WIDTHS += [wgmma.Product(n, ("E4M3", "E4M3", "F32"), (None, 64)) for n in range(8, 257, 40)]


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    found = Gpu()
    yield found
    found.call("cuDevicePrimaryCtxRelease", found.device)


@pytest.mark.parametrize("p", [*wgmma.PRODUCTS, *WIDTHS], ids=lambda p: p.text.replace(" ", "_"))
def test_bits(p: wgmma.Product, gpu: Gpu) -> None:
    def on_gpu(cubin: bytes, blocks: int, args: list[np.ndarray]) -> None:
        gpu.run(cubin, "product", (blocks,), (wgmma.THREADS,), args)

    wrong = {codes.__name__: wgmma.differ(p, BLOCKS, codes, on_gpu) for codes in (wgmma.random_codes, wgmma.any_codes)}
    found = {f"{p.text} {p.swizzles}": {"elements": BLOCKS * 64 * p.columns, **wrong}}
    keep("TURINGAS_RECORD_PRODUCTS", lambda: facts(gpu), {"products": found})
    assert not any(wrong.values()), wrong

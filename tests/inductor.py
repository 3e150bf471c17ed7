"""Where torch.compile and AOTInductor keep what they compile, in tests.

PyTorch's bundler of Triton kernels assumes that no other process reads or writes its folder (its own comment, in
torch/_inductor/triton_bundler.py): one that finds a folder of a kernel begun by another takes it for complete. So each
process of the tests has folders of its own, in the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".cache" / "inductor"
#: ``inductor_configs`` of AOTInductor. Beside an H100 the linker copied libstdc++.a into packages; with a second C++
#: library PyTorch's loader ends in a segmentation fault or std::bad_cast, whatever the model. The shared one is named
#: first, so that nothing is taken from the other.
PACKAGED = {"aot_inductor.custom_op_libs": [":libstdc++.so.6"]}


def apart() -> Path:
    """Give this process, a worker of pytest-xdist or the only one, its own: called before anything is compiled."""
    folder = CACHE / os.environ.get("PYTEST_XDIST_WORKER", "alone")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")  # tests/conftest.py has one for all
    return folder

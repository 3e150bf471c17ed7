"""What all tests share."""

import gc
import os
from pathlib import Path

# what NVRTC and Triton compile, and what matplotlib finds out about fonts, is kept in the checkout
CACHE = Path(__file__).parent.parent / ".cache"
os.environ.setdefault("TURINGAS_CACHE", str(CACHE / "nvrtc"))
os.environ.setdefault("MPLCONFIGDIR", str(CACHE / "matplotlib"))
os.environ.setdefault("TRITON_CACHE_DIR", str(CACHE / "triton"))


def pytest_collection_finish() -> None:
    """Looking for garbage took a third of the time. Modules and tests, which stay to the end, are left out of it, and
    it is done when there are more new objects than the usual 700."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)

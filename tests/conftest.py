"""What all tests share."""

import gc
import os
from pathlib import Path

# what NVRTC compiles, and what matplotlib finds out about fonts, is kept in the checkout, not in the user's folder
CACHE = Path(__file__).parent.parent / ".cache"
os.environ.setdefault("TURINGAS_CACHE", str(CACHE / "nvrtc"))
os.environ.setdefault("MPLCONFIGDIR", str(CACHE / "matplotlib"))


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end. Looking for garbage among them, again and again, took a quarter of the time."""
    gc.collect()
    gc.freeze()

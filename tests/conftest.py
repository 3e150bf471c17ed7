"""What all tests share."""

import os
from pathlib import Path

# what NVRTC compiles is kept in the checkout, not in the user's folder
os.environ.setdefault("TURINGAS_CACHE", str(Path(__file__).parent.parent / ".cache" / "nvrtc"))

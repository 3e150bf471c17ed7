"""kernels_sass.torch without PyTorch. Its own tests are in tests/kernels_sass/torch: `make test-torch`."""

from __future__ import annotations

import subprocess
import sys


def test_without_pytorch():
    """Importing it says what is missing."""
    code = "import sys; sys.modules['torch'] = None; import kernels_sass.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "ImportError: kernels_sass.torch needs PyTorch" in done.stderr

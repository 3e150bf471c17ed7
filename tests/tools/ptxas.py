"""Run ptxas: PTX text in, cubin out.

ptxas comes from the installed package nvidia-cuda-nvcc-cu12, or is the file that TURINGAS_PTXAS names.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.tools.nvrtc import package_folders


class PtxasError(Exception):
    """ptxas refuses the text; the message is what it wrote."""


def program_path() -> Path | None:
    """Find ptxas; None where it is not installed."""
    if named := os.environ.get("TURINGAS_PTXAS"):
        return Path(named) if Path(named).is_file() else None
    for folder in package_folders("cuda_nvcc"):
        if (folder / "bin" / "ptxas").is_file():
            return folder / "bin" / "ptxas"
    return None


def assemble_ptx(text: str, arch: str, options: Sequence[str] = (), seconds: float = 300) -> bytes:
    """Turn PTX text into a cubin for arch; options as ptxas takes them (-O0, -g, --preserve-relocs)."""
    path = program_path()
    if path is None:
        raise FileNotFoundError("ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
    if not os.access(path, os.X_OK):
        path.chmod(0o755)  # some installers leave it without the bit
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "source.ptx"), Path(folder, "result.cubin")
        source.write_text(text)
        command = [str(path), f"-arch={arch}", *options, str(source), "-o", str(result)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        if run.returncode or not result.exists():
            raise PtxasError((run.stdout + run.stderr) or f"ptxas ended with {run.returncode}")
        return result.read_bytes()

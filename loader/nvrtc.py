"""NVRTC: CUDA C++ in, cubin out. It needs no GPU, and no CUDA toolkit.

The library is the one that the environment variable TURINGAS_NVRTC names, or that of the installed package
nvidia-cuda-nvrtc-cu12 (CUDA 13: nvidia-cuda-nvrtc), of the toolkit in CUDA_HOME, or the system's. Headers
(cuda_fp16.h, ...) come from the folders, parted by ':', in TURINGAS_CUDA_INCLUDE, or from nvidia-cuda-runtime-cu12 and
nvidia-cuda-cccl-cu12, or from that toolkit. What was compiled once is kept in TURINGAS_CACHE (~/.cache/turingas unless
said otherwise).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import hashlib
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from turingas.forks import freed

INSTALL = "pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-cccl-cu12"


APART = "TURINGAS_NVRTC_APART"  # set in a process that compiles one source alone, and what that process does
WORK = """
import pickle, sys
from loader import nvrtc
try:
    made = nvrtc._compile(*pickle.load(sys.stdin.buffer))
except nvrtc.NvrtcError as error:
    made = (error.message, error.log)
sys.stdout.buffer.write(pickle.dumps(made))
"""


class NvrtcError(Exception):
    """NVRTC is not there, or did not compile. ``log`` is what it printed, with the source's name and lines."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message + (f"\n{log}" if log else ""))
        self.message, self.log = message, log


def compile(source: str, arch: str, options: Sequence[str] = (), name: str = "source.cu") -> bytes:
    """Compile CUDA C++ to a cubin for ``arch`` ("sm_75"). Kernels found by name are to be ``extern "C"``.

    ``options`` as NVRTC takes them (``-DN=3``, ``-lineinfo``, ``--include-path=...``); C++17 unless they say otherwise.
    ``name`` stands for the source in messages. Results are kept by source, options, architecture and NVRTC's version;
    those of sources that include files of the user's are not, for these may change. Raises NvrtcError.
    """
    words = [f"--gpu-architecture={arch}", *(f"--include-path={folder}" for folder in include_folders())]
    if not any(o.startswith(("-std", "--std")) for o in options):
        words.append("--std=c++17")
    words += options
    if any(o.startswith(("-I", "--include-path", "-include", "--pre-include")) for o in options):
        return _compile(source, words, name)
    key = hashlib.sha256(repr((version(), words, name, source)).encode()).hexdigest()
    path = cache_folder() / f"{key}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        pass
    cubin = _compile(source, words, name)
    _keep(path, cubin)
    return cubin


def version() -> tuple[int, int]:
    """NVRTC's version, such as (12, 9). Raises NvrtcError where there is none."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def cache_folder() -> Path:
    """Where cubins are kept. It may be deleted at any time."""
    if named := os.environ.get("TURINGAS_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turingas"


def _keep(path: Path, cubin: bytes) -> None:
    """Write under another name first: nobody reads half a file. Without a place to write, nothing is kept."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(cubin)
        os.replace(file.name, path)
    except OSError:
        pass


# ---- the library -------------------------------------------------------------------------------------------------


def package_folders(name: str) -> Iterator[Path]:
    """The folders of the installed package nvidia.NAME: "cu13" has all of CUDA 13's. They hold lib and include."""
    try:
        spec = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        return
    for folder in (spec.submodule_search_locations if spec else None) or ():
        yield Path(folder)


def library_path() -> str:
    """The file of the library, or its name where the system finds it. Raises NvrtcError where there is none."""
    if named := os.environ.get("TURINGAS_NVRTC"):
        if not Path(named).is_file():
            raise NvrtcError(f"TURINGAS_NVRTC names {named}, and there is no such file")
        return named
    for folder in _folders("cuda_nvrtc"):
        for path in sorted(folder.glob("lib*/libnvrtc.so*")):
            return str(path)
    if found := ctypes.util.find_library("nvrtc"):
        return found
    raise NvrtcError(f"NVRTC, which compiles CUDA C++, is not installed: {INSTALL}")


def include_folders() -> tuple[Path, ...]:
    """The folders of CUDA's headers; none where they are not installed."""
    if named := os.environ.get("TURINGAS_CUDA_INCLUDE"):
        return tuple(Path(folder) for folder in named.split(os.pathsep))
    folders = _folders("cuda_runtime", "cuda_cccl", "cuda_nvcc")
    # CUDA 13 has libcu++ in the second
    able = (folder / name for folder in folders for name in ("include", "include/cccl"))
    return tuple(folder for folder in able if folder.is_dir())


def _folders(*packages: str) -> Iterator[Path]:
    """Where to look, in this order: CUDA 12's packages, those of CUDA 13, the toolkit."""
    for name in (*packages, "cu13"):
        yield from package_folders(name)
    if home := os.environ.get("CUDA_HOME"):
        yield Path(home)


_lock = freed(threading.Lock())


def _library() -> ctypes.CDLL:
    with _lock:
        return _load(library_path())


@functools.cache
def _load(path: str) -> ctypes.CDLL:
    try:
        for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")):  # NVRTC looks it up by its bare name
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(path)
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        raise NvrtcError(f"NVRTC ({path}) cannot be loaded: {error}") from error
    return library


def _compile(source: str, words: Sequence[str], name: str) -> bytes:
    """-G gets a process of its own: NVRTC 12.9 makes other code of all that it compiles after it."""
    if ("-G" in words or "--device-debug" in words) and not os.environ.get(APART):
        return _compile_apart(source, words, name)
    library = _library()
    program = ctypes.c_void_p()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None), name)
    try:
        array = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        status = library.nvrtcCompileProgram(program, len(words), array)
        if status:
            log = _take(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            if "open source file" in log and not include_folders():
                log += f"\nhint: CUDA's headers are not installed: {INSTALL}"
            _check(status, name, log)
        return _take(program, "nvrtcGetCUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _compile_apart(source: str, words: Sequence[str], name: str) -> bytes:
    environment = {**os.environ, APART: "1", "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    given = pickle.dumps((source, list(words), name))
    made = subprocess.run([sys.executable, "-c", WORK], input=given, capture_output=True, env=environment)
    if made.returncode:
        raise RuntimeError(made.stderr.decode(errors="replace"))
    cubin: bytes | tuple[str, str] = pickle.loads(made.stdout)
    if isinstance(cubin, bytes):
        return cubin
    raise NvrtcError(*cubin)


def _check(status: int, name: str, log: str = "") -> None:
    if status:
        meaning = _library().nvrtcGetErrorString(status).decode()
        raise NvrtcError(f"{name} does not compile: {meaning}", log)


def _take(program: ctypes.c_void_p, what: str) -> bytes:
    """Call one of NVRTC's pairs nvrtcGetXSize and nvrtcGetX."""
    size = ctypes.c_size_t()
    _check(getattr(_library(), what + "Size")(program, ctypes.byref(size)), what)
    data = ctypes.create_string_buffer(size.value)
    _check(getattr(_library(), what)(program, data), what)
    return data.raw

"""NVRTC: what it compiles, what it says when it does not, and what is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import loader
from loader import nvrtc
from loader.nvrtc import NvrtcError

FILL = """
#ifndef VALUE
#define VALUE 7
#endif
extern "C" __global__ void fill(int *out) { out[threadIdx.x] = VALUE; }
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("TURINGAS_CACHE", str(folder))
    return folder


def filled(cubin):
    out = np.zeros(32, np.int32)
    loader.load(cubin, "cpu").kernel("fill").launch(1, 32, out)
    return set(out.tolist())


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_90"])
def test_what_it_makes_runs(arch):
    assert filled(nvrtc.compile(FILL, arch)) == {7}
    assert filled(nvrtc.compile(FILL, arch, ["-DVALUE=-3"])) == {-3}


def test_it_compiles_once(cache, monkeypatch):
    first = nvrtc.compile(FILL, "sm_75")
    assert [path.read_bytes() for path in cache.iterdir()] == [first]
    monkeypatch.setattr(nvrtc, "_compile", lambda *args: pytest.fail("compiled again"))
    assert nvrtc.compile(FILL, "sm_75") == first


@pytest.mark.parametrize(
    "change",
    [
        {"source": FILL + "\n"},
        {"arch": "sm_80"},
        {"options": ["-DVALUE=1"]},
        {"options": ["--std=c++14"]},
        {"name": "other.cu"},
    ],
    ids=str,
)
def test_what_is_kept_is_told_apart(cache, change):
    asked = {"source": FILL, "arch": "sm_75", "options": [], "name": "source.cu"}
    nvrtc.compile(**asked)
    nvrtc.compile(**asked | change)
    assert len(list(cache.iterdir())) == 2


def test_another_version_compiles_again(cache, monkeypatch):
    nvrtc.compile(FILL, "sm_75")
    monkeypatch.setattr(nvrtc, "version", lambda: (99, 0))
    nvrtc.compile(FILL, "sm_75")
    assert len(list(cache.iterdir())) == 2


def test_files_of_the_users_are_read_each_time(cache, tmp_path):
    source = '#include "value.h"\n' + FILL
    for value in (3, 4):
        (tmp_path / "value.h").write_text(f"#define VALUE {value}\n")
        assert filled(nvrtc.compile(source, "sm_75", [f"--include-path={tmp_path}"])) == {value}
    assert not cache.exists()


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TURINGAS_CACHE", str(tmp_path / "file" / "cache"))
    assert filled(nvrtc.compile(FILL, "sm_75")) == {7}


def test_where_the_cache_is(monkeypatch):
    monkeypatch.delenv("TURINGAS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    assert nvrtc.cache_folder() == Path("/some/where/turingas")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert nvrtc.cache_folder() == Path.home() / ".cache/turingas"


def test_headers():
    source = '#include <cuda_fp16.h>\nextern "C" __global__ void kern(__half *x) { *x = __hadd(*x, *x); }'
    x = np.array([1.5, 0], np.float16)
    loader.load(nvrtc.compile(source, "sm_75"), "cpu").kernel("kern").launch(1, 1, x)
    assert x[0] == 3


def test_a_source_with_errors(cache):
    with pytest.raises(NvrtcError) as caught:
        nvrtc.compile("__global__ void kern() {\n  int x = y;\n  z();\n}\n", "sm_75", name="mine.cu")
    message = str(caught.value)
    assert message.startswith("mine.cu does not compile: NVRTC_ERROR_COMPILATION\n")
    assert 'mine.cu(2): error: identifier "y" is undefined' in message
    assert 'mine.cu(3): error: identifier "z" is undefined' in caught.value.log
    assert not cache.exists()


@pytest.mark.parametrize("arch", ["sm_12", "turing", ""])
def test_an_architecture_that_it_does_not_know(arch):
    with pytest.raises(NvrtcError, match="source.cu does not compile: NVRTC_ERROR_INVALID_OPTION\n.*gpu-architecture"):
        nvrtc.compile(FILL, arch)


def test_an_option_that_it_does_not_know():
    with pytest.raises(NvrtcError, match="--no-such-option"):
        nvrtc.compile(FILL, "sm_75", ["--no-such-option"])


def test_no_headers(monkeypatch):
    monkeypatch.setattr(nvrtc, "include_folders", lambda: ())
    with pytest.raises(NvrtcError, match=r'source.cu\(1\).*open source file "none.h"(.|\n)*pip install'):
        nvrtc.compile('#include "none.h"\n', "sm_75")


def test_a_library_that_is_not_where_it_should_be(monkeypatch):
    monkeypatch.setenv("TURINGAS_NVRTC", "/nowhere/libnvrtc.so.12")
    with pytest.raises(NvrtcError, match="TURINGAS_NVRTC names /nowhere/libnvrtc.so.12, and there is no such file"):
        nvrtc.compile(FILL, "sm_75")


def test_a_library_that_is_none(tmp_path, monkeypatch):
    path = tmp_path / "libnvrtc.so.12"
    path.write_text("no library")
    monkeypatch.setenv("TURINGAS_NVRTC", str(path))
    with pytest.raises(NvrtcError, match="cannot be loaded"):
        nvrtc.version()


def test_without_nvrtc(monkeypatch):
    monkeypatch.delenv("TURINGAS_NVRTC", raising=False)
    monkeypatch.setattr(nvrtc, "package_folders", lambda name: iter(()))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(nvrtc.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(NvrtcError, match="not installed: pip install nvidia-cuda-nvrtc-cu12"):
        nvrtc.compile(FILL, "sm_75")


def test_a_toolkit(tmp_path, monkeypatch):
    monkeypatch.delenv("TURINGAS_NVRTC", raising=False)
    monkeypatch.delenv("TURINGAS_CUDA_INCLUDE", raising=False)
    monkeypatch.setattr(nvrtc, "package_folders", lambda name: iter(()))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert nvrtc.include_folders() == ()
    (tmp_path / "lib64").mkdir()
    (tmp_path / "include").mkdir()
    (tmp_path / "lib64" / "libnvrtc.so").write_text("no library")
    assert nvrtc.include_folders() == (tmp_path / "include",)
    (tmp_path / "include" / "cccl").mkdir()
    assert nvrtc.include_folders() == (tmp_path / "include", tmp_path / "include" / "cccl")
    with pytest.raises(NvrtcError, match=f"{tmp_path}/lib64/libnvrtc.so. cannot be loaded"):
        nvrtc.version()


def test_a_kept_cubin_survives_a_reader_at_the_same_time(cache):
    """Two processes that compile the same at once both get it, and one file is left."""
    code = f"from loader import nvrtc; assert nvrtc.compile({FILL!r}, 'sm_75')[:4] == b'\\x7fELF'"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert len(list(cache.iterdir())) == 1

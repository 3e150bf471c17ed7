"""What tests/gpu is made of, as far as it runs without a GPU: its tests over a driver made of the CPU device, processes
that end as a GPU's fault ends them, and the files that results go into."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from loader import cuda
from tests.emulate import tiles, whole
from tests.gpu import reach, test_tiles, test_whole
from tests.gpu.apart import apart
from tests.loader.apart import add, work
from tests.loader.driver import Driver
from tests.tools import nvrtc


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[cuda.Device]:
    """A card of sm_90, made of the CPU device."""
    from loader.cuda import gpu as module

    def forget() -> None:
        gc.collect()
        for cache in (cuda.driver, cuda.count):
            cache.cache_clear()

    forget()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", Driver(1, 9, 0))
    monkeypatch.setattr(module, "_devices", {})
    yield cuda.device(0)
    forget()


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
def test_tests_for_a_card(gpu: cuda.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They find nothing here, and write down what they found."""
    monkeypatch.setenv("TURINGAS_RECORD_TILES", str(tmp_path / "tiles.json"))
    monkeypatch.setattr(test_tiles, "GEOMETRIES", 60)
    monkeypatch.setattr(test_whole, "SEEDS", 1)
    for part in (0, 1):
        test_tiles.test_geometries(part, gpu)
    test_whole.test_bits(next(iter(whole.KINDS)), 2, gpu)
    found = json.loads((tmp_path / "tiles.json").read_text())
    assert (found["wrong"], found["parts"]) == ({}, {"0": "ran", "1": "ran"})


def test_geometries_that_are_wrong(gpu: cuda.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURINGAS_RECORD_TILES", str(tmp_path / "tiles.json"))
    monkeypatch.setattr(test_tiles, "GEOMETRIES", 30)
    loaded = tiles.Case.loaded
    monkeypatch.setattr(tiles.Case, "loaded", lambda case, tensor: loaded(case, tensor) ^ 1)
    with pytest.raises(AssertionError):
        test_tiles.test_geometries(0, gpu)
    found = json.loads((tmp_path / "tiles.json").read_text())
    assert found["wrong"] and all(one["operation"] == "load" for one in found["wrong"].values())
    assert len(np.load(tmp_path / "tiles.json.npz")) == 4 * len(found["wrong"])


# ---- processes -------------------------------------------------------------------------------------------------------


def test_processes_apart() -> None:
    items = [("end", 3), ("raise", "one"), ("say", {"a": 1})]
    found = {item[0]: said for item, said in apart(work, items, 2, 100)}
    assert found == {"end": "! ended with status 3", "raise": "! no one", "say": ["say", {"a": 1}]}
    assert list(apart(work, [("sleep", 600)], patience=1)) == [(("sleep", 600), "! hangs: nothing in 1 s")]


def test_who_stops_asking(capfd: pytest.CaptureFixture[str]) -> None:
    """Ends what still runs; and nothing is said of that."""
    begin = time.monotonic()
    for _ in apart(work, [("say", 1), ("sleep", 600), ("sleep", 601)], 3, 300):
        break
    gc.collect()
    assert time.monotonic() - begin < 100 and capfd.readouterr() == ("", "")


def test_that_nothing_ran_is_no_fault() -> None:
    fault = "! reach: CUDA_ERROR_ILLEGAL_INSTRUCTION (715): an illegal instruction was encountered"
    assert reach.agree([1], [1]) and reach.agree("! in block 0", fault)
    for nothing in ("! there is no device", "! hangs: nothing in 30 s", "! k: CUDA_ERROR_NOT_INITIALIZED (3)", [1]):
        assert not reach.agree("! in block 0", nothing)


# ---- files -----------------------------------------------------------------------------------------------------------


def test_several_processes_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURINGAS_TEST_KEEP", raising=False)
    add(7)  # nowhere
    path = tmp_path / "deep" / "found.json"
    monkeypatch.setenv("TURINGAS_TEST_KEEP", str(path))
    assert len(list(apart(add, range(4), 2))) == 4
    found = json.loads(path.read_text())
    assert found == {"head": "first", "rows": {f"{n:02}": n for n in range(4)}} and list(found["rows"])[0] == "00"
    assert sorted(np.load(f"{path}.npz")) == [str(n) for n in range(4)]


def test_what_is_known_of_reach_stays_when_it_is_cut_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each case is printed, and in the file, before the next is asked; the next run asks what has no answer."""
    fault, path, asked = "! CUDA_ERROR_ILLEGAL_INSTRUCTION (715)", tmp_path / "reach.json", []

    def interrupted(work: Any, items: Any, *_: Any) -> Iterator[tuple[Any, Any]]:
        yield items[1], fault
        yield items[0], "! hangs"
        raise KeyboardInterrupt

    def hangs(work: Any, items: Any, at_once: int, limit: float) -> Iterator[tuple[Any, Any]]:
        asked.append((at_once, list(items)))
        yield from ((item, "! hangs" if at_once > 1 else [[2] * 512, [1] * 512]) for item in items)

    monkeypatch.setattr(reach, "cubin", lambda: b"")
    monkeypatch.setattr(reach, "run", lambda *_: "! in block 0")
    monkeypatch.setattr(loader, "devices", lambda: ["cpu", "cuda:0"])
    monkeypatch.setattr(reach, "apart", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reach.main(["store_4,", "--json", str(path)])
    said = capsys.readouterr().out
    assert said.startswith("  store_4, block 1: block 0's: ! CUDA")
    assert "\n? store_4, block 1: its own: ! hangs\n" in said
    assert json.loads(path.read_text()) == [["store_4", 1, 0, 0, fault], ["store_4", 1, 1, 1, "! hangs"]]
    monkeypatch.setattr(reach, "apart", hangs)
    assert reach.main(["store_4,", "--json", str(path), "--at-once", "4"]) == 1
    left = [("store_4", 1, 1, 1), ("store_4", 0, 1, 1)]
    assert asked == [(4, left), (1, left)], "again, one by one"
    assert capsys.readouterr().out.endswith("2 of 3 differ, 0 have no answer\n")
    assert len(json.loads(path.read_text())) == 3
    with pytest.raises(SystemExit):
        reach.main(["--device", "cuda:7"])

"""What all tests share."""

import gc
import os
import random
import secrets
from collections import defaultdict
from pathlib import Path

import pytest

# what NVRTC and Triton compile, and what matplotlib finds out about fonts, is kept in the checkout
CACHE = Path(__file__).parent.parent / ".cache"
os.environ.setdefault("TURINGAS_CACHE", str(CACHE / "nvrtc"))
os.environ.setdefault("MPLCONFIGDIR", str(CACHE / "matplotlib"))
os.environ.setdefault("TRITON_CACHE_DIR", str(CACHE / "triton"))
#: what draws the cases of tests that are marked ``sample``; the workers of pytest-xdist inherit it
SEED = os.environ.setdefault("TURINGAS_TEST_SEED", str(secrets.randbelow(1 << 32)))


def pytest_report_header() -> str:
    return f"cases of samples: TURINGAS_TEST_SEED={SEED}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the cases of a test marked ``sample(n)`` all but n, drawn by SEED, are slow; for ``-m slow`` all are."""
    cases: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample"):
            cases[str(item.path), item.originalname].append(item)  # type: ignore[attr-defined]
    for name, found in cases.items():
        mark = found[0].get_closest_marker("sample")
        assert mark is not None
        count = 0 if config.option.markexpr == "slow" else mark.args[0]
        for item in set(found) - set(random.Random(f"{SEED} {name[1]}").sample(found, min(count, len(found)))):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Looking for garbage took a third of the time. Modules and tests, which stay to the end, are left out of it, and
    it is done when there are more new objects than the usual 700."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)

"""`turingas bench networks` where there is no GPU, or no PyTorch; the rest is in tests/kernels_sass/torch."""

from __future__ import annotations

from kernels_sass.bench import networks
from tests.kernels_sass.card import call


def test_where_there_is_no_torch(card, monkeypatch):
    monkeypatch.setattr(networks, "torch", lambda: None)
    done = call("networks")
    assert done.exit_code == 1 and "PyTorch is not installed, or sees no GPU" in done.output


def test_without_a_gpu(no_gpu, tmp_path):
    done = call("networks")
    assert done.exit_code == 1 and "there is no GPU here" in done.output and "bench networks --show" in done.output
    done = call("networks", "--show", "--json", str(tmp_path / "none.json"))
    assert done.exit_code == 1 and "there are no results in" in done.output


def test_wrong_usage(no_gpu):
    for words in (["--batch", "0"], ["--layout", "CHWN"], ["--network", "alexnet"], ["--who", "nobody"]):
        assert call("networks", *words).exit_code == 2, words


def row(group, status="ok", ms=None):
    return {"name": group, "group": group, "status": status, **({"ms": ms} if ms else {})}


def test_verdicts():
    """The fastest of each; what fails with PyTorch too is no failure of ours."""
    rows = [row("torch", ms=4.0), row("torch", ms=3.0), row("ours", ms=2.0), row("ours", "wrong")]
    made = networks.verdict(rows)
    assert made["over_torch"] == 1.5 and networks.verdict(rows[:2])["over_torch"] is None
    assert list(networks.failures({"settings": {"a N1": {"rows": rows}}})) == ["a N1: ours: wrong"]
    assert not list(networks.failures({"settings": {"a N1": {"rows": rows[2:]}}}))
    assert networks.brief({"verdict": made}) == "ours 2.000 ms; torch 3.000 ms; 1.50x"

"""turingas.tune_triton: kernels that Triton really compiles (for sm_90), a launcher that stands for Triton's."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import turingas
from loader.tune import triton as tuning
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

triton = pytest.importorskip("triton", reason="Triton compiles the kernels of these tests")
tl = pytest.importorskip("triton.language")


@triton.jit
def scaled(x, y, n, by, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + at, mask=at < n)
    b = tl.load(y + at, mask=at < n)
    tl.store(y + at, a * by + b, mask=at < n)


class Launcher:
    """What Triton's CompiledKernel is to a launch, without a GPU: ``loads`` what it would load."""

    def __init__(self, real, refuses=()):
        self.asm, self.metadata, self.src = dict(real.asm), real.metadata, real.src
        self.kernel = self.asm["cubin"]
        self.module = self.function = None
        self.loads, self.refuses = [], refuses

    def _init_handles(self):
        if self.module is None:
            if self.kernel in self.refuses:
                raise RuntimeError("out of resource")
            self.loads.append(self.kernel)
            self.module, self.function = object(), len(self.loads)


@pytest.fixture(scope="module")
def real():
    """As Triton 3.1 and later take it."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {"x": "*fp32", "y": "*fp32", "n": "i32", "by": "fp32"}
    try:
        source = ASTSource(fn=scaled, signature=types, constants={"B": 256})
    except TypeError:
        source = ASTSource(fn=scaled, signature={**types, "B": "constexpr"}, constexprs={"B": 256})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2})


ARGS = np.ones(700, np.float32), np.ones(700, np.float32), 700, 2.0


def tuned(kernel, tmp_path, **more):
    return turingas.tune_triton(kernel, (3,), ARGS, folder=tmp_path, inputs=2, **{"rounds": 5, **more})


@pytest.fixture(scope="module")
def found(real, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    kernel = Launcher(real)
    kernel._init_handles()
    return kernel, tuned(kernel, folder), folder


def test_the_launcher_has_the_tuned_cubin(real, found):
    kernel, made, _ = found
    assert made.gained and made.figure < 1 and not made.why and made.kernel is kernel and not made.cached
    original, now = kernel.loads
    assert original == real.asm["cubin"] and now == kernel.asm["cubin"] == kernel.kernel != original
    assert kernel.function == 2  # the launch after asks for it anew
    name = kernel.metadata.name
    assert Cubin.from_bytes(now).kernel(name).words != Cubin.from_bytes(original).kernel(name).words


def test_it_is_found_again(real, found, tmp_path):
    kernel, made, folder = found
    other = Launcher(real)
    again = tuned(other, folder)
    assert again.cached and again.gained and again.figure == made.figure and other.loads == kernel.loads[1:]
    once_more = tuned(other, folder)  # Triton's own is put back first
    assert once_more.cached and once_more.gained and other.loads == [kernel.loads[n] for n in (1, 0, 1)]
    assert other.kernel == kernel.kernel


@pytest.mark.parametrize("damage", ["cubin", "json", "kernel"])
def test_a_cache_that_does_not_fit_is_not_used(real, found, tmp_path, damage):
    _, _, folder = found
    for path in (folder / "tuned").iterdir():
        (tmp_path / "tuned").mkdir(exist_ok=True)
        data = path.read_bytes()
        if path.suffix == "." + damage:
            data = data[:-1]
        if damage == "kernel" and path.suffix == ".json":
            data = json.dumps({**json.loads(data), "kernel": "another"}).encode()
        (tmp_path / "tuned" / path.name).write_bytes(data)
    assert not tuned(Launcher(real), tmp_path, rounds=1).cached


def test_what_the_launcher_refuses_leaves_the_original(real, found, tmp_path):
    kernel, _, folder = found
    other = Launcher(real, refuses=kernel.loads[1:])
    other._init_handles()
    made = tuned(other, folder)
    assert not made.gained and "out of resource" in made.why
    assert other.asm["cubin"] == other.kernel == real.asm["cubin"] and other.function == 1 and other.module is not None


def test_triton_without_a_gpu_keeps_its_own(real, found):
    """The real CompiledKernel: it is lazy, and finds no driver when it is asked to load."""
    if tuning.cuda.count():
        pytest.skip("there is a GPU: tests/gpu has this")
    _, _, folder = found
    made = tuned(real, folder)
    assert not made.gained and "Triton does not load it" in made.why and real.kernel == real.asm["cubin"]


def changed(**what):
    def change(real, data):
        kernel = Launcher(real)
        kernel.metadata = real.metadata._replace(**what)
        return kernel, data

    return change


def more_registers(real, data):
    cubin = Cubin.from_bytes(data)
    cubin.kernel(real.metadata.name).registers += 8
    return Launcher(real), cubin.to_bytes()


def of_another(real, data):
    kernel = Launcher(real)
    kernel.asm["cubin"] = b"something else"
    return kernel, data


@pytest.mark.parametrize(("change", "why"), [
    (more_registers, "differs in more"), (of_another, "another cubin by now"),
    (lambda real, data: (Launcher(real), b"ELF"), "is no cubin"),
    (changed(target=SimpleNamespace(arch=80)), "for sm_90a, and Triton's kernel for sm_80"),
    (changed(shared=1 << 20), "bytes of shared memory"),
])  # fmt: skip
def test_what_does_not_fit_is_not_put(real, found, monkeypatch, change, why):
    monkeypatch.setattr(tuning, "shared_limit", lambda: 1 << 16)
    kernel, data = change(real, found[0].asm["cubin"])
    assert why in tuning.put(kernel, real.asm["cubin"], data) and not kernel.loads


@pytest.mark.parametrize(("what", "why"), [
    ({"cluster_dims": (2, 1, 1)}, "clusters"), ({"num_warps": 64}, "block.x is 2048"), ({"name": "other"}, "other"),
])  # fmt: skip
def test_launches_that_cannot_be_tuned(real, tmp_path, what, why):
    kernel = Launcher(real)
    fields = {**real.metadata._asdict(), **what}
    kernel.metadata = SimpleNamespace(**fields)
    made = tuned(kernel, tmp_path)
    assert not made.gained and why in made.why and not kernel.loads


def test_arguments_that_cannot_be_tuned(real, tmp_path):
    made = turingas.tune_triton(Launcher(real), 3, ARGS[:3], folder=tmp_path)
    assert "no argument is given for by" in made.why
    made = turingas.tune_triton(Launcher(real), 3, (3, *ARGS[1:]), folder=tmp_path)
    assert "x is a int" in made.why
    with pytest.raises(LaunchError, match="launch it once"):
        turingas.tune_triton(SimpleNamespace(configs=[1], fn=None), 3, ARGS, folder=tmp_path)


def test_the_best_configuration_is_taken(real):
    """Of what triton.autotune makes; and what triton.heuristics adds."""

    class Function:
        def warmup(self, *args, **more):
            self.more = more
            return SimpleNamespace(result=lambda: Launcher(real))

    class Config:
        def all_kwargs(self):
            return {"num_warps": 2}

    inner = Function()
    outer = SimpleNamespace(
        configs=[1], best_config=Config(), fn=SimpleNamespace(
            values={"B": lambda given: given["n"] // 7 * given["num_warps"]}, arg_names=["x", "y", "n"], fn=inner)
    )  # fmt: skip
    kernel, values = tuning._compiled(outer, (3,), ARGS, {"late": 1})
    assert inner.more == {"grid": (3,), "num_warps": 2, "B": 200, "late": 1}
    assert isinstance(kernel, Launcher) and values["B"] == 200 and values["by"] == 2.0 and values["n"] == 700

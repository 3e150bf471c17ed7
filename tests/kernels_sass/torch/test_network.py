"""``convert``: what is folded and what stays, networks that cannot be traced, later calls, and random networks."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import pickle
import random
import statistics
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from torch import nn  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.nn import functional  # noqa: E402

from kernels_sass.torch import Conv2d, Linear, convert, network, operator, tune  # noqa: E402
from kernels_sass.torch import table as entries  # noqa: E402
from kernels_sass.torch.table import faster  # noqa: E402
from turingas.errors import LaunchError  # noqa: E402

OURS = "turingas::conv2d"
LINEAR = "turingas::linear"


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def norm(count):
    made = nn.BatchNorm2d(count)
    for tensor, bounds in zip((made.running_mean, made.running_var, made.weight, made.bias),
                              ((-1, 1), (0.5, 2), (0.5, 1.5), (-1, 1))):  # fmt: skip
        nn.init.uniform_(tensor, *bounds)
    return made


class Block(nn.Module):
    """Of a ResNet."""

    def __init__(self, c, k, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, k, 3, stride, 1, bias=False), norm(k)
        self.conv2, self.bn2 = nn.Conv2d(k, k, 3, 1, 1, bias=False), norm(k)
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False), norm(k)) if c != k or stride > 1 else None

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


class Small(nn.Module):
    """A ResNet with little in it."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.pool = nn.Conv2d(3, 4, 7, 2, 3, bias=False), norm(4), nn.MaxPool2d(3, 2, 1)
        self.layer1, self.layer2 = nn.Sequential(Block(4, 4), Block(4, 4)), nn.Sequential(Block(4, 6, 2))
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        x = self.layer2(self.layer1(self.pool(functional.relu(self.bn1(self.conv1(x))))))
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


def off(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm())


def through(forward, **modules):
    """A network with this forward."""

    class Made(nn.Module):
        def __init__(self):
            super().__init__()
            for name, module in modules.items():
                setattr(self, name, module)

    Made.forward = forward
    return Made().eval()


def rows(report):
    return {row.name: row for row in report.rows}


# ---- a network ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_small_resnet(order, kernels):
    """Through our kernels, against float64: all that can be is folded, and nothing is permuted."""
    model = Small().eval().to(memory_format=order)
    x = torch.randn(2, 3, 20, 24).contiguous(memory_format=order)
    exact = copy.deepcopy(model).double()
    made, report = convert(model, x)
    folded = {row.name: (row.by, *row.folded) for row in report.rows}
    block = {"conv1": (OURS, "batch norm", "ReLU"), "conv2": (OURS, "batch norm", "residual", "ReLU")}
    assert folded == {
        "conv1": (OURS, "batch norm", "ReLU"),
        **{f"layer1.{n}.{name}": one for n in (0, 1) for name, one in block.items()},
        "layer2.0.conv1": block["conv1"], "layer2.0.conv2": block["conv2"],
        "layer2.0.down.0": (OURS, "batch norm"), "fc": ("PyTorch",),
    }  # fmt: skip
    assert [row.why for row in report.left] == ["with 2 rows PyTorch is as fast"]
    assert len(kernels) == 8 and not any("permute" in str(node) for node in made.traced.graph.nodes)
    assert off(made(x), exact(x.double())) < 1e-6 and report.relative < 1e-5
    assert report.memory["filters"] > 5 * 4 * 16 * 8 * 64 and report.memory["weights"] > 0
    assert str(report).splitlines()[-3:-1] == ["8 of 9 layers are ours",
        f"largest difference in the example: {report.difference:.2g}, {report.relative:.1g} of the largest number"]
    assert json.loads(json.dumps(report.as_dict()))["rows"][1]["what"] == "3x3, 4 -> 4, 5x6"


class Bottleneck(nn.Module):
    """Of a ResNet that begins: 7 x 7, and a block with 1 x 1 around a 3 x 3 of stride 2."""

    def __init__(self):
        super().__init__()
        self.start, self.bn, self.pool = nn.Conv2d(3, 6, 7, 2, 3, bias=False), norm(6), nn.MaxPool2d(3, 2, 1)
        self.conv1, self.bn1 = nn.Conv2d(6, 4, 1, bias=False), norm(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, 2, 1, bias=False), norm(4)
        self.conv3, self.bn3 = nn.Conv2d(4, 8, 1, bias=False), norm(8)
        self.down, self.relu, self.fc = nn.Sequential(nn.Conv2d(6, 8, 1, 2), norm(8)), nn.ReLU(True), nn.Linear(8, 5)

    def forward(self, x):
        x = self.pool(self.relu(self.bn(self.start(x))))
        y = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        y = self.bn3(self.conv3(y)) + self.down(x)
        return self.fc(self.relu(y).mean((2, 3)))


def test_all_of_a_resnet(kernels):
    """By HGMMA, linear layers where that is asked for: against float64, and later in another order."""
    model, x = Bottleneck().eval(), torch.randn(2, 3, 20, 24)
    exact = copy.deepcopy(model).double()
    assert [row.name for row in convert(model, x)[1].left] == ["fc"]
    kernels.clear()
    made, report = convert(model, x, untimed=True)
    relu, residual = ("batch norm", "ReLU"), ("batch norm", "residual", "ReLU")
    assert {row.name: (row.by, row.folded) for row in report.rows} == {
        **dict.fromkeys(("start", "conv1", "conv2"), (OURS, relu)), "conv3": (OURS, residual),
        "down.0": (OURS, ("batch norm",)), "fc": (LINEAR, ()),
    }  # fmt: skip
    assert not report.left and "6 of 6 layers are ours" in str(report) and report.memory["filters"] > 0
    for order in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 3, 20, 24).contiguous(memory_format=order)
        assert off(made(x), exact(x.double())) < 1e-6
    assert len(kernels) == 10 and all(one.kernel is None for one in kernels)


def test_a_multilayer_perceptron(kernels):
    """Modules, a function, a weight that two share; ReLU is folded in, and x may have any dimensions."""
    def forward(self, x):
        y = functional.relu(self.one(x))
        return functional.linear(self.two(y), self.one.weight.relu()) + functional.linear(x, self.one.weight).relu()

    model = through(forward, one=nn.Linear(7, 12), two=nn.Sequential(nn.Linear(12, 7), nn.ReLU(), nn.Dropout()))
    x = torch.randn(2, 3, 7)
    made, report = convert(model, x, untimed=True)
    told = [(row.name, row.by, row.folded, row.why) for row in report.rows]
    assert told == [("one", LINEAR, ("ReLU",), ""), ("two.0", LINEAR, ("ReLU",), ""),
                    ("linear", "PyTorch", (), "its weight is computed"), ("one", LINEAR, ("ReLU",), "")]  # fmt: skip
    exact = copy.deepcopy(model).double()
    for one in (x, torch.randn(7), torch.randn(0, 7), torch.randn(5, 14)[:, ::2]):
        assert off(made(one), exact(one.double())) < 1e-6 or not one.numel()
    assert [row.what for row in report.rows][0] == "linear, 7 -> 12, 6 rows"
    assert "with 6 rows PyTorch is as fast" in {row.why for row in convert(model, x)[1].rows}
    few, many = (convert(model, torch.randn(rows, 7))[1] for rows in (31, 32))
    assert len(few.left) == 4 and [row.by for row in many.replaced] == [LINEAR] * 3


def test_which_linear_layers_are_faster():
    """Those that the rule takes were faster on a card; those that it leaves were slower, but for few."""
    rows = json.loads(Path(__file__).parents[2].joinpath("bench/linear_sm90.json").read_text())["rows"]
    ratios = {taken: [one["torch_us"] / one["ours_us"] for one in rows
                      if faster(one["rows"], one["c"], one["k"]) == taken] for taken in (True, False)}  # fmt: skip
    assert len(ratios[True]) > 400 and min(ratios[True]) > 1
    assert len(ratios[False]) > 50 and sum(one > 1 for one in ratios[False]) <= 4
    assert statistics.geometric_mean(ratios[True]) > 3.1 and statistics.geometric_mean(ratios[False]) < 0.75


class Encoder(nn.Module):
    """A block of a vision transformer: attention, and a perceptron with GELU."""

    def __init__(self, way):
        super().__init__()
        self.one, self.two, self.qkv, self.out = nn.LayerNorm(8), nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 20), nn.GELU(way), nn.Dropout(), nn.Linear(20, 8), nn.Dropout())

    def forward(self, x):
        q, k, v = self.qkv(self.one(x)).chunk(3, -1)
        x = x + self.out((q @ k.transpose(1, 2)).softmax(-1) @ v)
        return x + self.mlp(self.two(x))


@pytest.mark.parametrize("way, name", [("none", "GELU"), ("tanh", "GELU (tanh)")])
def test_a_vision_transformer(way, name, kernels):
    model, x = Encoder(way).eval(), torch.randn(2, 5, 8)
    exact = copy.deepcopy(model).double()
    made, report = convert(model, x, untimed=True)
    assert [(row.name, row.by, row.folded) for row in report.rows] == [
        ("qkv", LINEAR, ()), ("out", LINEAR, ()), ("mlp.0", LINEAR, (name,)), ("mlp.3", LINEAR, ()),
    ]  # fmt: skip
    assert off(made(x), exact(x.double())) < 1e-6 and report.memory["filters"] == 4 * 8 * (24 + 8 + 20 + 20)


def test_the_original_stays(kernels):
    """Nothing of it is changed, and its parameters are shared where no batch norm was folded in."""
    model, x = Small().eval(), torch.randn(1, 3, 16, 16)
    before, text, wanted = copy.deepcopy(model.state_dict()), str(model), model(x)
    made, _ = convert(model, x)
    assert str(model) == text and torch.equal(model(x), wanted)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert made.fc.weight is model.fc.weight and not made.training


def test_later_calls(kernels):
    """Other sizes, batches, types, layouts; training mode is the original's."""
    model = Small().eval()
    made, _ = convert(model, torch.randn(2, 3, 16, 16))
    count = len(kernels)
    for x in (torch.randn(1, 3, 33, 17), torch.randn(3, 3, 16, 16).to(memory_format=torch.channels_last)):
        torch.testing.assert_close(made(x), model(x), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(made(x=x), model(x), atol=1e-5, rtol=1e-5)
    assert len(kernels) > count
    x = torch.randn(2, 3, 16, 16)
    doubles = copy.deepcopy(made).double()
    torch.testing.assert_close(doubles(x.double()), doubles.original(x.double()), atol=1e-5, rtol=1e-5)
    made.train(), model.train()
    one, two = copy.deepcopy(model)(x), made(x)  # which has moved its statistics
    torch.testing.assert_close(two, one)


def test_what_is_done_with_networks(kernels, tmp_path):
    """Copied, saved, compiled, exported."""
    torch._dynamo.reset()
    model, x = Small().eval(), torch.randn(2, 3, 16, 16)
    made, _ = convert(model, x)
    file = io.BytesIO()
    torch.save(made, file)
    file.seek(0)
    program = torch.export.export(made.traced, (x,), dynamic_shapes=({0: torch.export.Dim("batch", max=64)},))
    assert sum(node.target is torch.ops.turingas.conv2d.default for node in program.graph.nodes) == 8
    torch.testing.assert_close(torch.export.export(made, (x,)).module()(x), model(x), atol=1e-5, rtol=1e-5)
    counter = CompileCounterWithBackend("aot_eager")
    others = [copy.deepcopy(made), torch.load(file, weights_only=False), program.module(),
              torch.compile(made, fullgraph=True, backend=counter)]  # fmt: skip
    for n in (2, 3, 4):
        x = torch.randn(n, 3, 16, 16)
        for other in others:
            torch.testing.assert_close(other(x), model(x), atol=1e-5, rtol=1e-5)
    assert counter.frame_count == 2
    torch.testing.assert_close(torch.compile(made, fullgraph=True)(x), model(x), atol=1e-5, rtol=1e-5)


def test_exported_with_dynamic_sizes(kernels):
    """Itself, though it takes any arguments, and as a part of another network; in both of PyTorch's ways."""
    model, x = Small().eval(), torch.randn(2, 3, 16, 16)
    made, _ = convert(model, x)
    batch = {0: torch.export.Dim("batch", max=64)}
    for strict in (False, True):
        for one, shapes in ((made, ((batch,),)), (nn.Sequential(made, nn.ReLU()), (batch,))):
            torch._dynamo.reset()
            program = torch.export.export(one, (x,), dynamic_shapes=shapes, strict=strict)
            assert sum(node.target is torch.ops.turingas.conv2d.default for node in program.graph.nodes) == 8
            more = torch.randn(3, 3, 16, 16)
            torch.testing.assert_close(program.module()(more), one(more), atol=1e-5, rtol=1e-5)


def leaves(graph):
    return [type(graph.get_submodule(node.target)) for node in graph.graph.nodes if node.op == "call_module"]


def test_traced_by_torch_fx(kernels):
    """Our layers are leaves, as PyTorch's own; of a converted network its graph comes, and of one that is a part of
    another network the part as a whole, with what watches its weights."""
    model, x = Small().eval(), torch.randn(2, 3, 16, 16)
    made, _ = convert(model, x)
    for one in (made, made.traced):
        traced, file = torch.fx.symbolic_trace(one), io.BytesIO()
        assert leaves(traced).count(Conv2d) == 8 and nn.Conv2d not in leaves(traced)
        torch.save(traced, file)
        file.seek(0)
        other, count = torch.load(file, weights_only=False), len(kernels)
        for found in (traced, copy.deepcopy(traced), other):
            torch.testing.assert_close(found(x), model(x), atol=1e-5, rtol=1e-5)
        assert len(kernels) > count and convert(traced, x)[0](x).shape == model(x).shape
    around = torch.fx.symbolic_trace(nn.Sequential(made, nn.ReLU()))
    assert leaves(around) == [network.Converted, nn.ReLU]
    torch.testing.assert_close(around(x), model(x).relu(), atol=1e-5, rtol=1e-5)
    alone = torch.fx.symbolic_trace(nn.Sequential(Conv2d(3, 4, 3), Linear(6, 5)))
    assert leaves(alone) == [Conv2d, Linear] and alone(x[..., :8]).shape == (2, 4, 14, 5)
    assert type(made).__module__ == network.__name__ and type(pickle.loads(pickle.dumps(made))) is type(made)


def test_what_is_traced_is_what_is_computed_now():
    """Arguments by their places, others as they were; the original where that computes the network."""
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), norm(4)

        def forward(self, x, scale=2, other=None):
            y = self.norm(self.conv(x)) * scale
            return y if other is None else y + other

    model, x, y = Scaled().eval(), torch.randn(2, 3, 8, 8), torch.randn(2, 4, 6, 6)
    made, _ = convert(model, (x, 3, y))
    traced = torch.fx.symbolic_trace(made)
    assert leaves(traced) == [Conv2d]
    torch.testing.assert_close(traced(x, 3, y), model(x, 3, y), atol=1e-5, rtol=1e-5)
    made.original.norm.running_mean += 1
    again = torch.fx.symbolic_trace(made)
    assert leaves(again) == [nn.Conv2d, nn.BatchNorm2d]
    torch.testing.assert_close(again(x, 3, y), made.original(x, 3, y))


def test_an_exported_network(kernels):
    """Its operators are ATen's; the same is folded."""
    model, x = Small().eval(), torch.randn(2, 3, 16, 16)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch", max=64)},))
    made, report = convert(program, x)
    traced = convert(model, x)[1]
    assert [(row.name, row.folded) for row in report.rows] == [(row.name, row.folded) for row in traced.rows]
    x = torch.randn(3, 3, 16, 16)
    torch.testing.assert_close(made(x), model(x), atol=1e-5, rtol=1e-5)


# ---- what stays --------------------------------------------------------------------------------------------------


def hooked():
    made = nn.Conv2d(4, 4, 3, padding=1)
    made.register_forward_hook(lambda module, args, y: y * 2)
    return made


REASONS = {
    "2 groups": lambda: nn.Conv2d(4, 4, 3, padding=1, groups=2),
    "padding with reflect": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
    "it has hooks": hooked,
    "training mode": lambda: nn.Conv2d(4, 4, 3).train(),
    "a ParametrizedConv2d, not torch.nn.Conv2d":
        lambda: torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("why", REASONS)
def test_reasons(why, kernels):
    """Each is told, and the network computes what it did."""
    model = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), REASONS[why]()).eval()
    model[2].train("training" in why)
    x = torch.randn(1, 4, 6, 6)
    made, report = convert(model, x)
    assert rows(report)["2"].why == why and rows(report)["0"].by == OURS and why in str(report)
    torch.testing.assert_close(made(x), model(x), atol=1e-5, rtol=1e-5)


def test_other_reasons(kernels, monkeypatch):
    x = torch.randn(1, 4, 6, 6)
    model = through(lambda self, x: functional.conv2d(x, self.weight * 2), weight=nn.Parameter(torch.randn(4, 4, 3, 3)))
    assert [row.why for row in convert(model, x)[1].rows] == ["its filters are computed"]
    model = nn.Sequential(nn.Conv2d(4, 4, 3)).eval()
    assert [row.why for row in convert(copy.deepcopy(model).double(), x.double())[1].rows] == ["float64, not float32"]
    assert [row.why for row in convert(model, x[0])[1].rows] == ["x has 3 dimensions"]

    def beyond(self):
        raise LaunchError("an image of 4 GiB or more")

    monkeypatch.setattr(operator.conv.Shape, "parts", beyond)
    assert [row.why for row in convert(model, x)[1].rows] == ["an image of 4 GiB or more"] and not kernels


def test_training_mode():
    model = Small()
    made, report = convert(model, torch.randn(1, 3, 16, 16))
    assert made is model and {row.why for row in report.rows} == {"training mode"} and "call eval()" in str(report)


def folded():
    """A network with a batch norm that is folded in, converted, and x."""
    model, x = nn.Sequential(nn.Conv2d(4, 4, 3), norm(4), nn.ReLU(), nn.Conv2d(4, 4, 3)).eval(), torch.randn(2, 4, 8, 8)
    return model, convert(model, x)[0], x


@pytest.mark.parametrize("change", [
    lambda model: model.load_state_dict({name: 1.5 * one for name, one in model.state_dict().items()}),
    lambda model: model[0].weight.mul_(2), lambda model: model[1].running_mean.add_(1),
    lambda model: model[1].bias.zero_(), lambda model: model.train()(torch.randn(2, 4, 8, 8)) is model.eval(),
])  # fmt: skip
@pytest.mark.parametrize("moved", [lambda one: one, lambda one: one.float(), lambda one: one.requires_grad_(False)])
def test_folded_weights_that_change(change, moved):
    """PyTorch computes it, until it is converted again; what is not folded in may change."""
    model, made, x = folded()
    made = moved(made)
    with torch.no_grad():
        made(x)
        model[3].weight.mul_(3)
        assert torch.allclose(made(x), model(x), atol=1e-5) and not made.learned
        change(model)
        for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert torch.equal(copied(x), model(x))
        with pytest.warns(RuntimeWarning, match="folded have changed: .*convert it again") as told:
            found = made(x)
        assert [one.filename for one in told] == [__file__]
        assert torch.equal(found, model(x)) and torch.equal(made(x), model(x)) and made.learned
        again, _ = convert(made, x)
        assert torch.allclose(again(x), model(x), atol=1e-5) and not again.learned


def test_folded_weights_that_do_not_change(recwarn):
    """However the network is copied, moved or called."""
    model, made, x = folded()
    with torch.no_grad():
        wanted = model(x)
        for one in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made)), copy.deepcopy(made).double().float(),
                    copy.deepcopy(made).to(memory_format=torch.channels_last), copy.deepcopy(made).share_memory()):
            assert torch.allclose(one(x), wanted, atol=1e-5) and not one.learned and one.folded
        _, other, _ = folded()
        again = copy.deepcopy(other)
        again.load_state_dict(made.state_dict())  # of what is folded in, too
        assert torch.allclose(again(x), wanted, atol=1e-5) and not again.learned
        assert not [one for one in recwarn if one.category is RuntimeWarning]
        state = {name: one for name, one in made.state_dict().items() if name.startswith("original.")}
        other.load_state_dict(state, strict=False)
        with pytest.warns(RuntimeWarning, match="folded have changed"):
            assert torch.equal(other(x), wanted)


def test_states_of_folded_weights_that_changed(tmp_path):
    """A state says so, to the network itself, to another, and as a part of another's; one that is right again is."""
    model, made, x = folded()
    right = copy.deepcopy(made.state_dict())
    with torch.no_grad():
        model[1].weight.mul_(3)
        torch.save(nn.Sequential(nn.Identity(), made).state_dict(), tmp_path / "state.pt")
        for one in (made, copy.deepcopy(made), folded()[1]):
            with pytest.warns(RuntimeWarning, match="had changed when this state was saved"):
                nn.Sequential(nn.Identity(), one).load_state_dict(torch.load(tmp_path / "state.pt"))
            assert torch.equal(one(x), one.original(x)) and one.learned
            with pytest.warns(RuntimeWarning, match="had changed when this state was saved"):
                one.load_state_dict(one.state_dict())
            one.load_state_dict(right)
            assert torch.allclose(one(x), one.original(x), atol=1e-5) and not one.learned


def test_parameters_that_are_swapped(kernels, swapping):
    """Of a converted network, which shares them with the original's own layers."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(36, 7)).eval()
    x = torch.randn(2, 3, 5, 5)
    made, _ = convert(model, x, untimed=True)

    def negate(module):
        module.load_state_dict({name: -one for name, one in module.state_dict().items()})

    for change in (torch.nn.Module.half, negate, lambda one: torch.nn.Sequential(one).double()):
        with torch.no_grad():
            made(x), made(x)
            change(made)
            made.float()
            assert off(made(x), copy.deepcopy(model).double()(x.double())) < 1e-6
    ours = [one.weight for one in made.modules() if isinstance(one, (Conv2d, Linear))]
    assert [id(one) for one in ours] == [id(model[0].weight), id(model[2].weight)]


def test_a_network_that_learns_on():
    """What was folded in is no longer the batch norm's: PyTorch computes it, until it is converted again."""
    model, x = nn.Sequential(nn.Conv2d(4, 4, 3), norm(4)).eval(), torch.randn(2, 4, 6, 6)
    made, _ = convert(model, x)
    made.train(), made.eval()
    assert not made.learned
    wanted = model.train()(x)
    assert torch.equal(made.train()(x), wanted)
    with pytest.warns(RuntimeWarning, match="called in training mode.*convert it again"):
        made.eval()
    again, report = convert(made, x)
    assert not again.learned and [row.name for row in report.rows] == ["0"]
    for one in (made, again):
        assert torch.allclose(one(x), model.eval()(x), atol=1e-5)
    plain, _ = convert(nn.Sequential(nn.Conv2d(4, 4, 3)).eval(), x)  # nothing is folded in
    plain.train()(x)
    assert not plain.eval().learned
    with pytest.raises(LaunchError, match="the model is a function"):
        convert(norm, x)


def test_a_batch_norm_in_training_mode(kernels):
    model = nn.Sequential(nn.Conv2d(4, 4, 3), norm(4)).eval()
    model[1].train()
    made, report = convert(model, torch.randn(2, 4, 6, 6))
    assert report.rows[0].folded == () and "1: the batch norm is in training mode" in report.notes


def test_what_our_kernel_gets_wrong(monkeypatch):
    """A difference that is too large, or an error: the original comes back."""
    model, x = Small().eval(), torch.randn(1, 3, 16, 16)
    ways = ((lambda found, steps: nn.Sequential(entries._make(found, steps), nn.Hardtanh()), "differs by"),
            (lambda found, steps: nn.Linear(3, 3), "the converted network fails: RuntimeError"))  # fmt: skip
    for wrong, told in ways:
        entry = entries.Entry("wrong", entries._why_not, (entries.NORM,), wrong)
        made, report = convert(model, 9 * x, table=(entry,))
        assert made is model and not report.replaced and told in report.notes[-1]


def test_one_more_entry(kernels):
    """What takes 1 x 1 is one more row of the table."""

    class Product(nn.Module):
        def __init__(self, weight, bias):
            super().__init__()
            self.weight, self.bias = nn.Parameter(weight[:, :, 0, 0]), bias

        def forward(self, x):
            return functional.linear(x.movedim(1, -1), self.weight, self.bias).movedim(-1, 1)

    entry = entries.Entry(
        "1x1", lambda found: "" if found.arguments["kernel_size"] == (1, 1) and found.arguments["stride"] == (1, 1)
        else "not 1x1", (entries.NORM,), lambda found, steps: Product(*found.parameters(steps)),
    )  # fmt: skip
    model = nn.Sequential(nn.Conv2d(4, 6, 1), norm(6), nn.ReLU(), nn.Conv2d(6, 4, 3)).eval()
    x = torch.randn(1, 4, 6, 6)
    made, report = convert(model, x, table=(entry, *entries.TABLE))
    assert [(row.by, row.folded) for row in report.replaced] == [("1x1", ("batch norm",)), (OURS, ())]
    torch.testing.assert_close(made(x), model(x), atol=1e-5, rtol=1e-5)


# ---- forwards of many kinds --------------------------------------------------------------------------------------


def c():
    return nn.Conv2d(4, 4, 3, padding=1)


def in_place(self, x):  # the second convolution must see what was there before
    y = self.one(x)
    x.relu_()
    return y + x + self.two(x).relu_()


def others_memory(self, x):  # x is read again, as it is after the addition
    x = x * 1
    x += self.one(x)
    return self.two(x) - x


def twice(self, x):  # a result that two read
    y = self.one(x)
    return y.relu() + self.two(y)


def shared(self, x):  # a layer called twice
    return self.one(torch.relu(self.one(x)))


def broadcast(self, x):  # what is added is smaller
    return self.one(x) + self.two(x).mean((2, 3), keepdim=True)


def numbers(self, x):
    return torch.add(self.one(x), x, alpha=2) + (self.two(x) + 1)


def both(self, x):  # two convolutions are added: one takes the other
    return functional.relu(self.one(x) + self.two(x), inplace=True)


def function(self, x):
    return functional.conv2d(x, self.one.weight, padding="same") + torch.conv2d(x, self.two.weight, self.two.bias, 1, 1)


#: by name: forward, and how many convolutions are ours, with which steps
FORWARDS = {
    "in_place": (in_place, [(), ("ReLU",)]), "others_memory": (others_memory, [(), ()]),
    "twice": (twice, [(), ("residual",)]), "shared": (shared, [("ReLU",), ()]), "broadcast": (broadcast, [(), ()]),
    "numbers": (numbers, [(), ()]), "both": (both, [("residual", "ReLU"), ()]),
    "function": (function, [("residual",), ()]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARDS)
def test_forwards(name):
    forward, folded = FORWARDS[name]
    model = through(forward, one=c(), two=c())
    made, report = convert(model, torch.randn(2, 4, 6, 5))
    assert [row.folded for row in report.rows] == folded and len(report.replaced) == 2
    for n in range(4):
        x = torch.randn(n + 1, 4, 4 + n, 5)
        torch.testing.assert_close(made(x.clone()), model(x.clone()), atol=1e-5, rtol=1e-5)


class Options(nn.Module):
    """Arguments that are no tensors."""

    def __init__(self):
        super().__init__()
        self.one, self.two = c(), c()

    def forward(self, x, skip=None, scale=1.0, relu=False):
        x = self.one(x) * scale
        if skip is not None:
            x = x + self.two(skip)
        return x.relu() if relu else x


@pytest.mark.parametrize("example", [
    lambda x: x, lambda x: (x, x), lambda x: (x, None, 2.0, True), lambda x: {"x": x, "skip": x, "relu": True},
])  # fmt: skip
def test_arguments(example):
    """What the graph was not made for goes through the original."""
    model, x = Options().eval(), torch.randn(1, 4, 6, 6)
    made, report = convert(model, example(x))
    assert report.replaced and not report.notes
    for args, kwargs in (((x,), {}), ((x, x), {}), ((x,), {"skip": x}), ((x, None, 2.0), {}), ((x,), {"relu": True}),
                         ((), {"x": x, "skip": x, "relu": True}), ((x, x, 0.5, 1), {})):  # fmt: skip
        torch.testing.assert_close(made(*args, **kwargs), model(*args, **kwargs), atol=1e-5, rtol=1e-5)
    for wrong in (lambda: made(), lambda: made(x, y=1), lambda: made(x, x, 1.0, True, 5)):
        with pytest.raises(TypeError):
            wrong()


def test_parts(kernels):
    """A network that cannot be traced: its parts are, and the rest of it sees what it saw."""

    def forward(self, x, count):
        for _ in range(int(count.item())):
            x = self.block(x)
        return self.alone(x) if x.shape[0] > 1 else self.seldom(x) * self.alone.out_channels

    model = through(forward, block=Block(4, 4), alone=c(), seldom=c(), lists=nn.ModuleList([Block(4, 4)]))
    x, count = torch.randn(2, 4, 6, 6), torch.tensor(2)
    made, report = convert(model, (x, count))
    found = rows(report)
    assert found["block.conv2"].folded == ("batch norm", "residual", "ReLU") and found["alone"].by == OURS
    assert found["seldom"].why == found["lists.0.conv1"].why == "the example does not come here"
    assert "the network cannot be traced as a whole" in report.notes[0] and type(made).__name__ == "Made"
    for n in (1, 2):
        torch.testing.assert_close(made(x[:n], count), model(x[:n], count), atol=1e-5, rtol=1e-5)
    assert isinstance(made.alone, Conv2d) and type(model.alone) is nn.Conv2d


def test_results_of_other_kinds(kernels):
    """What nobody can look into is not said to be compared."""

    class Result:
        def __init__(self, y):
            self.y = y

    x = torch.randn(1, 4, 6, 6)
    model = through(lambda self, x: Result(self.part(x)), part=nn.Sequential(c(), nn.ReLU()))
    made, report = convert(model, x)
    assert report.difference is None and "nothing was compared" in report.notes[-1] and len(report.replaced) == 1
    torch.testing.assert_close(made(x).y, model(x).y, atol=1e-5, rtol=1e-5)


def test_a_gpu_that_cannot_be_reached(monkeypatch):
    """As without cuda-python: told, and not taken for a GPU without kernels."""

    def missing(device, dtype):
        raise LaunchError("cuda-python is not installed")

    monkeypatch.setattr(network, "unable", missing)
    with pytest.raises(LaunchError, match="cuda-python is not installed"):
        convert(Small().eval(), torch.randn(1, 3, 16, 16))


def test_what_the_model_raises():
    with pytest.raises(RuntimeError, match="channels"):
        convert(Small().eval(), torch.randn(1, 4, 16, 16))


# ---- random networks ---------------------------------------------------------------------------------------------


class Random(nn.Module):
    """Some operations, each on tensors that there are, in place or not."""

    def __init__(self, seed):
        super().__init__()
        draw = random.Random(seed)
        self.steps, self.layers = [], nn.ModuleList()
        kinds = ["conv", "conv", "norm", "relu", "relu_", "add", "add_", "iadd", "module", "1x1", "view"]
        for number in range(draw.randrange(6, 14)):
            kind = "conv" if number == 0 else draw.choice(kinds)
            layer = {"conv": c, "norm": lambda: norm(4), "module": lambda: nn.ReLU(draw.random() < 0.5),
                     "1x1": lambda: nn.Conv2d(4, 4, 1)}.get(kind, nn.Identity)()  # fmt: skip
            self.layers.append(layer)
            near = max(0, number - 2) if draw.random() < 0.8 else 0
            self.steps.append((kind, draw.randint(near, number), draw.randint(near, number)))

    def forward(self, x):
        there = [x * 1]
        for (kind, one, two), layer in zip(self.steps, self.layers):
            a, b = there[one], there[two]
            if kind == "iadd":
                a += b
            made = {
                "relu": lambda a, b: a.relu(), "relu_": lambda a, b: functional.relu(a, True), "iadd": lambda a, b: a,
                "add": torch.add, "add_": lambda a, b: a.add_(b), "view": lambda a, b: a.view_as(b),
            }.get(kind, lambda a, b, layer=layer: layer(a))(a, b)  # fmt: skip
            there.append(made / 2 if kind == "conv" and one == two else made)
        return there[-1], sum(there)


@pytest.mark.parametrize("seed", range(0, 60, 5))
def test_random_networks(seed):
    """Whatever stands between and beside convolutions, folded or in place: the same results."""
    for number in range(seed, seed + 5):
        model = Random(number).eval()
        made, report = convert(model, torch.randn(2, 4, 5, 5))
        assert report.replaced and not report.notes, (number, report)
        for _ in range(2):
            x = torch.randn(1, 4, 6, 4)
            for one, two in zip(made(x), model(x)):
                torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)


# ---- tuning ------------------------------------------------------------------------------------------------------


def test_tuning_needs_a_gpu():
    with pytest.raises(LaunchError, match="times layers on a GPU"):
        convert(Small().eval(), torch.randn(1, 3, 16, 16), tune=True)


class Card:
    """A GPU, in microseconds: what is queued waits for Python and for what was queued before. A graph takes ``launch``
    of Python and ``start`` of the GPU before its first call."""

    launch, start, python = 12, 1.5, 2

    def __init__(self):
        self.now = self.free = 0.0  # for Python; of the GPU
        self.recorded, self.graphs = None, []

    def way(self, us):
        def call():
            if self.recorded is None:
                self.queue(20, us)
            else:
                self.recorded.append(us)

        return call

    def queue(self, python, us):
        self.now += python
        self.free = max(self.now, self.free) + us
        return self.free

    def cuda(card):
        class Graph:
            def replay(self):
                card.queue(card.launch, card.start + sum(self.calls))

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = card.queue(card.python, 0)

            def synchronize(self):
                card.now = max(card.now, self.at)

            def elapsed_time(self, last):
                assert card.now >= last.at  # what is not over has no time yet
                return (last.at - self.at) / 1e3

        @contextlib.contextmanager
        def graph(made):
            made.calls = card.recorded = []
            card.graphs.append(made.calls)
            yield
            card.recorded = None

        stream = types.SimpleNamespace(wait_stream=lambda other: None)
        return types.SimpleNamespace(Stream=lambda: stream, current_stream=lambda: stream, CUDAGraph=Graph, Event=Event,
                                     stream=contextlib.nullcontext, graph=graph)  # fmt: skip


@pytest.mark.parametrize("us", [(2, 4), (4, 2, 3), (1.5, 30), (3, 900), (900, 1800)], ids=str)
def test_launches_are_not_timed(us, monkeypatch):
    """Small layers are what they are, beside others and beside long ones, which are not called more often for it."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    for calls in (1, tune.CALLS):
        card = Card()
        monkeypatch.setattr(torch, "cuda", card.cuda())
        found = tune.milliseconds([card.way(one) for one in us], calls)
        assert [1e3 * ms for ms in found] == pytest.approx(us, rel=0.01)
        assert all(len(one) <= max(calls, 3 * 500 / one[0]) for one in card.graphs)
    assert not torch.backends.cudnn.benchmark


@pytest.mark.parametrize("fast", [OURS, "PyTorch", "PyTorch, folded"])
def test_the_fastest_is_kept(fast, monkeypatch):
    """By a clock that likes one of them: each way is called, and is right."""
    seen = []

    def clock(ways):
        results = [way() for way in ways]  # each with random numbers of its own
        assert len({one.shape for one in results}) == 1
        seen.append(len(results))
        order = ["PyTorch", OURS, "PyTorch, folded"][: len(ways)]
        return [1.0 if name == fast else 2.0 + place for place, name in enumerate(order)]

    monkeypatch.setattr(tune, "milliseconds", clock)
    monkeypatch.setattr(tune, "on_gpu", lambda tensor: True)
    model, x = Small().eval(), torch.randn(2, 3, 16, 16)
    made, report = convert(model, x, tune=True)
    assert seen == [3] * 8 + [2]
    *mine, last = [row for row in report.rows if row.ms]
    assert last.by == (LINEAR if fast == OURS else "PyTorch") and last.ms.keys() == {LINEAR, "PyTorch"}
    assert len(mine) == 8 and {row.why for row in mine} == {"" if fast == OURS else "slower"}
    assert {row.by for row in mine} == {OURS if fast == OURS else "PyTorch"}
    assert {bool(row.folded) for row in mine} == {fast != "PyTorch"} and "1.0000 ms" in str(report)
    torch.testing.assert_close(made(x), model(x), atol=1e-5, rtol=1e-5)

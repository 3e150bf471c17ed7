"""``convert``: a network in which our kernels compute the layers that they can."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import operator as python
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.shape_prop import ShapeProp
from torch.utils import _pytree as trees

from kernels_sass.torch import nodes, tune
from kernels_sass.torch.layer import Conv2d, arguments_of, unfoldable, whole
from kernels_sass.torch.operator import apart, put_back, taken_off, unable
from kernels_sass.torch.product import Linear
from kernels_sass.torch.report import Report, Row
from kernels_sass.torch.table import CONVOLUTION, LINEAR, LINEARS, NORM, NOTHING, OURS, RESIDUAL, TABLE, Entry, Found
from turingas.errors import LaunchError

BOUND = 1e-3  # of the largest number of the original's results: more is a mistake, and nothing is replaced
MODULES = torch.nn.Conv2d, torch.nn.Linear
PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)  # arguments that a graph is made for

Call = tuple[tuple[Any, ...], dict[str, Any]]


def convert(
    model: Any, example_input: Any, tune: bool = False, table: Sequence[Entry] = TABLE, untimed: bool = False
) -> tuple[torch.nn.Module, Report]:
    """A network for inference that computes what ``model`` does, with our kernels in it, and what was done.

    ``model``: a torch.nn.Module in evaluation mode, or a torch.export.ExportedProgram; it is not changed, and the new
    network shares its parameters. ``example_input``: a tensor, a tuple of arguments, or a dict of arguments by name, on
    the network's device. Batch norms, additions and ReLUs behind a convolution are folded into it. ``tune``: time each
    layer on the GPU, by ours and by PyTorch in float32, and keep the faster. ``table``: what can take a place.
    ``untimed``: take kernels of ours too where they are not expected to be faster; with ``tune`` they are timed here.

    The network is traced by torch.fx; where that cannot be, its children are, one by one. What cannot be converted
    stays as it was. Later calls may have other sizes; in training mode, or with other values of arguments that are no
    tensors, they go through the original. A converted network is converted anew. LaunchError for ``tune`` without a
    GPU, and what the model raises for the example.
    """
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    if isinstance(model, Converted):
        model = model.original
    if not isinstance(model, torch.nn.Module):
        raise LaunchError(f"the model is a {type(model).__name__}", "it must be a torch.nn.Module, or exported")
    call, report = _call(example_input), Report()
    if (one := next(model.parameters(), None)) is not None:
        unable(one.device, one.dtype)  # raises, if there is a GPU that cannot be reached
    if model.training and not isinstance(model, GraphModule):
        report.rows = _left(model, "training mode")
        report.notes.append("the network is in training mode: call eval() before convert()")
        return model, report
    with torch.no_grad(), exactly():
        wanted = _run(model, call)
        job = _Job(tuple(table), tune, untimed)
        made = job.network(model, call)
        report.rows, report.notes = job.rows, job.notes
        try:
            why = _compare(_run(made, call), wanted, report)
        except Exception as error:  # whatever it is, the original is of use
            why = f"the converted network fails: {_first(error)}"
    if why:
        report.notes.append(f"nothing is replaced: {why}")
        report.rows = _left(model, why)
        return model, report
    ours = {id(one): one for one in made.modules() if isinstance(one, (Conv2d, Linear)) and not _by_torch(one)}.values()
    before = {id(one) for one in model.parameters()}
    report.memory = {
        "filters": sum(one.prepared_bytes for one in ours),
        "weights": sum(one.nbytes for one in made.parameters() if id(one) not in before),
    }
    return made, report


def _call(example: Any) -> Call:
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example) if isinstance(example, (tuple, list)) else (example,)), {}


def _run(model: Any, call: Call) -> Any:
    """With copies of the tensors, since a network may overwrite its inputs."""
    args, kwargs = trees.tree_map_only(torch.Tensor, torch.clone, call)
    return model(*args, **kwargs)


@contextlib.contextmanager
def exactly() -> Iterator[None]:
    """Without TF32 in PyTorch's convolutions and products."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    cudnn.allow_tf32 = matmul.allow_tf32 = False
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before


def _tensors(model: torch.nn.Module) -> dict[int, Any]:
    """Its parameters and buffers, as copy.deepcopy is told what it shall share."""
    return {id(one): one for one in (*model.parameters(), *model.buffers())}


def _left(model: torch.nn.Module, why: str) -> list[Row]:
    """Rows that say that all layers stay."""
    return [Row(name, _what(one), "PyTorch", why, kind=_kind(one))
            for name, one in model.named_modules() if isinstance(one, MODULES)]  # fmt: skip


def _kind(module: Any) -> str:
    return CONVOLUTION if isinstance(module, torch.nn.Conv2d) else LINEAR


def _what(module: Any) -> str:
    if isinstance(module, torch.nn.Linear):
        return f"linear, {module.in_features} -> {module.out_features}"
    rows, columns = module.kernel_size
    return f"{rows}x{columns}, {module.in_channels} -> {module.out_channels}"


def _by_torch(module: Any) -> str:
    """Why PyTorch computes a layer of ours; ""."""
    return str(getattr(module, "why_not", ""))


def _compare(found: Any, wanted: Any, report: Report) -> str:
    """Write down how far results are apart; why they are not taken, "" if they are."""
    (mine, shape), (theirs, other) = trees.tree_flatten(found), trees.tree_flatten(wanted)
    if shape != other:
        return "its results have another form"
    pairs = [pair for pair in zip(mine, theirs) if isinstance(pair[1], torch.Tensor) and pair[1].is_floating_point()]
    if not pairs:
        report.notes.append("nothing was compared: its results are no tensors that torch.utils._pytree knows of")
        return ""
    report.difference = report.relative = 0.0
    for one, two in pairs:
        if one.shape != two.shape or one.dtype != two.dtype:
            return f"a result is {one.dtype} {tuple(one.shape)}, not {two.dtype} {tuple(two.shape)}"
        if two.numel():
            largest = float(two.double().abs().nan_to_num(posinf=0).max()) or 1.0
            off = torch.where((one == two) | (one.isnan() & two.isnan()), 0.0, (one.double() - two.double()).abs())
            difference = float(off.max()) if not off.isnan().any() else math.inf
            report.difference = max(report.difference, difference)
            report.relative = max(report.relative, difference / largest)
    if report.relative <= BOUND:
        return ""
    return f"its result differs by {report.relative:.1g} of the largest number"


def _first(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


# ---- what is returned --------------------------------------------------------------------------------------------


class Converted(torch.nn.Module):
    """A network, or a part of one: ``traced``, a graph with our kernels in it, and the ``original``, which takes calls
    in training mode and with arguments for which the graph was not made; and if the graph has batch norms folded in,
    which the original's have left behind by learning or otherwise (``learned``), all calls from then on. ``folded``:
    what of the original is in the graph as a copy, and ``versions``, as it was then."""

    def __init__(self, original: torch.nn.Module, graph: GraphModule, signature: _Signature) -> None:
        super().__init__()
        whole(self)
        self.original, self.traced = original, graph  # a submodule called graph is none that torch.export can have
        self.signature = signature
        mine = {id(one) for one in original.parameters()}
        self.folds = any(id(one) not in mine for one in graph.parameters())
        self.learned = self.training = self.loads = False
        self.watch()
        self.register_state_dict_post_hook(_saved)
        self.register_load_state_dict_pre_hook(_asked)
        self.register_load_state_dict_post_hook(_loaded)

    def watch(self) -> None:
        """From here on changes of what is folded in are noticed."""
        shared = {id(one) for one in (*self.traced.parameters(), *self.traced.buffers())}
        mine = (*self.original.parameters(), *self.original.buffers()) if self.folds else ()
        # num_batches_tracked, too: batch norms that learn write to their other buffers without giving a new version
        self.folded = [one for one in mine if id(one) not in shared and not one.is_inference()]
        self.versions = [one._version for one in self.folded]

    def changed(self) -> bool:
        """Whether what is folded in has changed since."""
        return [one._version for one in self.folded] != self.versions

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "learned": self.learned or self.changed(), "folded": [], "versions": [], "taken": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.watch()

    def _apply(self, *args: Any, **kwargs: Any) -> Converted:
        """Another device or type: the values stay, and tensors may be others."""
        self.learned = self.learned or self.changed()
        with apart(self):  # or the original's, which are no layers of ours, could not be swapped
            super()._apply(*args, **kwargs)
        self.watch()
        return self

    def train(self, mode: bool = True) -> Converted:
        """As any module's; warns if batch norms that are folded in may have learned meanwhile."""
        if not mode and self.learned and self.training:
            text = "the network was called in training mode: batch norms that convert() folded may have learned, and "
            warnings.warn(text + "PyTorch computes it; convert it again", RuntimeWarning, stacklevel=3)
        return super().train(mode)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the original's."""
        if isinstance(args, torch.fx.Proxy):
            return self._in_graph(args)
        if self.training and self.folds:
            self.learned = True
        elif self.folded and not self.learned and not torch.compiler.is_compiling() and self.changed():
            self.learned = True
            text = "weights or batch norms that convert() folded have changed: PyTorch computes the network; "
            warnings.warn(text + "convert it again", RuntimeWarning, stacklevel=4)  # behind torch.nn.Module's two
        values = None if self.training or self.learned else self.signature.tensors_of(args, kwargs)
        return self.original(*args, **kwargs) if values is None else self.traced(*values)

    def _in_graph(self, args: Any) -> Any:
        """What a tracer of torch.fx sees that is told to trace this very module: what it computes now, of arguments by
        their places, and with the values of the others that the graph was made for."""
        made = self.signature
        given = {name: args[n] if name in made.tensors else made.constants[name] for n, name in enumerate(made.names)}
        if self.training or self.learned or self.changed():
            return self.original(*given.values())
        return self.traced(*(given[name] for name in made.tensors))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "original":
                raise
            return getattr(self.original, name)  # the network around it may ask for what it had


def _saved(module: Any, state: Any, prefix: str, metadata: dict[str, Any]) -> None:
    """A state says whether what is folded in is that of the original's in it."""
    metadata["learned"] = module.learned or module.changed()


def _asked(module: Any, state: Any, prefix: str, metadata: dict[str, Any], *others: Any) -> None:
    module.loads = bool(metadata.get("learned"))
    module.taken = taken_off(module)


def _loaded(module: Any, keys: Any) -> None:
    """A state was loaded: what is folded in has come along, if nothing of the graph was missing."""
    put_back(module.taken)
    module.taken = []
    if not any("traced." in name for name in keys.missing_keys):
        module.learned = module.loads
        module.watch()
        if module.learned:
            text = "what convert() folded had changed when this state was saved: PyTorch computes the network; "
            warnings.warn(text + "convert it again", RuntimeWarning, stacklevel=3)


@dataclass(frozen=True)
class _Signature:
    """How a graph is called: ``names`` of the arguments in order; which are ``tensors``; ``constants``: the others, for
    whose values it was made."""

    names: tuple[str, ...]
    tensors: tuple[str, ...]
    constants: dict[str, Any]
    defaults: dict[str, Any]

    @classmethod
    def of(cls, module: torch.nn.Module, call: Call) -> _Signature:
        """LaunchError for calls that no graph can be made of."""
        signature = inspect.signature(module.forward)
        for one in signature.parameters.values():
            if one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
                raise LaunchError(f"forward() has *{one.name}" if one.kind != one.KEYWORD_ONLY else
                                  f"forward() takes {one.name} by its name alone")  # fmt: skip
        bound = signature.bind(*call[0], **call[1])
        bound.apply_defaults()
        values = dict(bound.arguments)
        tensors = tuple(name for name, value in values.items() if isinstance(value, torch.Tensor))
        constants = {name: value for name, value in values.items() if name not in tensors}
        for name, value in constants.items():
            if not isinstance(value, PLAIN):
                raise LaunchError(f"{name} is a {type(value).__name__}")
        defaults = {name: one.default for name, one in signature.parameters.items() if one.default is not one.empty}
        return cls(tuple(values), tensors, constants, defaults)

    def tensors_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The graph's arguments; None for a call that it was not made for."""
        if len(args) > len(self.names):
            return None
        values = {**self.defaults, **dict(zip(self.names, args)), **kwargs}
        if len(values) != len(self.names):
            return None
        for name, wanted in self.constants.items():
            value = values.get(name)
            if type(value) is not type(wanted) or value != wanted:
                return None
        found = [values.get(name) for name in self.tensors]
        return found if all(isinstance(one, torch.Tensor) for one in found) else None


class _Proxy(torch.fx.Proxy):
    """One that knows `a += b`, which PyTorch's takes for `a = a + b`: others who have a would not see it."""


def _in_place(name: str) -> Any:
    function = getattr(python, name)
    return lambda self, other: self.tracer.create_proxy("call_function", function, (self, other), {})


for _name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "imatmul"):
    setattr(_Proxy, f"__{_name}__", _in_place(_name))


class _Tracer(torch.fx.Tracer):
    """Traces a call of a signature: tensors are placeholders, the rest is what it is."""

    def __init__(self, signature: _Signature) -> None:
        super().__init__()
        self.signature = signature

    def proxy(self, node: Node) -> torch.fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
        return isinstance(module, (Conv2d, Linear, Converted)) or super().is_leaf_module(module, name)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        made = self.signature
        proxies = [self.create_proxy("placeholder", name, (), {}) for name in made.tensors]

        def call(root: Any, *given: Any) -> Any:
            values = {**made.constants, **dict(zip(made.tensors, given))}
            return root_fn(root, *(values[name] for name in made.names))

        call.__annotations__.clear()  # the graph's output would be of type "Any", a text that torch.save cannot write
        return call, [self.root, *proxies]


# ---- the conversion ----------------------------------------------------------------------------------------------


class _Job:
    """A conversion: the table, and what comes of it."""

    def __init__(self, table: tuple[Entry, ...], timed: bool, untimed: bool) -> None:
        self.table, self.timed, self.untimed = table, timed, untimed
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.calls: dict[str, Call] = {}

    def network(self, model: torch.nn.Module, call: Call) -> torch.nn.Module:
        """The whole: as one graph, or by its children. What is changed is a copy with the same parameters."""
        try:
            model = copy.deepcopy(model, _tensors(model))
        except Exception as error:  # whatever modules of others do
            self.notes.append(f"the network cannot be copied: {_first(error)}")
            self.rows = _left(model, "the network cannot be copied")
            return model
        try:
            return self.traced(model, call, "")
        except tune.NoGpu:
            raise
        except Exception as error:  # tracing runs the network's own Python with stand-ins for tensors
            self.notes.append(f"the network cannot be traced as a whole: {_first(error)}")
        with self.noting(model):
            _run(model, call)
        return self.children(model, "", {})

    @contextlib.contextmanager
    def noting(self, model: torch.nn.Module) -> Iterator[None]:
        """Keep the arguments of the first call of each module."""
        handles = []
        for name, module in model.named_modules():

            def note(_: Any, args: Any, kwargs: Any, name: str = name) -> None:
                if name not in self.calls:
                    self.calls[name] = trees.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))

            if any(isinstance(one, MODULES) for one in module.modules()):
                handles.append(module.register_forward_pre_hook(note, with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def children(self, module: torch.nn.Module, name: str, done: dict[int, torch.nn.Module]) -> torch.nn.Module:
        """The module, of our copy of the network, with each child converted that can be."""
        for own, child in list(module.named_children()):
            if not any(isinstance(one, MODULES) for one in child.modules()):
                continue
            if id(child) not in done:
                done[id(child)] = self.child(child, f"{name}.{own}".lstrip("."), done)
            if done[id(child)] is not child:
                setattr(module, own, done[id(child)])
        return module

    def child(self, module: torch.nn.Module, name: str, done: dict[int, torch.nn.Module]) -> torch.nn.Module:
        """A child, converted; or itself."""
        call = self.calls.get(name)
        if call is None or isinstance(module, MODULES):
            if isinstance(module, MODULES):
                return self.alone(module, name, call)
            return self.children(module, name, done)
        try:
            return self.traced(module, call, name)
        except tune.NoGpu:
            raise
        except Exception as error:
            self.notes.append(f"{name} cannot be traced: {_first(error)}")
        return self.children(module, name, done)

    def alone(self, module: Any, name: str, call: Call | None) -> torch.nn.Module:
        """A layer of which it is not known what follows."""
        (row,) = _left(module, "")
        row.name = name
        self.rows.append(row)
        if call is None:
            row.why = "the example does not come here"
        elif type(module) not in MODULES:
            row.why = _another(module)
        elif nodes.hooked(module):
            row.why = "it has hooks"
        else:
            x, arguments = [*call[0], *call[1].values()][0], arguments_of(module) if row.kind == CONVOLUTION else {}
            found = Found(None, name, module.weight, module.bias, arguments, x, kind=row.kind)
            row.what, reasons = found.what, list[str]()
            for entry in self.table:
                if entry.ours and row.kind in entry.kinds:
                    if not (why := self.why_not(entry, found)):
                        row.by = entry.name
                        return entry.make(found, [])
                    reasons.append(why)
            row.why = "; ".join(reasons)
        return module

    def why_not(self, entry: Entry, found: Found) -> str:
        """Why an entry does not take a layer; "" if it does."""
        if why := entry.why_not(found):
            return why
        return "" if self.timed or self.untimed else entry.slow(found)

    def traced(self, module: torch.nn.Module, call: Call, name: str) -> torch.nn.Module:
        """The module as a graph with our kernels in it; itself, if nothing in it can be replaced."""
        if isinstance(module, GraphModule):  # an exported one has its own way to take arguments
            graph: GraphModule = copy.deepcopy(module, _tensors(module))
            values = tuple(call[0]) + tuple(call[1].values())
        else:
            signature = _Signature.of(module, call)
            found = _Tracer(signature).trace(module)
            found._tracer_cls = None  # what is saved is loaded by PyTorch's own
            graph = GraphModule(module, found)
            values = tuple(signature.tensors_of(*call) or ())
        ShapeProp(graph).propagate(*trees.tree_map_only(torch.Tensor, torch.clone, values))
        rows, notes, changed = self.rewrite(graph, name)
        self.rows += rows
        self.notes += notes
        if not changed:
            return module
        graph.graph.lint()
        graph.delete_all_unused_submodules()
        graph.recompile()
        return graph if isinstance(module, GraphModule) else Converted(module, graph, signature)

    def rewrite(self, graph: GraphModule, prefix: str) -> tuple[list[Row], list[str], bool]:
        """Replace what can be: rows, notes, and whether there was anything."""
        rows, notes, changed = list[Row](), list[str](), False
        for node in list(graph.graph.nodes):
            key = nodes.key_of(graph, node)
            module = nodes.module_of(graph, node)
            kind, reader = nodes.LAYERS.get(key, ("", None))
            if reader is None or not any(kind in entry.kinds for entry in self.table):
                if isinstance(module, MODULES) and any(_kind(module) in entry.kinds for entry in self.table):
                    ours = isinstance(module, (Conv2d, Linear))
                    (row,) = _left(module, _by_torch(module) if ours else _another(module))
                    row.name = _joined(prefix, str(node.target))
                    row.by = "PyTorch" if row.why else OURS.name if row.kind == CONVOLUTION else LINEARS.name
                    rows.append(row)
                continue
            row = Row(_joined(prefix, str(node.name)), "", "PyTorch", kind=kind)
            rows.append(row)
            try:
                read = reader(graph, node)
            except LookupError:
                row.why = "its filters are computed" if kind == CONVOLUTION else "its weight is computed"
                continue
            x, *others = map(_meta, nodes.inputs(node, kind))
            found = Found(node, read.name, read.weight, read.bias, read.arguments, x, kind=kind,
                          other=others[0] if others else None)  # fmt: skip
            row.name, row.what = _joined(prefix, str(read.name)), found.what
            if module is not None and nodes.hooked(module):
                row.why = "it has hooks"
            elif module is not None and module.training:
                row.why = "training mode"
            else:
                found.steps = list(_steps(graph, node, notes))
                changed = self.replace(graph, found, row) or changed
        return rows, notes, changed

    def replace(self, graph: GraphModule, found: Found, row: Row) -> bool:
        """Put the first entry of the table that can, or the fastest, in the layer's place."""
        able = []
        for entry in (one for one in self.table if found.kind in one.kinds):
            why = self.why_not(entry, found)
            if not why:
                able.append(entry)
            elif entry.ours:
                row.why = "; ".join(part for part in (row.why, why) if part)
        if any(entry.ours for entry in able):
            row.why = ""
        if self.timed and any(entry.ours for entry in able):
            able = tune.fastest(found, able, row)
        if not able:
            return False
        entry = able[0]
        steps, row.by = entry.steps(found), entry.name
        row.folded = tuple(kind for kind, *_ in steps if kind != NOTHING)
        last = steps[-1][1] if steps else found.node
        name = _free(graph, str(found.name))
        graph.add_submodule(name, entry.make(found, steps).eval())
        added = [other for kind, _, other in steps if kind == RESIDUAL]
        with graph.graph.inserting_before(last):
            new = graph.graph.call_module(name, (*nodes.inputs(found.node, found.kind), *added))
        new.meta = dict(last.meta)
        last.replace_all_uses_with(new)
        for node in (*reversed([node for _, node, _ in steps]), found.node):
            graph.graph.erase_node(node)
        return True


def _another(module: torch.nn.Module) -> str:
    return f"a {type(module).__name__}, not torch.nn.{'Conv2d' if _kind(module) == CONVOLUTION else 'Linear'}"


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _meta(node: Any) -> Any:
    return node.meta.get("tensor_meta") if isinstance(node, Node) else None


def _free(graph: GraphModule, name: str) -> str:
    """A name for a module that stands beside the convolution of this name."""
    name, number = f"{name.replace('/', '_')}_turingas", 0
    names = {one for one, _ in graph.named_modules()}
    while (made := f"{name}{number or ''}") in names:
        number += 1
    return made


def _steps(graph: GraphModule, node: Node, notes: list[str]) -> Iterator[tuple[str, Node, Any]]:
    """What follows a layer, each the only user of what was before: a batch norm, an addition, an activation. All of
    them are computed where the last one stands, so nothing in between may write into a tensor."""
    seen, before = list[str](), node
    while len(before.users) == 1:
        (user,) = before.users
        key, module, kind = nodes.key_of(graph, user), nodes.module_of(graph, user), ""
        if (module is not None and nodes.hooked(module)) or not user.args or before not in user.args:
            return
        if any(nodes.overwrites(graph, one) for one in nodes.between(before, user)):
            return
        if key in nodes.NORMS and not seen and user.args[0] is before:
            try:
                norm = nodes.NORMS[key](graph, user)
                why = unfoldable(norm, _channels(before))
            except LookupError:
                why = "the batch norm is computed"
            if why:
                notes.append(f"{user.target}: {why}")
                return
            step: tuple[str, Node, Any] = NORM, user, norm
        elif key in nodes.ADDITIONS and RESIDUAL not in seen:
            other = nodes.other_summand(user, before, nodes.ADDITIONS[key])
            if other is None:
                return
            step = RESIDUAL, user, other
        elif kind := nodes.activation(graph, user):
            step = kind, user, None
        elif nodes.idle(graph, user):
            step = NOTHING, user, None
        else:
            return
        yield step
        if kind:
            return
        seen.append(step[0])
        before = user


def _channels(node: Node) -> int:
    """Channels of what a node makes, in the example."""
    return int(node.meta["tensor_meta"].shape[1])

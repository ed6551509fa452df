"""A version as an ONNX model: from the given vectors to those of an index that is not ours.

What runs in another program is all of it: the space's map (as far as it is linear up to lengths), the root of
the form, its norms, and for queries how far the form gives way to the own ranking. Inputs are named after the
views, float32 [n, dim]; the output is `vector`, float32 [n, dim].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daemon.exits import EX_UNAVAILABLE, EX_USAGE, UserError
from daemon.models.derive import write_new
from daemon.models.vectors import ExportSource, FormDescription, VectorSide, adapter_of, embedding_of
from learners import maps
from learners.block import DenseBlock
from learners.forms.embedding import Embedding
from learners.forms.serving import BackoffForm

FORMAT = "tripletd model 1"
OPSET, IR = 18, 10
"""What runtimes since 2023 read."""
OUTPUT = "vector"
LEAST = np.float32(1e-30)
"""Of what is divided by: a row of zeros stays one."""


@dataclass(frozen=True, slots=True)
class ModelDescription(FormDescription):
    """Of an ONNX file. inputs: of each view, its dimension. side: as in `VectorsDescription`, or `folded`."""

    side: str
    similarity: str
    symmetric: bool
    inputs: Mapping[str, int]
    dim: int


def export_model(served: ExportSource, path: Path, side: VectorSide) -> ModelDescription:
    """Write the model that embeds objects as documents or as queries, and its description next to it. Raises
    UserError without the package onnx, and for maps and forms that are not written so."""
    graph, fitted = _Graph(), served.fitted
    embedding = embedding_of(served)
    mapped = _mapped(graph, fitted)
    made = _embedded(graph, embedding, mapped, side)
    about = {"side": side, "similarity": embedding.similarity, "symmetric": embedding.symmetric}
    return _write(served, graph, made, path, **about, dim=embedding.dim)


def export_folding(served: ExportSource, path: Path) -> ModelDescription:
    """Write the model that folds given vectors by the matrix of `export_adapter`. Raises UserError."""
    F, bias, views = adapter_of(served)
    graph = _Graph()
    parts = []
    for name, (_, _, unit) in views.items():
        rows = _input(graph, served.fitted, name)
        parts.append(graph.unit(rows) if unit else rows)
    folded = graph.node("MatMul", graph.joined(parts), graph.constant(F.T))
    if bias is not None:
        folded = graph.node("Add", folded, graph.constant(bias))
    about = {"side": "folded", "similarity": "inner_product", "symmetric": False}
    return _write(served, graph, folded, path, **about, dim=len(F))


def _input(graph: _Graph, fitted: maps.FittedSpaceMap, name: str) -> str:
    view = fitted.views[name]
    if _reads_sparse(view):
        raise _not_written(f"view {name} is sparse, and ONNX models read dense rows")
    graph.inputs[name] = view.dim_in
    return name


def _reads_sparse(view: maps.ViewMap) -> bool:
    return _reads_sparse(view.maps[0]) if isinstance(view, maps.ChainMap) else view.sparse


def _mapped(graph: _Graph, fitted: maps.FittedSpaceMap) -> str:
    """Rows in the space, as `FittedSpaceMap.transform` has them."""
    parts = []
    for name, view in fitted.views.items():
        rows = _of_view(graph, view, _input(graph, fitted, name), name)
        if fitted.unit and not fitted.effective:
            rows = graph.unit(rows)
        scale = fitted.scales.get(name, 1.0)
        parts.append(rows if scale == 1 else graph.node("Mul", rows, graph.constant(np.float32(scale))))
    joined = graph.joined(parts)
    return graph.unit(joined) if fitted.unit and not fitted.by_block else joined


def _of_view(graph: _Graph, view: maps.ViewMap, rows: str, name: str) -> str:
    if isinstance(view, maps.ChainMap):
        for one in view.maps:
            rows = _of_view(graph, one, rows, name)
        return rows
    if isinstance(view, maps.UnitMap):
        return graph.unit(rows)
    if isinstance(view, maps.IdentityMap):
        return rows
    if isinstance(view, maps.PreconditionMap):
        return graph.node("MatMul", rows, graph.constant(view.components))
    if isinstance(view, maps.ProjectionMap | maps.StandardiseMap):
        there = graph.node("Sign", graph.norm(rows))  # a missing view stays zeros
        centred = graph.node("Sub", rows, graph.constant(view.mean))
        if isinstance(view, maps.ProjectionMap):
            moved = graph.node("MatMul", centred, graph.constant(view.components))
        else:
            moved = graph.node("Mul", centred, graph.constant(view.scale))
        return graph.node("Mul", moved, there)
    raise _not_written(f"the map {view.kind} of view {name} is not among those that are written")


def _embedded(graph: _Graph, embedding: Embedding, rows: str, side: VectorSide) -> str:
    root, form, mapped = embedding.root, embedding.form, rows
    if root is None:
        raise _not_written("this form has no root: its two sides are computed with the form itself")
    if root.scale is not None:
        rows = graph.node("Mul", rows, graph.constant(root.scale))
    turned = rows
    if root.matrix is not None:
        matrix = root.turned(DenseBlock(np.eye(form.dim, dtype=np.float32)))
        assert isinstance(matrix, DenseBlock)
        turned = graph.node("MatMul", rows, graph.constant(matrix.values))
    if side == "documents" or embedding.symmetric:
        return graph.unit(turned) if form.normalised else turned
    assert isinstance(form, BackoffForm)
    assert root.inverse is not None
    own, both = graph.squares(rows), graph.squares(turned)
    learned = graph.node("Max", graph.node("Sub", both, own), graph.constant(np.float32(0)))
    shows = learned
    if form.familiarity is not None:
        products = graph.node("Mul", graph.node("MatMul", mapped, graph.constant(form.familiarity)), mapped)
        shows = graph.node("ReduceSum", products, graph.constant(np.array([1], np.int64)), keepdims=1)
        shows = graph.node("Max", shows, graph.constant(np.float32(0)))
    known = graph.node("Div", shows, graph.least(own))
    relative = graph.node("Mul", known, graph.constant(np.float32(form.share / form.familiar)))
    most_one = graph.node("Min", relative, graph.constant(np.float32(1)))
    given = graph.node("Pow", most_one, graph.constant(np.float32(form.backoff)))
    behind = graph.node("MatMul", rows, graph.constant(root.inverse))
    rest = graph.node("Sub", graph.constant(np.float32(1)), given)
    mixed = graph.node("Add", graph.node("Mul", given, turned), graph.node("Mul", rest, behind))
    answered = graph.node("Add", graph.node("Mul", given, learned), own)
    factor = graph.node("Div", both, graph.least(answered))
    if form.normalised:
        factor = graph.node("Div", factor, graph.least(graph.node("Sqrt", both)))
    return graph.node("Mul", mixed, factor)


class _Graph:
    """Nodes and constants of a model, each result under a name of its own."""

    def __init__(self) -> None:
        self.inputs: dict[str, int] = {}
        self.nodes: list[tuple[str, tuple[str, ...], str, dict[str, Any]]] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._names = (f"t{number}" for number in count())

    def node(self, kind: str, *given: str, **options: Any) -> str:
        """The name of a result."""
        name = next(self._names)
        self.nodes.append((kind, given, name, options))
        return name

    def constant(self, value: Any) -> str:
        """The name of an array."""
        name = next(self._names)
        self.constants[name] = np.ascontiguousarray(value)
        return name

    def norm(self, rows: str) -> str:
        """The length of each row, [n, 1]."""
        return self.node("ReduceL2", rows, self.constant(np.array([1], np.int64)), keepdims=1)

    def squares(self, rows: str) -> str:
        """Its square."""
        return self.node("ReduceSumSquare", rows, self.constant(np.array([1], np.int64)), keepdims=1)

    def least(self, value: str) -> str:
        """A number >= 0 that may be divided by."""
        return self.node("Max", value, self.constant(LEAST))

    def unit(self, rows: str) -> str:
        """Rows of unit length."""
        return self.node("Div", rows, self.least(self.norm(rows)))

    def joined(self, parts: list[str]) -> str:
        """Rows side by side."""
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=1)

    def model(self, result: str, dim: int) -> bytes:
        """The serialised model, checked. Raises UserError without the package onnx."""
        try:
            import onnx
            from onnx import helper, numpy_helper
        except ImportError as error:
            message = f"a file .onnx needs the package onnx, which cannot be imported: {error}"
            raise UserError(message, "pip install 'tripletd[onnx]'", EX_UNAVAILABLE) from error
        nodes = [helper.make_node(kind, given, [name], **more) for kind, given, name, more in self.nodes]
        nodes.append(helper.make_node("Identity", [result], [OUTPUT]))
        kinds = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            nodes,
            "tripletd",
            [helper.make_tensor_value_info(name, kinds, ["n", size]) for name, size in self.inputs.items()],
            [helper.make_tensor_value_info(OUTPUT, kinds, ["n", dim])],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="tripletd")
        onnx.checker.check_model(made, full_check=True)
        return bytes(made.SerializeToString())


def _write(
    served: ExportSource, graph: _Graph, result: str, path: Path, *, dim: int, **about: Any
) -> ModelDescription:
    made = graph.model(result, dim)
    description = ModelDescription(FORMAT, **served.about, **about, inputs=graph.inputs, dim=dim)
    write_new(path, lambda file: file.write(made))
    description.write_beside(path)
    return description


def _not_written(why: str) -> UserError:
    return UserError(f"no ONNX model can be written: {why}", "ask /v1/embed and /v1/fold", EX_USAGE)

"""A version's served form as files for an index that is not ours: vectors of the catalog's objects, and the
matrix that folds a query for an index of the vectors as they were given.

What is written is the form that was judged and is served, with its power, its share of the own ranking and
its norms (`learners.forms.embedding`): brute force over the file gives the server's lists. `models export
--factor` writes another thing, the factor of the learned W alone (`daemon.models.derive`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from checkpoints import VersionStore
from daemon.config.schema import ServingConfig
from daemon.exits import EX_DATAERR, EX_USAGE, UserError
from daemon.models.compare import MappedCatalog, form_of_key, load_version
from daemon.models.derive import ExportDescription, made_of, write_new
from daemon.models.linear_adapter import write_folder
from daemon.text import size
from daemon.versions.algorithms import map_of
from daemon.versions.order import Answering, order_form
from daemon.versions.restore import choice_at, serving_form
from learners.block import Block, DenseBlock, Float32s, SparseBlock, concatenate, row_blocks
from learners.errors import ConfigError, StateError
from learners.forms.embedding import Embedding
from learners.forms.quadratic import ServedForm, folds
from learners.forms.serving import BackoffForm, familiar_matrix
from learners.maps import FittedSpaceMap
from learners.maps.linear import linear_space
from learners.psd import MAX_FULL_DIM

FORMAT = "tripletd vectors 1"
ADAPTER_FORMAT = "tripletd adapter 1"
VectorSide: TypeAlias = Literal["documents", "queries"]

BY_FORM = Answering()
"""Of a version that searches by its serving form."""
MOST_BYTES = 4 << 30
"""Of rows that are sparse and would be written with their zeros."""


@dataclass(frozen=True, slots=True)
class FormDescription(ExportDescription):
    """Of what was made of a served form. key: whose model it is, None where there is one for all. form: which
    the version was given, in words, "" where settings say it."""

    key: str | None
    form: str


@dataclass(frozen=True, slots=True)
class VectorsDescription(FormDescription):
    """Of a file of vectors.

    side: which of the two an object is. similarity: what of a query's vector and a document's is the served
    score: their `inner_product`, or minus the square of their distance (`squared_euclidean`). symmetric:
    whether an object has one vector for both sides. rows, dim: how many and how long. given_way: how many of
    the objects, as queries, have another vector than as documents, since the form gives way to the own
    ranking for them. ids: of the rows, in their order.
    """

    side: VectorSide
    similarity: str
    symmetric: bool
    rows: int
    dim: int
    given_way: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdapterDescription(FormDescription):
    """Of a matrix: a given vector q, or those of all views side by side, is folded as weight q, and where
    `bias` is true, which is where the map shifts, as weight q + bias. views: name -> [first column, columns,
    whether at unit length]. exact: up to what, and for which queries.
    """

    dim: int
    bias: bool
    views: Mapping[str, tuple[int, int, bool]]
    exact: str


@dataclass(frozen=True, slots=True)
class ExportSource:
    """A version's form and map, and what both descriptions say of it."""

    form: ServedForm
    fitted: FittedSpaceMap
    about: Mapping[str, Any]

    @classmethod
    def load(
        cls,
        versions: VersionStore,
        number: int,
        serving: ServingConfig,
        key: str | None,
        answers: Answering = BY_FORM,
    ) -> ExportSource:
        """As `number` searches under these settings. Raises UserError for one that does not load, or by
        `answers` does not search, and for a key where there is one model for all, or none where there are
        several."""
        if not answers.reach:
            raise UserError(
                f"version {number} orders lists, and is not shown to search better than your own ranking",
                "keep the index of your own vectors, and write what orders what it finds: --form order; or "
                "name a version that searches",
                EX_USAGE,
            )
        version = load_version(versions, number)
        form = form_of_key(serving_form(versions, version, serving, keep=False), number, key)
        choice = choice_at(versions, number)
        # the form of version 0, and those of settings, are none that was chosen
        told = choice.told if choice is not None and (isinstance(form, BackoffForm) or choice.raw) else ""
        return cls(form, map_of(version), made_of(version.manifest) | {"key": key, "form": told})

    @classmethod
    def ordering(cls, versions: VersionStore, number: int, answers: Answering) -> ExportSource:
        """As `number` orders given lists. Raises UserError for one that has no order of its own, or by an arm
        that is no matrix."""
        version = load_version(versions, number)
        fitted, choice = map_of(version), answers.order
        try:
            if choice is None or fitted.own is None:
                raise StateError("clicks have not chosen how it orders lists")
            form = order_form(version, fitted.own, choice)
        except StateError as error:
            what = f"version {number} has no order of its own: {error}"
            raise UserError(what, "write what searches: --form folded", EX_USAGE) from error
        if not folds(form):
            what = (
                f"version {number} orders lists by {choice.description}, a memory of clicks: no matrix does"
            )
            raise UserError(what, "ask /v1/rerank, or /v1/similar with filter.include", EX_USAGE)
        return cls(form, fitted, made_of(version.manifest) | {"key": None, "form": choice.description})


def export_vectors(
    served: ExportSource, objects: MappedCatalog | None, path: Path, side: VectorSide = "documents"
) -> VectorsDescription:
    """Write the vector of every object of the catalog to `path`, by its ending, and the description next to
    it.

    .npy: float32 [rows, dim]; .npz: scipy's CSR; .parquet: `id` and `vector`, a list of floats, or `indices`
    and `values` of sparse ones; .safetensors: `vectors`. Raises UserError without objects, for objects of
    another map, a form without such vectors, an ending that is unknown, and a file that is there already.
    """
    if path.suffix not in WRITERS:
        remedy = f"end it in {', '.join(WRITERS)}"
        raise UserError(f"{path.name}: no format has this ending", remedy, EX_USAGE)
    if objects is None:
        raise UserError("there are no objects to write", "set catalog.path", EX_USAGE)
    if objects.map_id != served.about["map"]:
        raise UserError("the catalog is mapped by another map", "export a version of this map", EX_DATAERR)
    embedding = embedding_of(served)
    made = embedding.documents if side == "documents" else embedding.queries
    pieces, given_way = [], 0
    for part in row_blocks(len(objects.ids), embedding.dim):
        rows = objects.mapped.slice(part.start, part.stop)
        pieces.append(made(rows))
        given_way += int(embedding.given_way(rows).sum())
    vectors = concatenate(pieces) if pieces else made(objects.mapped)
    told = VectorsDescription(
        FORMAT,
        **served.about,
        side=side,
        similarity=embedding.similarity,
        symmetric=embedding.symmetric,
        rows=len(vectors),
        dim=vectors.dim,
        given_way=given_way,
        ids=tuple(objects.ids),
    )
    WRITERS[path.suffix](path, vectors, told)
    told.write_beside(path)
    return told


def embedding_of(served: ExportSource) -> Embedding:
    """The embedding of a served form. Raises UserError where its similarity is no inner product."""
    try:
        return Embedding.of(served.form)
    except ConfigError as error:
        which = f"version {served.about['version']}, of {served.about['learner']}"
        told = f"{which}, has no such vectors: {error}"
        raise UserError(told, "export a version of omks-maps or oasis", EX_USAGE) from error


def export_adapter(served: ExportSource, path: Path) -> AdapterDescription:
    """Write the matrix that folds a query for an index of given vectors: `.safetensors` with `linear.weight`
    and, where the map shifts, `linear.bias`, as PyTorch names those of a linear layer; `.npy`, the weight
    alone; without an ending, a folder that LlamaIndex's linear adapter is loaded from. Beside it the
    description. Raises UserError where there is no such matrix.
    """
    F, bias, views = adapter_of(served)
    if path.suffix == ".npy" and bias is not None:
        what = "the map of this space shifts vectors: the matrix has a bias, for which npy has no room"
        raise UserError(what, f"name a file {path.stem}.safetensors", EX_USAGE)
    if path.suffix not in (".npy", ".safetensors", ""):
        remedy = "end it in .safetensors or .npy, or name a folder for LlamaIndex, without an ending"
        raise UserError(f"{path.name}: no format has this ending", remedy, EX_USAGE)
    exact = "up to each object's own norm"
    if isinstance(served.form, BackoffForm):
        exact += ", for queries that the form gives no way for; /v1/fold folds all of them"
    told = AdapterDescription(
        ADAPTER_FORMAT, **served.about, dim=len(F), bias=bias is not None, views=views, exact=exact
    )
    if path.suffix == ".npy":
        _npy(path, F)
    elif not path.suffix:
        write_folder(path, F, bias)
    else:
        arrays = {"linear.weight": F} | ({} if bias is None else {"linear.bias": bias})
        _safetensors(path, arrays, told)
    told.write_beside(path)
    return told


def adapter_of(served: ExportSource) -> tuple[Float32s, Float32s | None, dict[str, tuple[int, int, bool]]]:
    """Weight, bias and views of `AdapterDescription`. Raises UserError where there is no such matrix."""
    form, linear, about = served.form, linear_space(served.fitted), served.about
    if not folds(form):
        message = f"version {about['version']} is of {about['learner']}, whose similarity does not fold"
        raise UserError(message, "ask /v1/similar, or export a version of omks-maps or oasis", EX_USAGE)
    if linear is None:
        raise UserError(
            "the map of this space is not linear: no vector of the given space stands for a folded query",
            "export vectors in the space of the map instead: --form served",
            EX_USAGE,
        )
    if max(linear.dim, form.dim) > MAX_FULL_DIM:
        message = f"a matrix of {linear.dim:,} x {linear.dim:,} is not written (at most {MAX_FULL_DIM:,})"
        raise UserError(message, "ask /v1/fold for folded queries", EX_USAGE)
    F, bias = linear.adapter(familiar_matrix(form))
    views = {
        view.name: (view.columns.start, view.columns.stop - view.columns.start, view.unit)
        for view in linear.views
    }
    return F, bias, views


def _npy(path: Path, values: Float32s) -> None:
    write_new(path, lambda file: np.save(file, values))


def _dense(rows: Block, path: Path) -> Float32s:
    """Rows with their zeros. Raises UserError where these are too many."""
    if isinstance(rows, DenseBlock):
        return rows.values
    if (wanted := 4 * len(rows) * rows.dim) > MOST_BYTES:
        message = f"{path.name} would take {size(wanted)}: these vectors are sparse, of {rows.dim:,} columns"
        raise UserError(message, "end it in .npz or .parquet, which hold sparse vectors", EX_USAGE)
    return np.asarray(rows.checked_csr().toarray(), np.float32)


def _npz(path: Path, rows: Block, told: VectorsDescription) -> None:
    if isinstance(rows, DenseBlock):
        raise UserError("these vectors are dense, .npz holds sparse ones", "end it in .npy", EX_USAGE)
    write_new(path, lambda file: sparse.save_npz(file, rows.checked_csr()))


def _safetensors(path: Path, arrays: Mapping[str, NDArray[Any]], told: FormDescription) -> None:
    from safetensors.numpy import save

    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    encoded = save(whole, _as_metadata(told))
    write_new(path, lambda file: file.write(encoded))


def _as_metadata(told: FormDescription) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in asdict(told).items() if name != "ids"}


ROW_GROUP = 10_000
"""Objects of one row group of a Parquet file."""


def _parquet(path: Path, rows: Block, told: VectorsDescription) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = _as_metadata(told)

    def table(start: int) -> Any:
        part = rows.slice(start, min(start + ROW_GROUP, len(rows)))
        ids = pa.array(told.ids[start : start + len(part)], pa.string())
        if isinstance(part, SparseBlock):
            csr = part.checked_csr()
            places = pa.array(csr.indptr, pa.int32())
            lists = {"indices": csr.indices.astype(np.int32), "values": csr.data.astype(np.float32)}
        else:
            places = pa.array(np.arange(len(part) + 1, dtype=np.int32) * np.int32(part.dim))
            lists = {"vector": part.values.reshape(-1)}
        columns = {name: pa.ListArray.from_arrays(places, pa.array(flat)) for name, flat in lists.items()}
        return pa.table({"id": ids, **columns}).replace_schema_metadata(about)

    def write(file: IO[bytes]) -> None:
        first = table(0)
        with pq.ParquetWriter(file, first.schema) as writer:
            writer.write_table(first)
            for start in range(ROW_GROUP, len(rows), ROW_GROUP):
                writer.write_table(table(start))

    write_new(path, write)


WRITERS: Mapping[str, Callable[[Path, Block, VectorsDescription], None]] = {
    ".npy": lambda path, rows, told: _npy(path, _dense(rows, path)),
    ".npz": _npz,
    ".parquet": _parquet,
    ".safetensors": lambda path, rows, told: _safetensors(path, {"vectors": _dense(rows, path)}, told),
}

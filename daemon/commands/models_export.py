"""`tripletd models export`: a version for other programs."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, VersionArgument, load
from daemon.exits import EX_OK, EX_USAGE, UserError

if TYPE_CHECKING:
    from checkpoints import VersionStore
    from daemon.config import Config
    from daemon.models.onnx_model import ModelDescription
    from daemon.models.vectors import AdapterDescription, ExportSource, VectorsDescription


class ExportedForm(StrEnum):
    """The forms that `models export --out` can write."""

    served = "served"
    folded = "folded"
    order = "order"


class ExportedSide(StrEnum):
    """Which side of an index the vectors are for."""

    documents = "documents"
    queries = "queries"


FileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        show_default=False,
        help="What is written, by its ending: .npy, .npz (sparse), .parquet or .safetensors; .onnx is a "
        "model that computes it from your vectors; no ending, with --form folded, a folder that LlamaIndex "
        "loads as a linear adapter.",
    ),
]


def export(
    name: VersionArgument,
    *,
    out: FileOption = None,
    form: Annotated[
        ExportedForm,
        typer.Option(
            help="With --out. served: vectors of all catalog objects, whose inner product is the served "
            "score. folded: the matrix that folds a query for an index of the vectors as they were given. "
            "order: that matrix for scores of given lists."
        ),
    ] = ExportedForm.served,
    side: Annotated[
        ExportedSide,
        typer.Option(help="Of --form served: objects as the documents of an index, or as its queries."),
    ] = ExportedSide.documents,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", show_default=False, help="Whose model, where there is one per key."),
    ] = None,
    factor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy",
            show_default=False,
            help="A with A^T A = PSD part of the learned W alone, float32 \\[rank, dim]; not what is served.",
        ),
    ] = None,
    embed: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy",
            show_default=False,
            help="Beside --factor: A x of every catalog object, float32 \\[n, rank].",
        ),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Write a version for an index that is not ours; see docs/your-own-index.md.

    Beside each file lies FILE.json, which says what it is.
    """
    if (out is None) == (factor is None) or (embed is not None and factor is None):
        told = "say what to write with --out or --factor; --embed needs --factor"
        raise UserError(told, "tripletd models export best --out vectors.npy", EX_USAGE)
    from daemon.models.decide import number_of

    settings = load(config, set_)
    if factor is not None and settings.serving.form == "as_learned":
        raise UserError(
            "A with A^T A is of a symmetric matrix; versions are served by W as it was learned here "
            '(serving.form = "as_learned")',
            "write both sides with --out: once as documents, once with --side queries",
            EX_USAGE,
        )
    versions, _, entries = common.opened(settings)
    number = number_of(name, versions.versions(), entries)
    if factor is not None:
        return _export_factor(settings, versions, number, factor, embed=embed, json=json)
    assert out is not None
    from daemon.models.vectors import ExportSource, export_adapter
    from daemon.versions.order import answering

    answers = answering(entries, number)
    if form is ExportedForm.order:
        served = ExportSource.ordering(versions, number, answers)
    else:
        served = ExportSource.load(versions, number, settings.serving, key, answers)
    made: AdapterDescription | ModelDescription | VectorsDescription
    if out.suffix == ".onnx":
        made, line = _export_model(served, out, form, side)
    elif form is not ExportedForm.served:
        made = export_adapter(served, out)
        line = f"version {number}: a matrix of {made.dim:,} x {made.dim:,}, exact {made.exact}"
    else:
        made, line = _export_vectors(settings, versions, served, out, side)
    if json:
        common.write_json({field: value for field, value in asdict(made).items() if field != "ids"})
    else:
        typer.echo(line)
    return EX_OK


def _export_vectors(
    settings: Config, versions: VersionStore, served: ExportSource, out: Path, side: ExportedSide
) -> tuple[VectorsDescription, str]:
    from daemon.models.compare import catalog_objects
    from daemon.models.vectors import export_vectors

    number = int(served.about["version"])
    written = export_vectors(served, catalog_objects(settings, versions, number), out, side.value)
    if not written.symmetric:
        why = "this form has one vector for a query and another one for a document"
        if written.given_way:
            why = (
                f"{written.given_way:,} of {written.rows:,} objects, as queries, give way to your own ranking"
            )
        common.write_note(f"{why}: ask with vectors of --side queries or of /v1/fold")
    told = f"{written.rows:,} {side.value} of {written.dim:,} numbers, {written.similarity}"
    return written, f"version {number}: {told}"


def _export_model(
    served: ExportSource, out: Path, form: ExportedForm, side: ExportedSide
) -> tuple[ModelDescription, str]:
    from daemon.models.onnx_model import export_folding, export_model

    whole = form is ExportedForm.served
    made = export_model(served, out, side.value) if whole else export_folding(served, out)
    inputs = ", ".join(f"{name} {dim:,}" for name, dim in made.inputs.items())
    return made, f"version {made.version}: a model from {inputs} to {made.side} of {made.dim:,} numbers"


def _export_factor(
    settings: Config, versions: VersionStore, number: int, factor: Path, *, embed: Path | None, json: bool
) -> int:
    from daemon.models.compare import catalog_objects
    from daemon.models.derive import export_embedding, export_factor

    objects = catalog_objects(settings, versions, number) if embed is not None else None
    told, A = export_factor(versions, number, factor)
    embedded = None if embed is None else export_embedding(told, A, objects, embed)
    text = f"version {number}: A of rank {told.rank:,} in {told.dim:,} dimensions, {told.similarity}"
    text += "" if embedded is None else f"\n{embedded:,} objects embedded"
    return common.show(json, asdict(told) | {"embedded": embedded}, lambda: typer.echo(text))

"""`tripletd describe`: raw photos and texts become a catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from daemon.commands.common import JsonOption, flag, say, write_json, write_note
from daemon.exits import EX_OK
from daemon.memory.cores import usable_cores

if TYPE_CHECKING:
    from daemon.describe.describing import DescribeReport

_NAMED = 10
"""Refused ones that are named on stderr; the file beside the catalog has all."""


def describe(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Photos: a folder, an uncompressed .tar, or a list of paths (.txt). Texts, or both: .csv,"
            " .tsv, .jsonl, .parquet.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The catalog to write.")] = Path(
        "items.safetensors"
    ),
    views: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="With commas: five, terms (visual terms), nine, text, or single views of the five and nine.",
            show_default="five of photos, text of tables",
        ),
    ] = "",
    with_: Annotated[
        Path | None, typer.Option("--with", metavar="FITTED", help="Describe in the space of a former run.")
    ] = None,
    terms: Annotated[
        int, typer.Option(min=2, max=1_000_000, metavar="N", help="Words of the visual terms.")
    ] = 10_000,
    words: Annotated[
        int, typer.Option(min=1, max=100_000_000, metavar="N", help="Most words of texts.")
    ] = 50_000,
    text_model: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Texts become vectors of this model instead, as embeddings.folder."
        ),
    ] = None,
    id_: Annotated[str, typer.Option("--id", metavar="COLUMN", help="Of tables: the id.")] = "id",
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The text.")] = "text",
    image: Annotated[str, typer.Option(metavar="COLUMN", help="The path of the photo.")] = "image",
    title: Annotated[str, typer.Option(metavar="COLUMN", help="What people see.", show_default=False)] = "",
    ids: Annotated[
        Literal["stem", "path"],
        typer.Option(help="What a photo's object is named by: its file's name without ending, or its path."),
    ] = "stem",
    longest: Annotated[
        int, typer.Option(min=64, max=4096, metavar="PIXELS", help="Photos are shrunk to this longer side.")
    ] = 500,
    sample: Annotated[
        int, typer.Option(min=1, metavar="N", help="Photos that codebooks are fitted on, by chance.")
    ] = 5_000,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn by chance.")] = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Processes.", show_default="one per core that the process may use"
        ),
    ] = None,
    strict: Annotated[bool, flag("--strict", "End at the first object that cannot be used.")] = False,
    fresh: Annotated[bool, flag("--fresh", "Throw away what a run that was cut has done.")] = False,
    json: JsonOption = False,
) -> int:
    """Turn photos and texts into a catalog of vectors, with a configuration to begin with.

    A run that was ended goes on when it is started again. What cannot be used is left out and named.
    """
    from daemon.describe.describing import DescribeSettings, describe_to
    from daemon.describe.fit import DescriberFit
    from daemon.describe.tables import TableColumns, is_text_table, raw_source
    from daemon.describe.views import TEXT, named_views

    fitted = None if with_ is None else DescriberFit.load(with_)
    asked = views or (TEXT if is_text_table(source) else "five")
    names = named_views(asked.replace(",", " ").split()) if fitted is None else fitted.views
    settings = DescribeSettings(
        names,
        terms,
        words,
        longest,
        seed,
        fitted,
        str(text_model or ""),
        strict,
        workers or usable_cores(),
        fresh,
        sample,
    )
    with _progress() as tell:
        objects = raw_source(source, names, ids, TableColumns(id_, text, image, title))
        report = describe_to(objects, out, settings, tell)
    _told(report, json)
    return EX_OK


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar per stage on stderr where that is a terminal; elsewhere a line when a stage begins."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    out = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=out, disable=not out.is_terminal) as bar:
        tasks: dict[str, object] = {}

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total or None)
                if not out.is_terminal:
                    out.print(f"{stage}: {total:,} objects" if total else stage)
            bar.update(tasks[stage], completed=done)  # type: ignore[arg-type]

        yield tell


def _told(report: DescribeReport, as_json: bool) -> None:
    for name, reason in report.refused[:_NAMED]:
        write_note(f"left out {name}: {reason}")
    files = report.files
    if as_json:
        write_json(
            {
                "objects": report.objects,
                "refused": [{"name": name, "reason": reason} for name, reason in report.refused],
                "non_zeros": dict(report.entries),
                "catalog": str(files.catalog),
                "fitted": str(files.fitted) if report.first else None,
                "configuration": str(files.settings) if report.first else None,
            }
        )
        return
    say(f"{report.objects:,} objects in {files.catalog}")
    for name, mean in report.entries.items():
        say(f"  {name}: {mean:.1f} words an object")
    if report.refused:
        say(f"{len(report.refused):,} left out; their names and why: {files.refused}")
    if report.first:
        say(f"next: tripletd check --config {files.settings}")
    else:
        say(f"next: tripletd items put {files.catalog}, with the configuration of the first ones")

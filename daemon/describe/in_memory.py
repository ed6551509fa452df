"""The same as the command does, for who wants the catalog in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from daemon.describe.describing import SAMPLE, DescribeSettings, describe_to
from daemon.describe.fit import DescriberFit
from daemon.describe.pictures import LONGEST
from daemon.describe.sources import IdRule
from daemon.describe.tables import TableColumns, raw_source
from daemon.describe.views import TEXT, named_views
from streams.catalog import Catalog, load_catalog


@dataclass(frozen=True, eq=False)
class DescribedObjects:
    """catalog: the objects. fit: describes others in the same space. refused: (name, reason) of those that
    could not be used. entries: mean non-zeros of an object, by view with words."""

    catalog: Catalog
    fit: DescriberFit
    refused: list[tuple[str, str]]
    entries: dict[str, float]


def described_photos(
    source: str | Path,
    views: Iterable[str] = ("terms",),
    *,
    terms: int = 10_000,
    fitted: DescriberFit | None = None,
    ids: IdRule = "stem",
    longest: int = LONGEST,
    seed: int = 0,
    sample: int = SAMPLE,
    workers: int = 1,
) -> DescribedObjects:
    """The photos of a folder, an uncompressed tar or a list, by views or groups of views (`terms`, `nine`,
    `five`, or single ones).

    fitted: describe by this, whatever `views`, `terms` and `longest` say. sample: photos that codebooks are
    fitted on. workers: processes; the program that calls must then be guarded by `if __name__ == "__main__"`.
    Raises UserError.
    """
    names = named_views(views) if fitted is None else fitted.views
    settings = DescribeSettings(
        names, terms, longest=longest, seed=seed, fitted=fitted, workers=workers, sample=sample
    )
    return _in_memory(Path(source), settings, ids, TableColumns())


def described_texts(
    source: str | Path,
    *,
    words: int = 50_000,
    model: str | Path = "",
    fitted: DescriberFit | None = None,
    columns: TableColumns | None = None,
    workers: int = 1,
) -> DescribedObjects:
    """The texts of a table or of JSON lines, as tf-idf of at most so many words, or, with the folder of a
    text model, as its vectors. workers: as of `described_photos`. Raises UserError."""
    settings = DescribeSettings((TEXT,), words=words, fitted=fitted, model=str(model or ""), workers=workers)
    return _in_memory(Path(source), settings, "stem", columns or TableColumns())


def _in_memory(
    source: Path, settings: DescribeSettings, ids: IdRule, columns: TableColumns
) -> DescribedObjects:
    views = settings.views if settings.fitted is None else settings.fitted.views
    with tempfile.TemporaryDirectory(prefix="tripletd-describe-") as folder:
        report = describe_to(
            raw_source(source, views, ids, columns), Path(folder, "items.safetensors"), settings
        )
        fit = settings.fitted or DescriberFit.load(report.files.fitted)
        catalog = load_catalog(report.files.catalog)
    return DescribedObjects(catalog, fit, report.refused, dict(report.entries))

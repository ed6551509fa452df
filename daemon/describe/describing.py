"""Objects described from beginning to end: what has to be fitted is fitted, every object described, the
catalog written.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from heapq import nsmallest
from pathlib import Path
from typing import Any

import numpy as np

from daemon.describe.blocks import PALETTE
from daemon.describe.chunks import RawChunk, Work, do_chunk, unpacked_counts
from daemon.describe.codebooks import Floats, TooFewVectors, fit_codebook
from daemon.describe.fit import FORMAT, DescriberFit
from daemon.describe.merge import PartFile, add_parts, frequencies
from daemon.describe.pictures import LONGEST
from daemon.describe.run_folder import DescribedFiles, run_folder, settings_text
from daemon.describe.sources import PhotoList, RawObject, RawSource
from daemon.describe.texts import add_counts, chosen_words
from daemon.describe.views import OF_PHOTOS, TERMS, TEXT, VIEWS, codebook_sizes
from daemon.exits import EX_DATAERR, EX_USAGE, UserError, not_installed
from daemon.work_pool import Workers, done_by
from streams.durable import replacing
from streams.event import SpaceSpec, ViewSpec
from streams.items import Display
from streams.objects.catalog_file import DEFAULT_SPACE, CatalogWriter
from streams.objects.rows import cut

PHOTOS_AT_ONCE = 64
"""Of a piece of work: some seconds, which a kill costs at most."""
TEXTS_AT_ONCE = 1024
SAMPLE = 5_000
"""Photos that codebooks are fitted on."""
_FITTED_ON = {"pixels": 200_000, "sift": 200_000, "surf": 200_000, "blocks": 400_000}
"""Most vectors of each kind: up to 130 MB."""

Tell = Callable[[str, int, int], None]
"""Hears the stage, and how many of how many objects it has done."""


@dataclass(frozen=True)
class DescribeSettings:
    """views: names. terms: words of the visual terms; words: most of the texts'. fitted: a fit to describe
    by, with its views and sizes. model: folder of a text model, "" for tf-idf. strict: an object that cannot
    be used ends the run. workers: processes. fresh: what a run that was cut did is thrown away. sample:
    photos that codebooks are fitted on."""

    views: tuple[str, ...]
    terms: int = 10_000
    words: int = 50_000
    longest: int = LONGEST
    seed: int = 0
    fitted: DescriberFit | None = None
    model: str = ""
    strict: bool = False
    workers: int = 1
    fresh: bool = False
    sample: int = SAMPLE

    def start(self) -> DescriberFit:
        """What is known before the first object. Raises UserError where packages or the model are missing."""
        views = self.views if self.fitted is None else self.fitted.views
        libraries = _libraries(any(name in OF_PHOTOS for name in views))
        name, dim, state = _text_model(self.model) if self.model and TEXT in views else ("", 0, "")
        if self.fitted is None:
            return DescriberFit(
                views, self.longest, self.seed, model=name, dim=dim, model_state=state, libraries=libraries
            )
        if self.fitted.model_state != state:
            former = f"the model {self.fitted.model!r}" if self.fitted.model else "tf-idf"
            raise UserError(
                f"the texts were described by {former}, now by {name or 'tf-idf'!r} or other files of it",
                "give the same --text-model, or none where there was none",
                EX_USAGE,
            )
        return self.fitted


@dataclass(frozen=True)
class DescribeReport:
    """What became of a run. first: whether something was fitted, which is beside the catalog with a
    configuration. refused: (name, reason). entries: mean non-zeros of an object by view with words."""

    files: DescribedFiles
    objects: int
    first: bool
    refused: list[tuple[str, str]] = field(default_factory=list)
    entries: Mapping[str, float] = field(default_factory=dict)


def _libraries(photos: bool) -> dict[str, str]:
    import sklearn

    found: dict[str, Any] = {"scikit-learn": sklearn, "numpy": np}
    if photos:
        try:
            import cv2
            import PIL
            import skimage
        except ImportError as error:
            raise not_installed("describing photos", "photos", error) from None
        found |= {"opencv": cv2, "pillow": PIL, "scikit-image": skimage}
    return {name: str(module.__version__) for name, module in found.items()}


def _text_model(folder: str) -> tuple[str, int, str]:
    """Name, dimensions and a digest of a text model in a folder. Raises UserError."""
    from daemon.serve.text_model import TextModel

    opened = TextModel.open(Path(folder), 1)
    state = sha256()
    for path in (opened.layout.encoder, Path(folder, "tokenizer.json")):
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                state.update(piece)
    return opened.name, opened.dim, state.hexdigest()


def describe_to(
    source: RawSource, out: Path, settings: DescribeSettings, tell: Tell = lambda *_: None
) -> DescribeReport:
    """Describe every object of a source and write the catalog `out` and what belongs to it.

    A run that was ended anyhow goes on where it was when it is started again, and writes the same bytes. An
    object that cannot be used is left out and named; strict runs end at it. Memory: of each process that of a
    piece of work, the samples, and the ids. Raises UserError.
    """
    files = DescribedFiles.of(out)
    fit = settings.start()
    with run_folder(files, _plan(settings, fit, source), settings.fresh) as folder:
        run = _Run(folder, source, settings, tell)
        if settings.fitted is None:
            fit = run.fit(fit)
        report = run.write(files, fit)
        shutil.rmtree(folder)
    return report


def _plan(settings: DescribeSettings, fit: DescriberFit, source: RawSource) -> dict[str, Any]:
    fitted = settings.fitted is not None
    return {
        "format": FORMAT,
        "objects": f"{source.count()} {source.state()}",
        "views": list(fit.views),
        "terms": 0 if fitted else settings.terms,
        "words": 0 if fitted else settings.words,
        "longest": fit.longest,
        "seed": fit.seed,
        "sample": settings.sample,
        "fit": sha256(fit.encoded()).hexdigest() if fitted else "",
        "text model": fit.model_state,
        "libraries": _libraries(any(name in OF_PHOTOS for name in fit.views)),
    }


class _Run:
    def __init__(self, folder: Path, source: RawSource, settings: DescribeSettings, tell: Tell) -> None:
        self._folder, self._source, self._settings, self._tell = folder, source, settings, tell

    def fit(self, start: DescriberFit) -> DescriberFit:
        """Palette and codebooks, of a sample of the photos; the words of the texts."""
        fit, sizes = start, codebook_sizes(start.views, self._settings.terms)
        kinds = {VIEWS[name].of for name in sizes}
        if sizes:
            sample = PhotoList(self._sample())
            first = sorted(({"pixels"} if "blocks" in kinds else set()) | (kinds - {"blocks"}))
            fit = self._fit_codebooks("codebooks", fit, sample, "sample", first)
            if "blocks" in kinds:
                fit = self._fit_codebooks("terms", fit, sample, "blocks", ["blocks"])
        if TEXT in fit.views and not fit.model:
            fit = self._fit_words(fit)
        return fit

    def _fit_words(self, fit: DescriberFit) -> DescriberFit:
        total: Counter[str] = Counter()
        for part in self._work("counting words", fit, self._source, "words", {}):
            add_counts(total, unpacked_counts(part.arrays()))
        words = chosen_words(total, self._settings.words)
        if not words:
            remedy = "give more texts, or a --text-model"
            raise UserError("no word is in two of the texts", remedy, EX_DATAERR)
        return replace(fit, words=words)

    def _fit_codebooks(
        self, name: str, fit: DescriberFit, sample: PhotoList, work: Work, kinds: Sequence[str]
    ) -> DescriberFit:
        """Fit the codebooks that are made of vectors of these kinds; those of a former start are taken."""
        done = self._folder / f"{name}.safetensors"
        if done.exists():
            return DescriberFit.load(done)
        quota = {kind: -(-_FITTED_ON[kind] // sample.count()) for kind in kinds}
        parts = list(self._work(f"sampling for {name}", fit, sample, work, quota))
        self._tell(f"fitting {name}", 0, 0)
        for kind in kinds:
            found = [array for part in parts if (array := part.arrays(kind).get(kind)) is not None]
            if not sum(map(len, found)):
                raise UserError(
                    f"{sample.count():,} photos give no {kind} to fit codebooks on: they cannot be read, or"
                    " show nothing",
                    "describe one of them alone, with --views lbp59, to see why",
                    EX_DATAERR,
                )
            vectors = np.concatenate(found)
            if kind == "pixels":
                fit = replace(fit, palette=self._codebook("palette", vectors, PALETTE))
            sizes = codebook_sizes(fit.views, self._settings.terms).items()
            made = {one: self._codebook(one, vectors, size) for one, size in sizes if VIEWS[one].of == kind}
            fit = replace(fit, codebooks={**fit.codebooks, **made})
        _keep(done, fit.encoded())
        return fit

    def _codebook(self, name: str, vectors: np.ndarray[Any, Any], size: int) -> Floats:
        done = self._folder / f"codebook-{name}.npy"
        if done.exists():
            return np.asarray(np.load(done), np.float32)
        try:
            found = fit_codebook(vectors, size, self._settings.seed)
        except TooFewVectors as error:
            more = "describe more photos, or leave the view out"
            remedy = "give fewer with --terms" if name == TERMS else more
            raise UserError(f"{name}: {error}", remedy, EX_USAGE) from None
        with replacing(done) as file:
            np.save(file, found)
        return found

    def _sample(self) -> list[RawObject]:
        drawn = nsmallest(
            self._settings.sample,
            (
                (sha256(f"{self._settings.seed} {one.id}".encode()).digest(), at, one._replace(text=""))
                for at, one in enumerate(one for piece in self._source.pieces(TEXTS_AT_ONCE) for one in piece)
            ),
        )
        return [one for _, _, one in sorted(drawn, key=lambda found: found[1])]

    def _work(
        self, stage: str, fit: DescriberFit, source: RawSource, work: Work, quota: Mapping[str, int]
    ) -> Iterator[PartFile]:
        """Have every piece done that is not done yet; then the files of all, in the order of the objects."""
        encoded = fit.encoded()
        path = self._folder / f"fit-{sha256(encoded).hexdigest()[:16]}.safetensors"
        if not path.exists():
            _keep(path, encoded)
        total, parts = source.count(), self._parts(fit, source, work)
        done = sum(len(part.objects) for part in parts if part.path.exists())
        self._tell(stage, done, total)
        pieces = (
            RawChunk(work, part.objects, str(part.path), str(path), quota, self._settings.model)
            for part in self._parts(fit, source, work)
            if not part.path.exists()
        )
        for piece, refused in done_by(Workers(self._settings.workers), do_chunk, pieces):
            if isinstance(refused, UserError):
                raise refused
            done += len(piece.objects)
            self._tell(stage, done, total)
            if refused and self._settings.strict:
                self._end_at_first(PartFile(Path(piece.into), piece.objects))
        return self._parts(fit, source, work)

    def _parts(self, fit: DescriberFit, source: RawSource, work: Work) -> Iterator[PartFile]:
        photos = work != "words" and any(name in OF_PHOTOS for name in fit.views)
        size = PHOTOS_AT_ONCE if photos else TEXTS_AT_ONCE
        for number, piece in enumerate(source.pieces(size)):
            yield PartFile(self._folder / f"{work}-{number:07d}.npz", piece)

    def _end_at_first(self, part: PartFile) -> None:
        for name, reason in part.read()[2]:
            part.path.unlink()  # so that it is looked at again when it was repaired
            raise UserError(f"{name}: {reason}", "repair it, take it out, or leave out --strict", EX_DATAERR)

    def write(self, files: DescribedFiles, fit: DescriberFit) -> DescribeReport:
        """Describe every object and write all files, the catalog last."""
        refused: list[tuple[str, str]] = []
        for part in self._work("describing", fit, self._source, "describe", {}):
            refused += part.read()[2]
            if refused and self._settings.strict:
                self._end_at_first(part)
        objects = self._source.count() - len(refused)
        if not objects:
            name, reason = refused[0]
            raise UserError(f"none can be used; the first, {name}: {reason}", "", EX_DATAERR)
        sizes = {name: len(codebook) for name, codebook in fit.codebooks.items()}
        sizes |= {TEXT: len(fit.words)} if fit.words else {}
        if self._settings.fitted is None:
            weights = frequencies(self._parts(fit, self._source, "describe"), sizes)
            fit = replace(fit, weights=weights, objects=objects)
        space = SpaceSpec(DEFAULT_SPACE, tuple(_spec(name, fit, sizes) for name in fit.views))
        with CatalogWriter(self._folder, space) as writer:
            totals = self._add_all(writer, fit, files)
            self._write_files(files, fit, refused, space)
            with replacing(files.catalog) as file:
                writer.write(file)
        means = {name: one / objects for name, one in totals.items()}
        return DescribeReport(files, objects, self._settings.fitted is None, refused, means)

    def _add_all(self, writer: CatalogWriter, fit: DescriberFit, files: DescribedFiles) -> dict[str, float]:
        """Every object into the catalog; the non-zeros of all, by view with words."""
        totals, done, total = dict.fromkeys(fit.weights, 0.0), 0, self._source.count()
        self._tell("writing", 0, total)
        parts = self._parts(fit, self._source, "describe")
        for part, entries in add_parts(writer, parts, fit.views, fit.weights, _shown_beside(files.catalog)):
            done += len(part.objects)
            self._tell("writing", done, total)
            for name, count in entries.items():
                totals[name] += count
        return totals

    def _write_files(
        self, files: DescribedFiles, fit: DescriberFit, refused: Sequence[tuple[str, str]], space: SpaceSpec
    ) -> None:
        if refused:
            text = "".join(f"{name}\t{' '.join(reason.split())}\n" for name, reason in refused)
            _keep(files.refused, text.encode(errors="replace"))
        if self._settings.fitted is None:  # otherwise they are beside what was described first
            _keep(files.fitted, fit.encoded())
            model = self._settings.model if fit.model else ""
            _keep(files.settings, settings_text(files.catalog.name, space, model).encode())


def _keep(path: Path, data: bytes) -> None:
    with replacing(path) as file:
        file.write(data)


def _spec(name: str, fit: DescriberFit, sizes: Mapping[str, int]) -> ViewSpec:
    if name == TEXT and fit.model:
        return ViewSpec(name, "dense", fit.dim)
    return ViewSpec(name, "sparse" if VIEWS[name].sparse else "dense", sizes.get(name, VIEWS[name].dim))


def _shown_beside(catalog: Path) -> Callable[[RawObject], Display]:
    """What people see of an object: its title, the folders that its photo lies in as tags, its text, and its
    photo where that is a file below the catalog's folder, where the page of `serve` looks for pictures."""
    root = catalog.parent.resolve()

    def shown(one: RawObject) -> Display:
        image = None
        if one.file and one.offset < 0:
            place = Path(os.path.abspath(one.file))
            image = place.relative_to(root).as_posix() if place.is_relative_to(root) else None
        text = cut(one.text) if one.text else None
        title = one.title or (None if text else one.id)
        return Display(title=cut(title) if title else None, text=text, image=image, tags=one.folders)

    return shown

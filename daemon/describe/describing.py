"""Photos described from beginning to end: codebooks fitted, every photo described, the catalog written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from daemon.describe.blocks import PALETTE
from daemon.describe.chunks import PhotoChunk, Work, do_chunk
from daemon.describe.codebooks import Floats, TooFewVectors, fit_codebook
from daemon.describe.fit import FORMAT, DescriberFit
from daemon.describe.merge import PartFile, add_parts, frequencies
from daemon.describe.pictures import LONGEST
from daemon.describe.pool import done_by
from daemon.describe.run_folder import DescribedFiles, remove_run, run_folder, write_file
from daemon.describe.settings import settings_text
from daemon.describe.sources import IdRule, PhotoRef, find_photos
from daemon.describe.views import TERMS, VIEWS, codebook_sizes
from daemon.exits import EX_DATAERR, EX_UNAVAILABLE, EX_USAGE, UserError
from streams.event import SpaceSpec, ViewSpec
from streams.items import Display
from streams.objects.catalog_file import DEFAULT_SPACE, CatalogWriter

CHUNK = 64
"""Photos of a piece of work: some seconds, which a kill costs at most."""
SAMPLE = 5_000
"""Photos that codebooks are fitted on."""
_FITTED_ON = {"pixels": 200_000, "sift": 200_000, "surf": 200_000, "blocks": 400_000}
"""Most vectors of each kind: 25 to 130 MB."""

Tell = Callable[[str, int, int], None]
"""Hears the stage, and how many of how many photos it has done."""


@dataclass(frozen=True)
class PhotoSettings:
    """views: names. terms: words of the visual terms. ids: what an object is named by. fitted: a fit to
    describe by, with its views, terms and longest side. strict: a photo that cannot be read ends the run.
    workers: processes. fresh: what a run that was cut did is thrown away. sample: photos that codebooks are
    fitted on."""

    views: tuple[str, ...]
    terms: int = 10_000
    longest: int = LONGEST
    seed: int = 0
    ids: IdRule = "stem"
    fitted: DescriberFit | None = None
    strict: bool = False
    workers: int = 1
    fresh: bool = False
    sample: int = SAMPLE

    def start(self) -> DescriberFit:
        """What is known before the first photo. Raises UserError where packages are missing."""
        libraries = photo_libraries()
        if self.fitted is not None:
            return self.fitted
        return DescriberFit(self.views, self.longest, self.seed, libraries=libraries)


@dataclass(frozen=True)
class DescribeReport:
    """What became of a run. refused: (name, reason). entries: mean non-zeros of an object by view with
    words."""

    files: DescribedFiles
    objects: int
    refused: list[tuple[str, str]] = field(default_factory=list)
    entries: Mapping[str, float] = field(default_factory=dict)


def photo_libraries() -> dict[str, str]:
    """Versions of what computes. Raises UserError where a package is missing."""
    try:
        import cv2
        import PIL
        import skimage
        import sklearn
    except ImportError as error:
        raise UserError(
            f"photos are described with OpenCV and scikit-image: {error}",
            "pip install 'tripletd[photos]'",
            EX_UNAVAILABLE,
        ) from None
    found = {"opencv": cv2, "pillow": PIL, "scikit-image": skimage, "scikit-learn": sklearn, "numpy": np}
    return {name: str(module.__version__) for name, module in found.items()}


def _silent(stage: str, done: int, total: int) -> None:
    pass


def describe_photos_to(
    source: Path, out: Path, settings: PhotoSettings, tell: Tell = _silent
) -> DescribeReport:
    """Describe every photo of a source and write the catalog `out` and what belongs to it.

    A run that was ended anyhow goes on where it was when it is started again, and writes the same bytes. A
    photo that cannot be read is left out and named, in strict runs refused. Memory: that of a piece of work
    for each process, of the samples, and some 300 bytes for the name of each photo. Raises UserError.
    """
    files = DescribedFiles.of(out)
    fit = settings.start()
    photos = find_photos(source, settings.ids)
    with run_folder(files, _plan(settings, fit, photos), settings.fresh) as folder:
        run = _PhotoRun(folder, photos, settings, tell)
        if settings.fitted is None:
            fit = run.fit(fit)
        report = run.write(files, fit)
        remove_run(folder)
    return report


def _plan(settings: PhotoSettings, fit: DescriberFit, photos: Sequence[PhotoRef]) -> dict[str, Any]:
    """All that decides what is written."""
    listing = sha256()
    for photo in photos:
        listing.update(repr((photo.id, photo.name, photo.size, photo.changed)).encode())
    return {
        "format": FORMAT,
        "photos": f"{len(photos)} {listing.hexdigest()}",
        "views": list(fit.views),
        "terms": settings.terms if settings.fitted is None else 0,
        "longest": fit.longest,
        "seed": fit.seed,
        "sample": settings.sample,
        "fit": "" if settings.fitted is None else sha256(fit.encoded()).hexdigest(),
        "libraries": photo_libraries(),
    }


class _PhotoRun:
    """One run; its folder holds what is done."""

    def __init__(self, folder: Path, photos: Sequence[PhotoRef], settings: PhotoSettings, tell: Tell) -> None:
        self._folder, self._photos, self._settings, self._tell = folder, photos, settings, tell

    def fit(self, start: DescriberFit) -> DescriberFit:
        """Palette and codebooks, of a sample of the photos."""
        sizes = codebook_sizes(start.views, self._settings.terms)
        if not sizes:
            return start
        sample = self._sample()
        kinds = {VIEWS[name].of for name in sizes}
        wanted = {"pixels"} if "blocks" in kinds else set()
        first = self._fit_step("codebooks", start, sample, "sample", sorted(wanted | (kinds - {"blocks"})))
        if "blocks" not in kinds:
            return first
        return self._fit_step("terms", first, sample, "blocks", ["blocks"])

    def _fit_step(
        self, name: str, fit: DescriberFit, sample: Sequence[PhotoRef], work: Work, kinds: Sequence[str]
    ) -> DescriberFit:
        """Fit the codebooks that are made of vectors of these kinds; those of a former start are taken."""
        done = self._folder / f"{name}.safetensors"
        if done.exists():
            return DescriberFit.load(done)
        quota = {kind: -(-_FITTED_ON[kind] // len(sample)) for kind in kinds}
        parts = self._work(f"sampling for {name}", fit, sample, work, quota)
        for kind in kinds:
            vectors = _vectors(parts, kind)
            self._tell(f"fitting {name}", 0, 0)
            if vectors is None:
                raise self._nothing(sample)
            if kind == "pixels":
                fit = replace(fit, palette=_codebook("palette", vectors, PALETTE, fit.seed))
            for view, size in codebook_sizes(fit.views, self._settings.terms).items():
                if VIEWS[view].of == kind:
                    fit = fit.with_codebooks({view: _codebook(view, vectors, size, fit.seed)})
        encoded = fit.encoded()
        write_file(done, lambda file: file.write(encoded))
        return fit

    def _nothing(self, sample: Sequence[PhotoRef]) -> UserError:
        from daemon.describe.pictures import UnreadablePicture, decoded
        from daemon.describe.sources import read_photo

        try:
            decoded(read_photo(sample[0]))
        except UnreadablePicture as error:
            return _none_readable(sample[0].name, str(error))
        return UserError("the photos have no points of interest", "leave out sift and surf views", EX_DATAERR)

    def _sample(self) -> list[PhotoRef]:
        """Photos drawn by their ids, in their order."""
        if len(self._photos) <= self._settings.sample:
            return list(self._photos)
        drawn = [
            (sha256(f"{self._settings.seed} {one.id}".encode()).digest(), at)
            for at, one in enumerate(self._photos)
        ]
        return [self._photos[at] for at in sorted(at for _, at in sorted(drawn)[: self._settings.sample])]

    def _work(
        self,
        stage: str,
        fit: DescriberFit,
        photos: Sequence[PhotoRef],
        work: Work,
        quota: Mapping[str, int],
    ) -> list[PartFile]:
        """Have every piece done that is not done yet; the files of all, in the order of the photos."""
        path, encoded = self._folder / f"fit-for-{work}.safetensors", fit.encoded()
        write_file(path, lambda file: file.write(encoded))
        parts = [
            PartFile(self._folder / f"{work}-{at // CHUNK:07d}.npz", photos[at : at + CHUNK])
            for at in range(0, len(photos), CHUNK)
        ]
        missing = [part for part in parts if not part.path.exists()]
        done = len(photos) - sum(len(part.photos) for part in missing)
        self._tell(stage, done, len(photos))
        pieces = (PhotoChunk(work, part.photos, str(part.path), str(path), quota) for part in missing)
        workers = min(self._settings.workers, max(1, len(missing)))
        for piece, refused in done_by(workers, do_chunk, pieces):
            done += len(piece.photos)
            self._tell(stage, done, len(photos))
            if refused and self._settings.strict and work == "describe":
                part = next(one for one in parts if str(one.path) == piece.into)
                name, reason = part.read()[2][0]
                raise UserError(
                    f"{name}: {reason}", "repair it or take it out, or leave out --strict", EX_DATAERR
                )
        return parts

    def write(self, files: DescribedFiles, fit: DescriberFit) -> DescribeReport:
        """Describe every photo and write all files, the catalog last."""
        parts = self._work("describing", fit, self._photos, "describe", {})
        refused = [one for part in parts for one in part.read()[2]]
        if self._settings.strict and refused:
            raise UserError(f"{refused[0][0]}: {refused[0][1]}", "repair it or take it out", EX_DATAERR)
        self._tell("writing", 0, len(self._photos))
        sizes = {name: len(fit.codebooks[name]) for name in fit.views if VIEWS[name].of}
        weights: Mapping[str, Floats] = fit.weights
        objects = len(self._photos) - len(refused)
        if not objects:
            raise _none_readable(*refused[0])
        if self._settings.fitted is None:
            weights, _ = frequencies(parts, sizes)
            fit = replace(fit, weights=weights, objects=objects)
        space = SpaceSpec(DEFAULT_SPACE, tuple(_spec(name, sizes) for name in fit.views))
        totals = dict.fromkeys(sizes, 0.0)
        with CatalogWriter(self._folder, space) as writer:
            done = 0
            for part, entries in add_parts(writer, parts, fit.views, weights, _shown_beside(files.catalog)):
                done += len(part.photos)
                self._tell("writing", done, len(self._photos))
                for name, count in entries.items():
                    totals[name] += count
            encoded = fit.encoded()
            if self._settings.fitted is None:
                write_file(files.fitted, lambda file: file.write(encoded))
            if refused:
                text = "".join(f"{name}\t{' '.join(reason.split())}\n" for name, reason in refused)
                write_file(files.refused, lambda file: file.write(text.encode(errors="replace")))
            config = settings_text(files.catalog.name, space).encode()
            write_file(files.settings, lambda file: file.write(config))
            write_file(files.catalog, writer.write)
        return DescribeReport(files, objects, refused, {name: one / objects for name, one in totals.items()})


def _spec(name: str, sizes: Mapping[str, int]) -> ViewSpec:
    return ViewSpec(name, VIEWS[name].kind, sizes.get(name, VIEWS[name].dim))


def _vectors(parts: Sequence[PartFile], kind: str) -> np.ndarray[Any, Any] | None:
    """All that was sampled; None where there is nothing."""
    found = []
    for part in parts:
        with np.load(part.path, allow_pickle=False) as file:
            if kind in file.files:
                found.append(file[kind])
    return np.concatenate(found) if found and sum(map(len, found)) else None


def _codebook(name: str, vectors: np.ndarray[Any, Any], size: int, seed: int) -> Floats:
    try:
        return fit_codebook(vectors, size, seed)
    except TooFewVectors as error:
        remedy = "give fewer with --terms" if name == TERMS else "describe more photos, or leave the view out"
        raise UserError(f"{name}: {error}", remedy, EX_USAGE) from None


def _none_readable(name: str, reason: str) -> UserError:
    return UserError(f"no photo can be read; the first, {name}: {reason}", "", EX_DATAERR)


def _shown_beside(catalog: Path) -> Callable[[PhotoRef], Display]:
    """What people see of a photo: its name, the folders that it lies in as tags, and its path where it is a
    file below the catalog's folder, where the page of `serve` looks for pictures."""
    root = catalog.parent.resolve()

    def shown(photo: PhotoRef) -> Display:
        image = None
        if photo.offset < 0:
            place = Path(os.path.abspath(photo.file))
            image = place.relative_to(root).as_posix() if place.is_relative_to(root) else None
        tags = tuple(dict.fromkeys(part for part in photo.folders if part not in ("/", ".", "..")))
        return Display(title=photo.id, image=image, tags=tags)

    return shown

"""The photos of the demo: their descriptors, classes and thumbnails. They come with the source, in
deploy/demo_pack, and not with the installed package: they are ten times as large.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from daemon.exits import EX_UNAVAILABLE, UserError, not_installed
from streams.catalog import Catalog, load_catalog

FOLDER = "TRIPLETD_DEMO_PACK"
"""Environment variable: the folder of the photos, where it is not that of the source."""
PACK = Path(os.environ.get(FOLDER) or Path(__file__).parents[2] / "deploy" / "demo_pack" / "pack").resolve()
CATALOG = PACK / "catalog.safetensors"
LABELS = PACK / "labels.tsv"
THUMBNAILS = PACK / "thumbnails.safetensors"


@dataclass(frozen=True)
class Pack:
    """`catalog` and, in the same row order, each photo's class."""

    catalog: Catalog
    labels: npt.NDArray[np.str_]


def require_pack() -> None:
    """Raises UserError where the photos are not there, or nothing to draw them with."""
    if not CATALOG.is_file():
        raise UserError(
            f"the photos of the demo are not in {PACK}: they come with the source, not with the package",
            f"run it in a checkout of the source (make demo), or set {FOLDER} to its deploy/demo_pack/pack",
            EX_UNAVAILABLE,
        )
    try:
        # Pillow first: matplotlib imports it, and an import of matplotlib that fails
        # half-way leaves submodules behind with which no later import works.
        import PIL  # noqa: F401  # isort: skip
        import matplotlib  # noqa: F401  # isort: skip
    except ImportError as error:
        raise not_installed("the demo", "demo", error) from None


def load_pack() -> Pack:
    """Read descriptors and classes of the shipped photos (about 20 MB in memory)."""
    catalog = load_catalog(CATALOG)
    label_of = dict(line.split("\t") for line in LABELS.read_text(encoding="utf-8").splitlines())
    return Pack(catalog, np.array([label_of[object_id] for object_id in catalog.ids]))


def load_thumbnails() -> list[bytes]:
    """JPEG bytes of every photo, in the catalog's row order."""
    with safe_open(THUMBNAILS, framework="numpy") as file:
        jpeg, offsets = file.get_tensor("jpeg"), file.get_tensor("offsets")
    return [jpeg[begin:end].tobytes() for begin, end in pairwise(offsets.tolist())]

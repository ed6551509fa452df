"""The photos the demo ships: their descriptors, classes and thumbnails."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from streams.catalog import Catalog, load_catalog

PACK = Path(__file__).with_name("pack")
CATALOG = PACK / "catalog.safetensors"
LABELS = PACK / "labels.tsv"
THUMBNAILS = PACK / "thumbnails.safetensors"


@dataclass(frozen=True)
class Pack:
    """`catalog` and, in the same row order, each photo's class."""

    catalog: Catalog
    labels: npt.NDArray[np.str_]


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

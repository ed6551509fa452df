"""Catalogs as files, for tests that start from one."""

from __future__ import annotations

from pathlib import Path

from streams.catalog import Catalog
from streams.objects.catalog_file import CatalogWriter
from streams.objects.rows import ObjectRows


def save_catalog(catalog: Catalog, path: str | Path, *, half: bool = False) -> None:
    """Write a catalog as `.safetensors`; `half` stores values as float16, which rounds them."""
    shown = None if catalog.shown is None else [catalog.shown[row] for row in range(len(catalog))]
    place = Path(path)
    with CatalogWriter(place.parent, catalog.space, half=half) as writer:
        writer.add(ObjectRows(catalog.ids, catalog.views, shown, lambda row: f"object {row}"))
        with place.open("wb") as file:
            writer.write(file)

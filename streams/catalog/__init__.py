"""The catalog of objects' features: an immutable snapshot, and its files."""

from streams.catalog.files import load_catalog, save_catalog
from streams.catalog.snapshot import Catalog, CatalogError

__all__ = ["Catalog", "CatalogError", "load_catalog", "save_catalog"]

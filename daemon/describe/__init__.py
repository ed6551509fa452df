"""Raw photos and texts as a catalog: `tripletd describe` as functions.

found = described_photos("photos/", views=["terms", "nine"], terms=1000)
found.catalog.views["terms"], found.catalog.ids, found.refused
described_texts("products.csv").catalog.views["text"]
"""

from daemon.describe.in_memory import DescribedObjects, described_photos, described_texts

__all__ = ["DescribedObjects", "described_photos", "described_texts"]

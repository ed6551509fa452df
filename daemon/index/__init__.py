"""The vector store that people already have: asked with a vector that was made of the learned form.

One adapter per store behind one protocol. None of them holds a model, knows HTTP of ours or a catalog.
"""

from daemon.index.open import open_index
from daemon.index.protocol import IndexHit, StoreAway, StoreError, StoreMalformed, StoreRefused, VectorIndex

__all__ = ["IndexHit", "StoreAway", "StoreError", "StoreMalformed", "StoreRefused", "VectorIndex"]
__all__ += ["open_index"]

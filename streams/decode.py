"""The fast decoder: a batch of records to flat arrays."""

from __future__ import annotations

from streams.decoded import DecodedBatch
from streams.plain import PlainDecoder as BatchDecoder

__all__ = ["BatchDecoder", "DecodedBatch"]

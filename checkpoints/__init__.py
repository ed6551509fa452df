"""Numbered, immutable, verified checkpoints of a learner, the ledger of verdicts, and their aliases."""

from checkpoints.aliases import aliases, resolve
from checkpoints.errors import (
    BadKey,
    CheckpointError,
    Damaged,
    FutureFormat,
    KeyExists,
    KeyMissing,
    Superseded,
    WriteFailed,
)
from checkpoints.ledger import Ledger, LedgerEntry
from checkpoints.manifest import ArraySpec, FileEntry, Manifest, PartitionPosition, VersionMeta
from checkpoints.publisher import AsyncPublisher, Failed, Published
from checkpoints.store import BlobStore, PutResult
from checkpoints.versions import Epoch, Version, VersionStore

__all__ = [
    "ArraySpec", "AsyncPublisher", "BadKey", "BlobStore", "CheckpointError", "Damaged", "Epoch", "Failed",
    "FileEntry", "FutureFormat", "KeyExists", "KeyMissing", "Ledger", "LedgerEntry", "Manifest",
    "PartitionPosition", "Published", "PutResult", "Superseded", "Version", "VersionMeta", "VersionStore",
    "WriteFailed", "aliases", "resolve",
]

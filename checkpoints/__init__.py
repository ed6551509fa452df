"""Numbered, immutable, verified checkpoints of a learner, the ledger of verdicts, and their aliases."""

from checkpoints.commit import Epoch, new_line
from checkpoints.encoding import array_digest, state_hash
from checkpoints.entries import (
    BEST,
    LATEST,
    PAUSE,
    STABLE,
    LedgerEntry,
    Meaning,
    aliases,
    is_pause,
    meaning,
    names,
    pause_in_force,
    protected,
    resolve,
    stop_in_force,
)
from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.manifest import ArraySpec, FileEntry, Manifest, PartitionPosition, VersionMeta
from checkpoints.object_files import fetch_files
from checkpoints.object_store import ObjectSettings, ObjectStore, open_object_store
from checkpoints.pruned import fold_history, history
from checkpoints.publisher import AsyncPublisher, Failed, Published
from checkpoints.retention import fold, plan, prune
from checkpoints.store import (
    BadKey,
    BlobStore,
    CheckpointError,
    Damaged,
    FutureFormat,
    KeyExists,
    KeyMissing,
    MemoryStore,
    PutResult,
    Superseded,
    Unreachable,
    WriteFailed,
)
from checkpoints.versions import Version, VersionStore

__all__ = [
    "BEST",
    "LATEST",
    "PAUSE",
    "STABLE",
    "ArraySpec",
    "AsyncPublisher",
    "BadKey",
    "BlobStore",
    "CheckpointError",
    "Damaged",
    "Epoch",
    "Failed",
    "FileEntry",
    "FutureFormat",
    "KeyExists",
    "KeyMissing",
    "Ledger",
    "LedgerEntry",
    "LocalStore",
    "Manifest",
    "Meaning",
    "MemoryStore",
    "ObjectSettings",
    "ObjectStore",
    "PartitionPosition",
    "Published",
    "PutResult",
    "Superseded",
    "Unreachable",
    "Version",
    "VersionMeta",
    "VersionStore",
    "WriteFailed",
    "aliases",
    "array_digest",
    "fetch_files",
    "fold",
    "fold_history",
    "history",
    "is_pause",
    "meaning",
    "names",
    "new_line",
    "open_object_store",
    "pause_in_force",
    "plan",
    "protected",
    "prune",
    "resolve",
    "state_hash",
    "stop_in_force",
]

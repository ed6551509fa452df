"""Mutations of `checkpoints`: claims and commits, what is fsynced before what, files, ledger, names, retention."""

# fmt: off
# ruff: noqa: E501  (one mutation, one line)

from __future__ import annotations

from tests.mutations.mutation import Mutation
from tests.mutations.mutation import mutation as made

VERSIONS = "checkpoints/test_versions.py checkpoints/test_publisher.py"
DURABLE = "checkpoints/test_durability.py"
ENCODING = "checkpoints/test_encoding.py checkpoints/test_golden.py"
FOLD = "checkpoints/test_fold.py checkpoints/test_history_fold.py"
LEDGER = "checkpoints/test_ledger.py checkpoints/test_ledger_damage.py"
ALIASES = "checkpoints/test_aliases.py"
RETENTION = "checkpoints/test_retention.py"
LOCAL = "checkpoints/test_local.py"
FOLDER = "checkpoints/test_folder.py"


def _m(name: str, mark: str, old: str, new: str, tests: str, *more: tuple[str, str, str]) -> Mutation:
    return made(f"checkpoints.{name}", "checkpoints", mark, old, new, tests, *more)


WRITING = (
    _m("claim.same-number", "def claim(store", "number = max(taken[-1], number) + 1", "number = max(taken[-1], number)", VERSIONS),
    _m("claim.orphans-stay", "def claim(store", "_sweep_orphans(store, number)", "pass", f"{VERSIONS} {LOCAL} {DURABLE}"),
    _m("claim.sweeps-the-living", "def _sweep_orphans(", "if gone or all(", "if gone or any(", f"{VERSIONS} {LOCAL} {DURABLE}"),
    _m("commit.number-stays", "def commit(store", "epoch.next_number += 1", "epoch.next_number += 2", VERSIONS),
    _m("commit.other-writer-passes", "def check_writer(", "if number >= after and not _is_own(", "if number > after and not _is_own(", VERSIONS + " daemon/learn/test_fence.py checkpoints/test_retention.py"),
    _m("commit.own-is-strange", "def _is_own(", ".writer == epoch.writer", ".writer != epoch.writer", VERSIONS),
    _m("commit.takes-strange-number", "def next_state_key(", "or not _is_own(store, epoch.next_number, epoch):", ":", VERSIONS),
    _m("staging.no-fsync-of-file", "digest = sha256 or self._hash(on_chunk)", "self._fs.files.fsync(self._fd)", "pass", DURABLE),
    _m("staging.no-sync-of-folders", "digest = sha256 or self._hash(on_chunk)", "self._fs.folders.sync(folder)", "pass", DURABLE),
    _m("staging.link-before-fsync", "digest = sha256 or self._hash(on_chunk)", "if durable:\n                self._fs.files.fsync(self._fd)\n            for folder in parents[1:]:\n                self._fs.folders.make(folder)\n            self._fs.folders.link(self._temp, target)", "for folder in parents[1:]:\n                self._fs.folders.make(folder)\n            self._fs.folders.link(self._temp, target)\n            if durable:\n                self._fs.files.fsync(self._fd)", DURABLE),
    _m("staging.temp-stays", "digest = sha256 or self._hash(on_chunk)", "finally:\n            self.abort()", "finally:\n            pass", f"{DURABLE} {LOCAL}"),
    _m("staging.hash-skips", "def _hash(self", "digest.update(buffer[:got])", "digest.update(buffer[: got - 1])", f"{ENCODING} {VERSIONS}"),
)

READING = (
    _m("arrays.hash-not-compared", "def read_arrays(", "if digest.hexdigest() != sha256:", "if False:", "checkpoints"),
    _m("arrays.longer-passes", "def read_arrays(", "if stream.read(1):", "if False:", "checkpoints"),
    _m("arrays.gap-passes", "entries = sorted(parsed", "if begin != at:", "if begin < at:", "checkpoints"),
    _m("arrays.offsets", "def _parse_entry(", "offsets[1] - offsets[0] == math.prod(shape)", "offsets[1] - offsets[0] >= 0 * math.prod(shape)", "checkpoints"),
    _m("arrays.order-of-names", "def encode(arrays", "(-arrays[name].dtype.itemsize, name)", "(arrays[name].dtype.itemsize, name)", ENCODING),
    _m("arrays.alignment", "header[name] =", "-(len(text) + 8) % ALIGN", "-len(text) % ALIGN", ENCODING),
    _m("arrays.hash-of-state", "def state_hash(", "digest.update(part)", "digest.update(bytes(part)[:64])", f"{ENCODING} {VERSIONS}"),
)

LEDGER_AND_NAMES = (
    _m("ledger.first-number", "def append(self, entry: dict[str, Any]", "self.last() + 1 if after is None", "self.last() + 2 if after is None", LEDGER),
    _m("ledger.after-is-ignored", "def append(self, entry: dict[str, Any]", "if after is not None:\n                    raise", "if after is None:\n                    raise", LEDGER),
    _m("ledger.gap-unseen", "def _walk(self", "if number > wanted:", "if number > wanted + 1:", LEDGER),
    _m("ledger.other-number", "def _read(self, number", "if entry.n != number:", "if False:", LEDGER),
    _m("ledger.after-included", "def _after(self", "bisect_right(self._all, after,", "bisect_right(self._all, after - 1,", LEDGER),
    _m("fold.newest-too", "through = end - leave", "through = end - leave", "through = end - leave + 1", FOLD),
    _m("fold.over-damage", "def complete(self)", "number - 1 for number, read in walked if isinstance(read, Damaged)", "number for number, read in walked if isinstance(read, Damaged)", FOLD),
    _m("fold.stale-writer", "def _put(self, wanted", "raise KeyExists(key", "return None\n        raise KeyExists(key", FOLD),
    _m("fold.snapshot-unread", "def fold(", "_clear(store, base)", "_clear(store, through)", FOLD),
    _m("history.fold-joins-nothing", "def _joined(", "[*gone[\"schedule\"], *heir[\"schedule\"]]", "[*heir[\"schedule\"]]", FOLD),
    _m("ledger.told-twice", "def _tell(self", "self._reported.add(what)", "pass", LEDGER),
    _m("names.first-move-wins", "def moves(entries", "found[entry.alias] = entry", "found.setdefault(entry.alias, entry)", ALIASES),
    _m("names.stable-without-best", "def meaning(", "entry, through = moved.get(BEST), BEST", "entry, through = None, BEST", ALIASES),
    _m("names.latest-is-first", "def meaning(", "max(versions, default=None)", "min(versions, default=None)", ALIASES),
    _m("names.doubts", "def meaning(", "n > own.n", "n < own.n", f"{ALIASES} {LEDGER} daemon/models"),
    _m("names.missing-version", "def meaning(", "target if target in versions else None", "target", f"{ALIASES} daemon/models/test_decide.py"),
    _m("names.back-two", "def before(name", "reversed(stack[:-1])", "reversed(stack[:-2])", f"{ALIASES} daemon/models"),
    _m("names.rollback-forgets", "def _move(stack", "stack.pop()", "break", f"{ALIASES} daemon/models"),
    _m("names.step-back-unprotected", "def protected(", "(*steps_back, *(", "(*(), *(", ALIASES + " " + RETENTION),
    _m("halt.resume-does-nothing", "def _standing(entries", "entry if entry.kind == STOP else None", "entry if entry.kind == STOP else found", ALIASES + " daemon/learn/test_halts.py daemon/learn/test_pause.py"),
    _m("halt.pause-is-stop", "def stop_in_force(", "if not is_pause(entry)", "if True", ALIASES + " daemon/learn/test_halts.py daemon/learn/test_pause.py"),
)

KEEPING = (
    _m("keep.one-fewer", "def plan(versions", "ordered[-max(keep, KEEP_AT_LEAST) :]", "ordered[-max(keep - 1, KEEP_AT_LEAST) :]", RETENTION + " daemon/models/test_gc.py"),
    _m("keep.least", "", "KEEP_AT_LEAST = 2", "KEEP_AT_LEAST = 1", RETENTION),
    _m("keep.version-0-goes", "def plan(versions", "{0, *protected,", "{*protected,", RETENTION),
    _m("keep.claims", "def plan_claims(", "[:-KEEP_CLAIMS]", "[: -KEEP_CLAIMS - 1]", RETENTION),
    _m("keep.not-fenced", "add_line(store, _history_line", "fence()", "pass", RETENTION),
    _m("keep.no-history", "for number in plan(versions, protected()", "add_line(store, _history_line(version_store, number))", "pass", RETENTION),
    _m("keep.named-meanwhile", "for number in plan(versions, protected()", "if number not in protected() and _delete_unnamed(", "if _delete_unnamed(", RETENTION),
    _m("publisher.second-in-flight", "def begin(self", "return False", "return True", "checkpoints/test_publisher.py daemon/learn/test_publishing.py"),
)

LOST_FOLDER = (
    _m("folder.gone-unseen", "def look(self, versions: Sequence[int]", "if is_away(self._versions.store):", "if False:", FOLDER + " daemon/replica/test_replaced_folder.py"),
    _m("folder.pruned-is-lost", "def look(self, versions: Sequence[int]", "and newest < mine.number", "", FOLDER),
    _m("folder.replaced-unseen", "def look(self, versions: Sequence[int]", "there.to_json() != mine.to_json()", "False", FOLDER),
    _m("folder.line-unseen", "def works_with(", "self.losses[LACKS] += 1", "pass", FOLDER),
    _m("folder.counted-twice", "def works_with(", "and not self._lacked_mine", "", FOLDER + " daemon/replica/test_replaced_folder.py"),
    _m("folder.counts-every-look", "def _stands(self, how", "if how and not self.how:", "if how:", FOLDER),
)

MUTATIONS = (*WRITING, *READING, *LEDGER_AND_NAMES, *KEEPING, *LOST_FOLDER)

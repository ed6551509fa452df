"""Reading a checkpoint folder: what can be read is there, the rest is told, what was pruned is neither."""

from __future__ import annotations

from pathlib import Path

from checkpoints import Ledger, LocalStore, VersionStore
from daemon.look.overview import Readable, read_all
from tests.checkpoints.samples import meta, state


def two_versions(root: Path) -> VersionStore:
    versions = VersionStore(LocalStore(root))
    epoch = versions.claim()
    versions.publish(epoch, state(0), meta())
    versions.publish(epoch, state(1), meta(parent=0))
    versions.claim()
    return versions


def newest_manifest(root: Path) -> Path:
    return root / "versions" / "0000000001" / "manifest.json"


def numbers(found: Readable) -> list[int]:
    return [one.number for one in found.manifests]


def test_the_readable_manifests_are_there_and_the_others_told(tmp_path: Path) -> None:
    versions = two_versions(tmp_path)
    found = read_all(versions, Ledger(versions.store))
    assert (numbers(found), found.newest, found.damaged, found.notes) == ([0, 1], 1, {}, [])
    newest_manifest(tmp_path).write_bytes(b"torn")
    found = read_all(versions, Ledger(versions.store))
    assert (numbers(found), found.newest, list(found.damaged)) == ([0], 1, [1])
    assert found.notes == [found.damaged[1]]
    assert "versions/0000000001/manifest.json" in found.notes[0]


def test_a_version_pruned_meanwhile_is_no_problem(tmp_path: Path) -> None:
    versions = two_versions(tmp_path)
    read = versions.manifests
    pruned = newest_manifest(tmp_path)
    versions.manifests = lambda numbers: (pruned.unlink(missing_ok=True), read(numbers))[1]  # type: ignore[method-assign]
    found = read_all(versions, Ledger(versions.store))
    assert (numbers(found), found.damaged, found.notes) == ([0], {}, [])


def test_an_entry_of_the_ledger_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    versions = two_versions(tmp_path)
    ledger = Ledger(versions.store)
    for number in (0, 1):
        ledger.append({"kind": "PROMOTE", "version": number, "alias": "best"})
    torn = min((tmp_path / "ledger").iterdir())
    torn.unlink()
    torn.write_bytes(b"torn")
    found = read_all(versions, ledger)
    assert [entry.version for entry in found.entries] == [1]
    assert [torn.name in note for note in found.notes] == [True]

"""Listing manifests: the readable ones are there, the others are told, pruned ones are neither."""

from __future__ import annotations

from pathlib import Path

from checkpoints import LocalStore, VersionStore

from .samples import meta, state


def two_versions(root: Path) -> VersionStore:
    versions = VersionStore(LocalStore(root))
    epoch = versions.claim()
    versions.publish(epoch, state(0), meta())
    versions.publish(epoch, state(1), meta(parent=0))
    return versions


def manifest_file(root: Path) -> Path:
    return root / "versions" / "0000000001" / "manifest.json"


def test_the_readable_manifests_are_listed_and_the_others_told(tmp_path: Path) -> None:
    versions, told = two_versions(tmp_path), []
    versions.claim()
    assert [one.number for one in versions.manifests()] == [0, 1]
    manifest_file(tmp_path).write_bytes(b"torn")
    assert [one.number for one in versions.manifests(told.append)] == [0]
    assert [error.kind for error in told] == ["truncated"]
    assert [one.number for one in versions.manifests()] == [0]


def test_a_version_pruned_while_manifests_are_listed_is_no_problem(tmp_path: Path) -> None:
    versions, told = two_versions(tmp_path), []
    read = versions.manifest
    versions.manifest = lambda number: (manifest_file(tmp_path).unlink(missing_ok=True), read(number))[1]  # type: ignore[method-assign]
    assert [one.number for one in versions.manifests(told.append)] == [0]
    assert told == []

"""No altered, torn, swapped or foreign file is ever loaded; the previous good version is."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from checkpoints import CheckpointError, Damaged, FileEntry, FutureFormat, LocalStore, VersionStore, prune
from checkpoints.encoding import encode
from checkpoints.manifest import seal, unseal

from .samples import meta, same, state


@pytest.fixture
def root(tmp_path: Path) -> Path:
    versions = VersionStore(LocalStore(tmp_path))
    epoch = versions.claim()
    versions.publish(epoch, state(0), meta())
    versions.publish(epoch, state(1), meta(parent=0))
    return tmp_path


def files(root: Path, number: int = 1) -> tuple[Path, Path]:
    folder = root / "versions" / f"{number:010d}"
    return folder / "manifest.json", next(folder.glob("state-*"))


def refused(root: Path) -> Damaged:
    """The error for version 1, after checking that version 0 is used instead and the error reported."""
    versions = VersionStore(LocalStore(root))
    with pytest.raises(Damaged) as caught:
        versions.load(1)
    reports: list[CheckpointError] = []
    newest = versions.newest_valid(reports.append)
    assert newest is not None
    assert newest.manifest.number == 0
    assert same(newest.arrays, state(0))
    assert [str(report) for report in reports] == [str(caught.value)]
    assert "versions/0000000001" in str(caught.value)
    return caught.value


def test_the_newest_manifest_is_the_newest_that_can_be_read(root: Path) -> None:
    versions = VersionStore(LocalStore(root))
    for number, expected in ((1, 1), (0, 0)):
        newest = versions.newest_manifest()
        assert newest is not None
        assert newest.number == expected
        files(root, number)[0].write_bytes(b"{}")
    assert versions.newest_manifest() is None


@pytest.mark.parametrize("which", [0, 1], ids=["manifest", "state"])
def test_every_truncation_length_is_refused(root: Path, which: int) -> None:
    path = files(root)[which]
    whole = path.read_bytes()
    versions = VersionStore(LocalStore(root))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(Damaged):
            versions.load(1)
        if length % 100 == 0:
            refused(root)
    path.write_bytes(whole + b" ")
    refused(root)
    path.write_bytes(whole)
    assert same(VersionStore(LocalStore(root)).load(1).arrays, state(1))


@pytest.mark.parametrize("which", [0, 1], ids=["manifest", "state"])
def test_every_single_byte_flip_is_refused(root: Path, which: int) -> None:
    path = files(root)[which]
    whole = bytearray(path.read_bytes())
    versions = VersionStore(LocalStore(root))
    for at in range(len(whole)):
        whole[at] ^= 1 << (at % 8)
        path.write_bytes(whole)
        with pytest.raises(Damaged):
            versions.load(1)
        if at % 100 == 0:
            refused(root)
        whole[at] ^= 1 << (at % 8)


def test_sampled_truncations_of_a_larger_state_are_refused(tmp_path: Path) -> None:
    versions = VersionStore(LocalStore(tmp_path))
    epoch = versions.claim()
    versions.publish(epoch, state(0), meta())
    versions.publish(epoch, state(1, dim=1500), meta(parent=0))
    path = files(tmp_path)[1]
    for length in sorted(np.random.default_rng(0).integers(0, path.stat().st_size, 10), reverse=True):
        os.truncate(path, length)
        assert refused(tmp_path).kind == "truncated"


def test_swapped_files_are_refused(root: Path) -> None:
    manifests, states = zip(files(root, 0), files(root, 1), strict=True)
    spare = states[0].read_bytes()
    states[0].write_bytes(states[1].read_bytes())
    with pytest.raises(Damaged, match="sha256"):
        VersionStore(LocalStore(root)).load(0)
    states[0].write_bytes(spare)
    manifests[1].write_bytes(manifests[0].read_bytes())
    assert "says it is version 0" in str(refused(root))


def test_a_missing_state_file_is_refused(root: Path) -> None:
    files(root)[1].unlink()
    assert refused(root).kind == "missing"


def test_an_empty_folder_and_one_without_a_manifest_are_no_versions(root: Path) -> None:
    (root / "versions" / "0000000007").mkdir()
    files(root)[0].unlink()
    versions = VersionStore(LocalStore(root))
    assert versions.versions() == [0]
    newest = versions.newest_valid()
    assert newest is not None
    assert newest.manifest.number == 0


@pytest.mark.parametrize("kind", ["file", "symlink", "dangling"])
def test_a_folder_that_is_no_folder_any_more_is_passed_over_and_told(root: Path, kind: str) -> None:
    folder = root / "versions" / "0000000001"
    shutil.move(folder, root / "elsewhere")
    if kind == "file":
        folder.write_bytes(b"not a folder")
    else:
        folder.symlink_to(root / ("elsewhere" if kind == "symlink" else "nowhere"))
    refused(root)
    versions, told = VersionStore(LocalStore(root)), []
    assert versions.versions() == [0]
    newest = versions.newest_valid(told.append)
    assert newest is not None
    assert newest.manifest.number == 0
    assert [str(error) for error in told] == [str(refused(root))]
    assert prune(versions, list, 2, lambda: None) == []
    epoch = versions.claim()
    assert versions.publish(epoch, state(2), meta(parent=0)).number == 3
    assert versions.versions() == [0, 3]
    assert folder.is_symlink() == (kind != "file")


@pytest.mark.parametrize("kind", ["symlink", "fifo", "folder"])
@pytest.mark.parametrize("which", [0, 1], ids=["manifest", "state"])
def test_what_is_no_regular_file_is_refused(root: Path, which: int, kind: str) -> None:
    path = files(root)[which]
    moved = root / "elsewhere"
    shutil.move(path, moved)
    if kind == "symlink":
        path.symlink_to(moved)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    if kind == "folder" and which == 0:
        assert VersionStore(LocalStore(root)).versions() == [0]
    else:
        refused(root)


def rewrite(root: Path, **changes: object) -> None:
    """Manifest 1 with other fields and a correct seal: what a wrong writer, not a bad disk, leaves."""
    path = files(root)[0]
    path.write_bytes(seal(unseal(path.read_bytes(), "test") | changes))


def test_a_future_manifest_format_is_refused_by_name(root: Path) -> None:
    rewrite(root, format=4)
    error = refused(root)
    assert isinstance(error, FutureFormat)
    assert "format 4" in str(error)
    assert "upgrade" in str(error)


def restate(root: Path, data: bytes) -> None:
    """Other bytes as state file of version 1, with a manifest that vouches for them."""
    path = files(root)[1]
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    rewrite(root, files=[{"name": path.name, "size": len(data), "sha256": digest}], state_hash=digest)


def test_a_future_array_format_is_refused_by_name(root: Path) -> None:
    restate(root, files(root)[1].read_bytes().replace(b"tripletd.arrays/1", b"tripletd.arrays/2"))
    assert isinstance(refused(root), FutureFormat)


@pytest.mark.parametrize(
    "change",
    [
        {"W": np.zeros((4, 5), np.float32)},
        {"W": np.zeros((4, 4), np.float64)},
        {"V": np.zeros(1, np.float32)},
    ],
)
def test_other_shapes_dtypes_or_names_than_stated_are_refused(
    root: Path, change: dict[str, np.ndarray]
) -> None:
    restate(root, b"".join(encode(state(1) | change).parts()))
    assert "names, dtypes and shapes" in str(refused(root))


def test_a_state_hash_that_is_not_the_state_s_is_refused(root: Path) -> None:
    rewrite(root, state_hash="0" * 64)
    assert "state_hash" in str(refused(root))


def test_a_claim_in_the_place_of_a_version_and_extra_files_are_refused(root: Path) -> None:
    manifest = VersionStore(LocalStore(root)).manifest(1)
    rewrite(root, files=[{"name": f.name, "size": f.size, "sha256": f.sha256} for f in manifest.files * 2])
    assert "2 files" in str(refused(root))
    assert manifest.files == (
        FileEntry(manifest.files[0].name, files(root)[1].stat().st_size, manifest.state_hash),
    )
    rewrite(root, files=[], kind="claim")
    with pytest.raises(Damaged, match="claim"):
        VersionStore(LocalStore(root)).load(1)


def test_damaged_derived_files_are_refused(root: Path) -> None:
    versions = VersionStore(LocalStore(root))
    versions.attach(1, "serving", state(3), {})
    folder = root / "versions" / "0000000001"
    data, record = next(folder.glob("serving-*")), folder / "serving.json"
    for path in (data, record):
        whole = bytearray(path.read_bytes())
        for at in range(0, len(whole), 7):
            whole[at] ^= 4
            path.write_bytes(whole)
            with pytest.raises(Damaged):
                versions.attached(1, "serving")
            whole[at] ^= 4
        path.write_bytes(whole)
    shutil.copy(record, root / "versions" / "0000000000" / "serving.json")
    with pytest.raises(Damaged, match="another version"):
        versions.attached(0, "serving")
    data.unlink()
    with pytest.raises(Damaged, match="not there"):
        versions.attached(1, "serving")

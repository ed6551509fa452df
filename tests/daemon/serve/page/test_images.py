"""Whoever writes an item record chooses a path: nothing but pictures below the folder is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.serve.page.objects import MOST_BYTES, ImageFolder, kind_of
from tests.daemon.serve.page.scene import picture

JPEG = picture((1, 2, 3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    (inside / "photos").mkdir(parents=True)
    (inside / "photos" / "a.jpg").write_bytes(JPEG)
    (tmp_path / "secret.jpg").write_bytes(JPEG)
    return inside


@pytest.mark.parametrize("path", ["photos/a.jpg", "./photos/../photos/a.jpg"])
def test_a_picture_below_the_folder_is_read(folder: Path, path: str) -> None:
    assert ImageFolder(folder).read(path) == JPEG
    assert ImageFolder(folder).read(str(folder / "photos" / "a.jpg")) == JPEG


@pytest.mark.parametrize(
    "path",
    [
        "../secret.jpg",
        "photos/../../secret.jpg",
        "/etc/passwd",
        "photos",
        "",
        ".",
        "none.jpg",
        "photos/a.jpg\0.png",
        "https://example.org/a.jpg",
        "photos/a.jpg/more",
        "x" * 5000,
        "\udcff.jpg",
    ],
)
def test_any_other_path_is_as_if_there_were_nothing(folder: Path, path: str) -> None:
    assert ImageFolder(folder).read(path) is None


def test_links_that_lead_outside_are_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    (folder / "out").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    assert ImageFolder(folder).read("link.jpg") is None
    assert ImageFolder(folder).read("out/secret.jpg") is None
    assert ImageFolder(folder).read("loop") is None


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.jpg")
    assert ImageFolder(folder).read("pipe.jpg") is None


def test_only_pictures_of_a_bounded_size_are_given(folder: Path) -> None:
    (folder / "page.jpg").write_bytes(b"<svg onload='alert(1)'>")
    (folder / "large.jpg").write_bytes(JPEG + b"\0" * MOST_BYTES)
    assert ImageFolder(folder).read("page.jpg") is None
    assert ImageFolder(folder).read("large.jpg") is None


def test_the_type_is_told_by_the_bytes() -> None:
    assert kind_of(JPEG) == "image/jpeg"
    assert kind_of(b"\x89PNG\r\n\x1a\n...") == "image/png"
    assert kind_of(b"RIFF....WEBPVP8 ") == "image/webp"
    assert kind_of(b"GIF89a") == "image/gif"
    assert kind_of(b"<html>") is None
    assert kind_of(b"") is None

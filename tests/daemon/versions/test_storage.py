"""Addresses of versions: a folder, `file://`, and what has no store; reading makes no folder."""

from __future__ import annotations

import pytest

from daemon.config import load_config
from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError
from daemon.versions import storage
from daemon.versions.storage import open_existing, open_for_reading, open_store
from tests.checkpoints.samples import meta, state


def test_a_path_and_its_file_address_are_one_place(tmp_path):
    versions = open_store(tmp_path).versions
    number = versions.publish(versions.claim(), state(1), meta()).number
    assert open_store(f"file://{tmp_path}").versions.versions() == [number]
    open_store(f"file://{tmp_path}").ledger.append({"kind": "STOP", "by": "somebody", "reason": "why"})
    assert [entry.kind for entry in open_store(tmp_path).ledger.entries()] == ["STOP"]


def test_a_scheme_without_a_store_is_refused_with_those_that_have_one():
    with pytest.raises(UserError, match="ftp://") as caught:
        open_store("ftp://bucket/clicks")
    assert (caught.value.code, "file://" in caught.value.remedy) == (EX_CONFIG, True)


def test_a_store_is_added_by_naming_it(monkeypatch, tmp_path):
    opened = storage.STORES["file"](str(tmp_path))
    monkeypatch.setattr(storage, "STORES", {"toy": lambda place: opened if place == "here" else None})
    config = load_config(None, {"checkpoints.path": "toy://here"}, {})
    versions, _ = open_for_reading(config)
    assert versions.store is opened


def test_reading_makes_no_folder_and_says_what_follows(tmp_path):
    with pytest.raises(UserError, match="no such folder, so there is nothing") as caught:
        open_existing(tmp_path / "none", ", so there is nothing", "make it")
    assert (caught.value.code, caught.value.remedy) == (EX_UNAVAILABLE, "make it")
    assert not (tmp_path / "none").exists()

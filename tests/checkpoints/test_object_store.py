"""A bucket as a store, on a real server of S3's protocol, through a proxy that does what networks do."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    BadKey,
    Damaged,
    KeyExists,
    KeyMissing,
    Ledger,
    ObjectStore,
    Superseded,
    Unreachable,
    VersionMeta,
    VersionStore,
    WriteFailed,
    open_object_store,
)
from checkpoints.commit import check_next, check_writer
from checkpoints.object_store import PART_BYTES, ObjectSettings
from checkpoints.store import HISTORY, folder, ledger_key, manifest_key
from tests.harness.s3_faults import BROKEN, CONFLICT, EXPIRED, REFUSED, SLOW_DOWN, Asked, Fault, S3Proxy
from tests.harness.s3_server import BUCKET, KEY, KEYS, SECRET, S3Server

STATE = f"{folder(0)}state-0-0123abcd.safetensors"
ARRAYS = {"W": np.arange(12, dtype=np.float32).reshape(3, 4)}


@pytest.fixture
def through(s3: S3Server, proxy: S3Proxy, prefix: str) -> ObjectStore:
    """A store behind the proxy, patient: an answer that is only late would be asked for again."""
    return s3.store(prefix, proxy.url, timeout_s=60.0)


@pytest.fixture
def beside(s3: S3Server, prefix: str) -> ObjectStore:
    """The same place, without the proxy."""
    return s3.store(prefix)


def creates(asked: Asked) -> bool:
    return asked.method == "PUT" and asked.creates


def is_manifest(asked: Asked) -> bool:
    return creates(asked) and asked.path.endswith("manifest.json")


class TestOfCreating:
    """A put that only creates happens once, whatever answers are lost."""

    def test_its_own_write_after_a_lost_answer_is_a_success(
        self, through: ObjectStore, proxy: S3Proxy
    ) -> None:
        lost = proxy.add(Fault(creates, after=True))
        through.put_new("k", [b"mine"])
        assert lost.struck == 1
        assert through.get("k") == b"mine"

    def test_what_another_wrote_meanwhile_is_not_taken_for_ones_own(
        self, through: ObjectStore, beside: ObjectStore, proxy: S3Proxy
    ) -> None:
        beside.put_new("k", [b"theirs"])
        proxy.add(Fault(creates, answer=BROKEN, times=1))
        with pytest.raises(KeyExists):
            through.put_new("k", [b"mine"])
        assert beside.get("k") == b"theirs"

    def test_a_conflict_with_nothing_there_is_tried_again(self, through: ObjectStore, proxy: S3Proxy) -> None:
        conflict = proxy.add(Fault(creates, times=3, answer=CONFLICT))
        through.put_new("k", [b"mine"])
        assert conflict.struck == 3
        assert through.get("k") == b"mine"

    def test_a_conflict_although_it_was_written_is_a_success(
        self, through: ObjectStore, proxy: S3Proxy
    ) -> None:
        conflict = proxy.add(Fault(creates, times=1, answer=CONFLICT, after=True))
        through.put_new("k", [b"mine"])
        assert conflict.struck == 1

    @pytest.mark.parametrize("answer", [BROKEN, SLOW_DOWN])
    def test_a_server_that_fails_in_passing_is_asked_again(
        self, through: ObjectStore, proxy: S3Proxy, answer: tuple[int, str]
    ) -> None:
        broken = proxy.add(Fault(lambda asked: True, times=3, answer=answer))
        through.put_new("k", [b"mine"])
        assert through.get("k") == b"mine"
        assert broken.struck == 3

    def test_a_server_that_stays_broken_is_told_with_place_and_remedy(
        self, through: ObjectStore, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("checkpoints.object_store.TRIES", 3)
        proxy.add(Fault(lambda asked: True, times=10**6, answer=CONFLICT))
        with pytest.raises(WriteFailed, match="ConditionalRequestConflict") as told:
            through.put_new("k", [b"mine"])
        assert told.value.place == f"{through.place}/k"
        assert told.value.retriable
        assert "tried again" in told.value.remedy
        assert sum(creates(asked) for asked in proxy.asked) == 3

    def test_a_slow_server_costs_a_try_and_nothing_else(
        self, s3: S3Server, proxy: S3Proxy, prefix: str
    ) -> None:
        slow = proxy.add(Fault(creates, delay_s=1.5))
        s3.store(prefix, proxy.url, timeout_s=0.5).put_new("k", [b"mine"])
        assert slow.struck == 1
        assert s3.store(prefix).get("k") == b"mine"

    def test_of_many_at_once_one_wins(self, s3: S3Server, proxy: S3Proxy, prefix: str) -> None:
        for _ in range(3):
            proxy.add(Fault(creates, times=5, after=True))
        won: list[int] = []

        def create(number: int) -> None:
            try:
                s3.store(prefix, proxy.url).put_new("k", [b"%d" % number])
            except KeyExists:
                return
            won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert s3.store(prefix).get("k") == b"%d" % won[0]


class TestOfStates:
    """What is larger than a request goes up in parts, and is there whole or not at all."""

    DATA = np.random.default_rng(1).bytes(2 * PART_BYTES + 12345)

    def test_it_goes_up_in_parts_under_its_random_name(self, through: ObjectStore, proxy: S3Proxy) -> None:
        put = through.put_new(STATE, [self.DATA[:100], self.DATA[100:]])
        assert put.size == len(self.DATA)
        parts = [asked for asked in proxy.asked if asked.method == "PUT" and "partNumber" in asked.path]
        assert len(parts) == 3
        assert not any(creates(asked) for asked in proxy.asked)
        assert through.get(STATE) == self.DATA
        with pytest.raises(KeyExists):
            through.put_new(STATE, [self.DATA])

    def test_a_manifest_is_one_request_however_large(self, through: ObjectStore, proxy: S3Proxy) -> None:
        through.put_new("ledger/folded-0000000512.json", [self.DATA])
        assert [creates(asked) for asked in proxy.asked if asked.method == "PUT"] == [True]

    @pytest.mark.parametrize("part", [0.0, 0.5])
    def test_a_torn_part_is_sent_again(self, through: ObjectStore, proxy: S3Proxy, part: float) -> None:
        torn = proxy.add(Fault(lambda asked: "partNumber=2" in asked.path, times=2, part=part))
        through.put_new(STATE, [self.DATA])
        assert torn.struck == 2
        assert through.get(STATE) == self.DATA

    def test_an_upload_that_fails_for_good_leaves_nothing(self, through: ObjectStore, proxy: S3Proxy) -> None:
        proxy.add(Fault(lambda asked: "partNumber=3" in asked.path, times=10**6, answer=REFUSED))
        with pytest.raises(WriteFailed, match="may list, get, put and delete"):
            through.put_new(STATE, [self.DATA])
        assert through.list() == []

    def test_a_torn_download_is_read_again(self, through: ObjectStore, proxy: S3Proxy) -> None:
        through.put_new(STATE, [self.DATA])
        torn = proxy.add(Fault(lambda asked: asked.method == "GET", times=3, part=0.5, after=True))
        with through.open_verified(STATE, len(self.DATA), "0" * 64) as stream:
            assert stream.read() == self.DATA
        assert torn.struck == 3


class TestOfDeleting:
    """What goes is gone, also where the answer broke off: a deletion may be asked for twice."""

    @pytest.mark.parametrize("after", [False, True])
    def test_a_deletion_that_broke_off_is_asked_for_again(
        self, through: ObjectStore, proxy: S3Proxy, after: bool
    ) -> None:
        through.put_new("k", [b"mine"])
        torn = proxy.add(Fault(lambda asked: "delete" in asked.path, times=2, part=0.5, after=after))
        through.delete("k")
        assert torn.struck == 2
        assert not through.exists("k")
        through.delete("k")


class TestOfLines:
    """There is no appending: the object is written again, if it is still the one that was read."""

    def test_a_line_of_another_writer_is_kept(
        self, through: ObjectStore, beside: ObjectStore, proxy: S3Proxy
    ) -> None:
        through.append_line(HISTORY, b"one")
        threads = [
            threading.Thread(target=store.append_line, args=(HISTORY, b"%d" % number))
            for number, store in enumerate([through, beside, through])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(through.get(HISTORY).splitlines()) == [b"0", b"1", b"2", b"one"]

    def test_a_lost_answer_adds_it_once(self, through: ObjectStore, proxy: S3Proxy) -> None:
        through.append_line(HISTORY, b"one")
        lost = proxy.add(Fault(lambda asked: asked.method == "PUT", after=True))
        through.append_line(HISTORY, b"two")
        assert lost.struck == 1
        assert through.get(HISTORY) == b"one\ntwo\n"

    def test_what_stays_refused_is_told(self, through: ObjectStore, proxy: S3Proxy) -> None:
        proxy.add(Fault(lambda asked: asked.method == "PUT", times=10**6, answer=REFUSED))
        with pytest.raises(WriteFailed, match="AccessDenied"):
            through.append_line(HISTORY, b"one")


class TestOfListings:
    """A listing that lags behind misleads nobody who may write, promote or delete."""

    def test_numbers_go_on_where_the_listing_is_old(
        self, through: ObjectStore, beside: ObjectStore, proxy: S3Proxy
    ) -> None:
        versions = VersionStore(through)
        epoch = versions.claim()
        versions.publish(epoch, ARRAYS, VersionMeta())
        proxy.hide_new()
        for _ in range(3):
            versions.publish(epoch, ARRAYS, VersionMeta())
        fresh = VersionStore(through)
        assert fresh.versions() == [0, 1, 2, 3]
        assert fresh.listing.poll() == [0, 1, 2, 3]
        assert fresh.claim().number == 4

    def test_a_writer_learns_of_its_successor(self, through: ObjectStore, proxy: S3Proxy) -> None:
        versions = VersionStore(through)
        old = versions.claim()
        versions.publish(old, ARRAYS, VersionMeta())
        proxy.hide_new()
        new = VersionStore(through).claim()
        for look in (check_writer, check_next):
            with pytest.raises(Superseded):
                look(through, old)
        with pytest.raises(Superseded):
            versions.publish(old, ARRAYS, VersionMeta())
        VersionStore(through).publish(new, ARRAYS, VersionMeta())

    def test_an_entry_that_is_not_listed_protects_its_version(
        self, through: ObjectStore, proxy: S3Proxy
    ) -> None:
        ledger = Ledger(through)
        ledger.append({"kind": "KEEP", "version": 1})
        proxy.hide_new()
        ledger.append({"kind": "KEEP", "version": 2})
        ledger.append({"kind": "KEEP", "version": 3})
        fresh = Ledger(through)
        assert [entry.version for entry in fresh.whole()] == [1, 2, 3]
        assert fresh.last() == 3
        assert fresh.append({"kind": "KEEP", "version": 4}).n == 4


class TestOfPublishing:
    """The two steps of a version, each struck."""

    def test_a_manifest_that_arrives_although_it_failed_keeps_its_state(
        self, through: ObjectStore, beside: ObjectStore, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("checkpoints.object_store.TRIES", 1)
        versions = VersionStore(through)
        epoch = versions.claim()
        lost = proxy.add(Fault(is_manifest, times=1, after=True))  # written, and nobody hears of it
        proxy.add(Fault(lambda asked: lost.struck > 0, times=10**6, answer=SLOW_DOWN))
        with pytest.raises(WriteFailed):
            versions.publish(epoch, ARRAYS, VersionMeta())
        proxy.clear()
        assert np.array_equal(VersionStore(beside).load(0).arrays["W"], ARRAYS["W"])
        assert versions.publish(epoch, ARRAYS, VersionMeta()).number == 1, "it steps over its own"

    def test_a_failed_upload_leaves_the_number_free(self, through: ObjectStore, proxy: S3Proxy) -> None:
        versions = VersionStore(through)
        epoch = versions.claim()
        refused = proxy.add(Fault(lambda asked: ".safetensors" in asked.path, times=10**6, answer=REFUSED))
        with pytest.raises(WriteFailed):
            versions.publish(epoch, ARRAYS, VersionMeta())
        assert refused.struck > 0
        proxy.clear()
        assert versions.publish(epoch, ARRAYS, VersionMeta()).number == 0
        assert [key for key in through.list("versions/") if "state" in key] != []

    def test_an_outage_at_the_start_is_no_empty_store_and_no_older_version(
        self, through: ObjectStore, proxy: S3Proxy
    ) -> None:
        versions = VersionStore(through)
        epoch = versions.claim()
        for _ in range(2):
            versions.publish(epoch, ARRAYS, VersionMeta())
        proxy.add(Fault(lambda asked: folder(1) in asked.path and ".saf" in asked.path, 10**6, BROKEN))
        with pytest.raises(Unreachable):
            VersionStore(through).newest_valid()
        proxy.clear()
        proxy.add(Fault(lambda asked: asked.lists, 10**6, BROKEN))
        with pytest.raises(Unreachable):
            VersionStore(through).claim()

    def test_bytes_that_changed_in_the_bucket_are_refused(
        self, s3: S3Server, beside: ObjectStore, prefix: str
    ) -> None:
        versions = VersionStore(beside)
        versions.publish(versions.claim(), ARRAYS, VersionMeta())
        name = versions.manifest(0).files[0].name
        path = s3.bucket / prefix / folder(0) / name
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(Damaged, match="sha256"):
            versions.load(0)


class TestOfAccess:
    """Who may not, or not any more, hears what to do; what comes back is used without a restart."""

    def test_expired_keys_of_a_profile_are_replaced(
        self, s3: S3Server, proxy: S3Proxy, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        profile = tmp_path / "credentials"
        for name in KEYS:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
        monkeypatch.setenv("AWS_PROFILE", "shop")
        monkeypatch.setattr("checkpoints.profile.RENEW", timedelta(0))
        profile.write_text("[shop]\naws_access_key_id = old\naws_secret_access_key = x\n")
        proxy.add(Fault(lambda asked: asked.token == "old", times=10**6, answer=EXPIRED))
        store = s3.store(prefix, proxy.url, timeout_s=61.0)  # a client of its own
        with pytest.raises(Unreachable, match="ExpiredToken") as told:
            store.get("k")
        assert told.value.retriable
        assert "renew them" in told.value.remedy
        with pytest.raises(WriteFailed, match="renew them"):
            store.put_new("k", [b"x"])
        profile.write_text(f"[shop]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        store.put_new("k", [b"x"])
        assert store.get("k") == b"x"

    def test_a_bucket_that_is_not_there(self, s3: S3Server) -> None:
        store = open_object_store("s3://no-such-bucket/place", ObjectSettings(s3.url))
        for ask in (store.list, lambda: store.get("k"), lambda: VersionStore(store).versions()):
            with pytest.raises(Unreachable, match="create the bucket"):
                ask()
        with pytest.raises(WriteFailed, match="create the bucket"):
            store.put_new("k", [b""])
        assert not store.is_there()

    def test_a_server_that_is_not_there(self, s3: S3Server, proxy: S3Proxy, prefix: str) -> None:
        store = s3.store(prefix, "http://127.0.0.1:1", timeout_s=1.0)
        with pytest.raises(Unreachable, match=r"checkpoints\.endpoint"):
            store.list()
        assert not store.is_there()

    @pytest.mark.parametrize(
        "address", ["s3://", "s3://b", "http://x/y", "s3://bucket/../up", "s3://bucket/a b"]
    )
    def test_what_is_no_address_is_refused(self, address: str) -> None:
        with pytest.raises((ValueError, BadKey), match=r"expected s3|plain names"):
            open_object_store(address, ObjectSettings())

    def test_what_lies_below_is_a_store_of_its_own(self, s3: S3Server, prefix: str) -> None:
        root = s3.store(prefix)
        line = root.at("shards/0-of-2")
        line.put_new("k", [b"x"])
        assert line.place == f"s3://{BUCKET}/{prefix}/shards/0-of-2"
        assert root.list("shards/") == ["shards/0-of-2/k"]
        assert root.list("versions/") == []
        with pytest.raises(KeyMissing):
            root.get("k")
        assert not root.exists(manifest_key(0))
        assert not root.exists(ledger_key(1))

"""A folded ledger amounts to the same as an unfolded one, whoever dies, stands still or reads meanwhile."""

from __future__ import annotations

import random
import shutil
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from checkpoints import (
    CheckpointError,
    KeyExists,
    Ledger,
    LedgerEntry,
    LocalStore,
    aliases,
    pause_in_force,
    protected,
    stop_in_force,
)
from checkpoints.entries import before
from checkpoints.retention import fold
from checkpoints.store import ledger_key
from checkpoints.thinning import by_age, thinned
from daemon.validate.decide import CLICKS, StopRule, best_version, outstanding
from daemon.validate.ledger import fold as history_of
from daemon.versions.key_verdicts import KeyVerdicts
from tests.harness.memory_store import MemoryStore

from .disk import FaultyDisk
from .power import lay_out, power_losses, snapshot

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def written(ledger: Ledger, count: int, every_s: float = 30.0) -> list[LedgerEntry]:
    """Entries of a validator that judges one version after another, the newest one just now."""
    first = NOW - timedelta(seconds=every_s * count)
    return [
        ledger.append(
            {
                "kind": "PROMOTE" if n % 7 == 0 else "KEEP",
                "version": n,
                "alias": "best" if n % 7 == 0 else None,
                "at": (first + timedelta(seconds=every_s * n)).isoformat(),
            }
        )
        for n in range(count)
    ]


def fold_now(store: Any, ledger: Ledger | None = None, every: int = 8, leave: int = 4) -> int | None:
    return fold(store, ledger or Ledger(store), lambda: [0], every=every, leave=leave, clock=NOW.timestamp)


def told(ledger: Ledger) -> tuple[list[int], list[str]]:
    lost: list[CheckpointError] = []
    return [entry.n for entry in ledger.entries(report=lost.append)], [str(one) for one in lost]


def test_a_folded_ledger_reads_as_before_and_its_files_are_gone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    entries = written(Ledger(store), 40)
    stale = Ledger(store)
    assert stale.entries() == entries
    assert fold_now(store) == 36
    for ledger in (Ledger(store), stale):
        assert ledger.entries() == entries
        assert ledger.last() == 40
        assert ledger.whole() == entries
    names = sorted(path.name for path in (tmp_path / "ledger").iterdir())
    assert names == [
        *(f"{n:010d}.json" for n in range(36, 41)),
        "folded-0000000035.json",
        "folded-0000000036.json",
    ]
    assert fold_now(store) is None
    assert Ledger(store).append({"kind": "STOP"}).n == 41


def test_folding_again_and_again_keeps_two_snapshots_and_few_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ledger = Ledger(store)
    for n in range(100):
        ledger.append({"kind": "KEEP", "version": n})
        fold_now(store, ledger)
    kinds = [path.name.partition("-")[0] for path in (tmp_path / "ledger").iterdir()]
    assert kinds.count("folded") == 2
    assert len(kinds) < 2 * 8 + 4 + 2 + 2
    assert [entry.n for entry in Ledger(store).entries()] == list(range(1, 101))


@pytest.mark.parametrize("what", ["altered", "gone", "future"])
def test_one_damaged_snapshot_loses_nothing(tmp_path: Path, what: str) -> None:
    store = LocalStore(tmp_path)
    written(Ledger(store), 40)
    fold_now(store)
    for n in range(20):
        Ledger(store).append({"kind": "KEEP", "version": n})
    fold_now(store)
    newest = max((tmp_path / "ledger").glob("folded-*"))
    if what == "gone":
        newest.unlink()
    else:
        newest.write_bytes(
            newest.read_bytes().replace(
                b'"format": 1', b'"format": 2' if what == "future" else b'"format": 3', 1
            )
        )
    numbers, lost = told(Ledger(store))
    assert numbers == list(range(1, 61))
    assert len(lost) == (0 if what == "gone" else 1)
    assert Ledger(store).append({"kind": "KEEP"}).n == 61
    for n in range(20):
        Ledger(store).append({"kind": "KEEP", "version": n})
    assert fold_now(store) is not None
    assert told(Ledger(store)) == (list(range(1, 82)), [])


def test_a_writer_that_stood_still_does_not_write_into_the_past(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    written(Ledger(store), 10)

    class Sleeper(LocalStore):
        """It chose number 11, and wakes when that is long folded."""

        asleep = True

        def put_new(self, key: str, *args: Any, **kwargs: Any) -> Any:
            if self.asleep:
                self.asleep = False
                for _ in range(3):
                    for n in range(20):
                        Ledger(store).append({"kind": "KEEP", "version": n})
                    fold_now(store)
                assert not (tmp_path / ledger_key(11)).exists()
            return super().put_new(key, *args, **kwargs)

    entry = Ledger(Sleeper(tmp_path)).append({"kind": "PROMOTE", "alias": "stable", "version": 3})
    assert entry.n == 71
    assert aliases(Ledger(store).entries())["stable"] == 3
    assert not (tmp_path / ledger_key(11)).exists()
    with pytest.raises(KeyExists):
        Ledger(store).append({"kind": "PROMOTE", "alias": "stable", "version": 4}, after=10)
    assert not (tmp_path / ledger_key(11)).exists()
    assert aliases(Ledger(store).entries())["stable"] == 3


def test_a_writer_whose_entry_is_folded_before_it_has_looked_wrote_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    written(Ledger(store), 10)

    class Slow(LocalStore):
        first = True

        def put_new(self, key: str, *args: Any, **kwargs: Any) -> Any:
            done = super().put_new(key, *args, **kwargs)
            if self.first:
                self.first = False
                for n in range(20):
                    Ledger(store).append({"kind": "KEEP", "version": n})
                fold_now(store)
            return done

    assert Ledger(Slow(tmp_path)).append({"kind": "PROMOTE", "alias": "stable", "version": 3}).n == 11
    assert [e.n for e in Ledger(store).entries() if e.alias == "stable"] == [11]


def test_readers_and_writers_beside_folders_miss_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    done, wrong = threading.Event(), []

    def reader() -> None:
        kept, before = Ledger(LocalStore(tmp_path)), 0
        while not done.is_set():
            for ledger in (kept, Ledger(LocalStore(tmp_path))):
                numbers, lost = [entry.n for entry in ledger.entries()], ledger.unreadable()
                if numbers != list(range(1, len(numbers) + 1)) or len(numbers) < before or lost:
                    wrong.append((numbers, before, lost))
            before = len([entry.n for entry in kept.entries()])

    def folder() -> None:
        while not done.is_set():
            fold_now(store, every=3, leave=1)

    def writer(who: str) -> None:
        ledger = Ledger(LocalStore(tmp_path))
        for n in range(60):
            ledger.append({"kind": "KEEP", "version": n, "by": who})

    threads = [
        threading.Thread(target=reader),
        *(threading.Thread(target=folder) for _ in "ab"),
    ]
    writers = [threading.Thread(target=writer, args=(who,)) for who in "cd"]
    for thread in (*threads, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    entries = Ledger(store).entries()
    for who in "cd":
        assert [entry.version for entry in entries if entry.by == who] == list(range(60))


def test_no_failing_call_and_no_lost_power_loses_or_doubles_an_entry(tmp_path: Path) -> None:
    live = LocalStore(tmp_path / "live")
    written(Ledger(live), 14)
    fold_now(live, every=4, leave=2)
    for n in range(8):
        Ledger(live).append({"kind": "KEEP", "version": n})
    state, whole = snapshot(tmp_path / "live"), list(range(1, 23))
    disk = FaultyDisk(tmp_path / "live")
    fold_now(LocalStore(tmp_path / "live", disk.fs), every=4, leave=2)
    disk.log, log = [], list(disk.log)
    for place, (_, left) in enumerate(power_losses(state, log)):
        root = tmp_path / f"lost-{place}"
        lay_out(left, root)
        assert told(Ledger(LocalStore(root))) == (whole, [])
        Ledger(LocalStore(root)).append({"kind": "STOP"})
        fold_now(LocalStore(root), every=4, leave=2)
        assert told(Ledger(LocalStore(root))) == ([*whole, 23], [])
        shutil.rmtree(root)
    for k in range(1, disk.calls + 1):
        root = tmp_path / f"failed-{k}"
        lay_out(state, root)
        failing = FaultyDisk(root)
        store = LocalStore(root, failing.fs)
        failing.fail_at = failing.calls + k
        with suppress(CheckpointError):
            fold_now(store, every=4, leave=2)
        assert told(Ledger(LocalStore(root))) == (whole, [])
        shutil.rmtree(root)


def test_a_damaged_entry_is_never_folded_over_until_it_is_written_off(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    written(Ledger(store), 60)
    (tmp_path / ledger_key(20)).write_bytes(b"torn")
    for n in (30, 31, 32):
        (tmp_path / ledger_key(n)).unlink()
    assert fold_now(store) == 15
    ledger = Ledger(store)
    assert ledger.unreadable() == [20, 30]
    assert {n: last for n, (last, _) in ledger.lost().items()} == {20: 20, 30: 32}
    with pytest.raises(ValueError, match="entry 21"):
        ledger.write_off(21, "me", "")
    assert [ledger.write_off(n, "me", "the copy is gone") for n in (20, 30)] == [20, 32]
    for one in (ledger, Ledger(store)):
        assert one.unreadable() == []
        assert [e.n for e in one.whole()] == [n for n in range(1, 61) if n not in (20, 30, 31, 32)]
    assert fold_now(store) == 56
    assert fold_now(store, every=2, leave=1) == 59
    assert not list((tmp_path / "ledger").glob("lost-*"))
    assert Ledger(store).unreadable() == []


def test_by_age_all_of_a_day_one_an_hour_of_a_month_one_a_day_beyond() -> None:
    now = NOW.timestamp()
    times = [now - 300.0 * n for n in range(100 * 288, 0, -1)]
    kept = by_age(times, float, now)
    ages = [now - at for at in kept]
    assert sum(age < 86_400 for age in ages) == 287
    assert 28 * 24 < sum(86_400 <= age < 30 * 86_400 for age in ages) <= 29 * 24 + 2
    assert 69 <= sum(age >= 30 * 86_400 for age in ages) <= 72
    assert by_age(kept, float, now) == kept
    assert by_age(times, float, now + 400 * 86_400) == kept, "a wrong clock ages nothing"


def history_at_random(seed: int, count: int) -> list[LedgerEntry]:
    """What a validator, people and a learner that pauses may write in six weeks."""
    rng, found, best, version = random.Random(seed), [], 0, 0
    said = {"STOP": False, "pause": False}
    better = False
    for n in range(1, count + 1):
        at = (NOW - timedelta(minutes=20 * (count - n))).isoformat()
        kind = rng.choices(["KEEP", "stable", "pin", "refused", "STOP", "pause"], [95, 2, 1, 1, 1, 1])[0]
        entry: dict[str, Any]
        if better:
            best, better = version, False
            entry = {"kind": "PROMOTE", "version": best, "alias": "best"}
        elif kind == "KEEP":
            again = rng.random() < 0.03
            version += not again
            better = not again and rng.random() < 0.05
            measures = judgment(rng, better, best, n, 12 if again else rng.randrange(3))
            entry = {"kind": "KEEP", "version": rng.choice([0, best]) if again else version}
            entry["measures"] = measures
        elif kind in ("stable", "pin"):
            verb, target = rng.choice(["PROMOTE", "ROLLBACK"]), rng.choice([version, version // 2, None])
            entry = {"kind": verb, "alias": kind, "version": target}
        elif kind == "refused":
            entry = {"kind": "KEEP", "version": rng.choice([best, version]), "measures": {"refused": True}}
        else:
            entry = {"kind": "RESUME" if said[kind] else "STOP"}
            said[kind] = not said[kind]
            entry |= {"version": best} if kind == "STOP" else {"measures": {"pause": "poison", "at": n}}
        found.append(LedgerEntry(n=n, **entry, at=at))
    return found


def judgment(rng: random.Random, better: bool, best: int, events: int, keys: int) -> dict[str, Any]:
    """Measures of a judged version with the verdicts on some keys."""
    common = {"clicked_vs_random": 1.0}
    against = {"best_decision": 0.5, "best_holds": True, "min_delta": 0.0} if best else {}
    verdict = rng.choice(["learned", "cosine"])
    line = {"impressions": 9, "decision": 0.5, "version_0": 0.5, "verdict": verdict}
    return {
        **common,
        **against,
        "position_balanced": 0.9 if better else 0.4,
        "impressions": 5000,
        "decision_measure": "position_balanced",
        "version_0": {**common, "position_balanced": 0.5},
        "best_before": best,
        "events": events,
        "keys": {f"k{(events + at) % 12}": line for at in range(keys)},
    }


@pytest.mark.parametrize("seed", range(6))
def test_thinned_entries_amount_to_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpoints.thinning.NEWEST", 30)
    monkeypatch.setattr("checkpoints.thinning.NEWEST_TURNS", 3)
    entries = history_at_random(seed, 3000)
    versions = [0, 3, *range(2600, 2700, 7), *aliases(entries).values()]
    thin = entries
    for part in (700, 1500, 2990):  # folded again and again
        thin = [
            *thinned([e for e in thin if e.n <= part], versions, NOW.timestamp()),
            *(e for e in thin if e.n > part),
        ]
    assert len(thin) < 1800
    assert aliases(thin) == aliases(entries)
    assert protected(thin) == protected(entries)
    assert before("stable", thin) == before("stable", entries)
    assert (stop_in_force(thin), pause_in_force(thin)) == (stop_in_force(entries), pause_in_force(entries))
    own, other = history_of(thin, CLICKS), history_of(entries, CLICKS)
    assert best_version(own.judged) == best_version(other.judged)
    assert (own.promoted, own.baseline, own.stopped_at) == (other.promoted, other.baseline, other.stopped_at)
    assert (own.baseline <= own.seen) == (other.baseline <= other.seen)
    rule = StopRule(events=10, min_versions=2)
    verdicts = [[(one.kind, one.version) for one in outstanding(part, rule)] for part in (own, other)]
    assert verdicts[0] == verdicts[1]
    of_keys, all_of_keys = KeyVerdicts.of(thin), KeyVerdicts.of(entries)
    for number in (*versions, 3000):
        assert of_keys.at(number) == all_of_keys.at(number)
        for key in (f"k{n}" for n in range(12)):
            assert of_keys.answers(key, number) == all_of_keys.answers(key, number)


def test_of_judgments_by_evidence_only_the_last_best_ones_stay_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nearly every version becomes best there: kept one and all, a ledger would grow for ever."""
    monkeypatch.setattr("checkpoints.thinning.NEWEST", 4)
    monkeypatch.setattr("checkpoints.thinning.NEWEST_TURNS", 2)
    entries = []
    for version in range(100):
        at = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=version, days=90 * (version == 99))
        told = {"version": version, "at": at.isoformat()}
        keep = LedgerEntry(n=2 * version + 1, kind="KEEP", measures={"anchor": version}, **told)
        entries += [keep, LedgerEntry(n=2 * version + 2, kind="PROMOTE", alias="best", **told)]
    kept = thinned(entries, range(100), datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    assert len(kept) < 12
    assert {entry.version for entry in kept} >= {0, 99}
    assert aliases(kept) == {"best": 99}


def test_tens_of_thousands_of_old_entries_are_folded_once() -> None:
    store = MemoryStore()
    first = NOW - timedelta(seconds=30 * 30_000)
    for n in range(1, 30_001):
        at = (first + timedelta(seconds=30 * n)).isoformat()
        store.put_new(ledger_key(n), [LedgerEntry(n=n, kind="KEEP", version=n, at=at).to_json()])
    before = Ledger(store)
    assert len(before.entries()) == 30_000
    assert fold(store, Ledger(store), lambda: [0], clock=NOW.timestamp) == 30_000 - 64
    assert len(store.list("ledger/")) == 65 + 2
    kept = Ledger(store).entries()
    assert 2880 <= len(kept) < 3300
    assert before.entries() == kept
    assert Ledger(store).unreadable() == []
    assert Ledger(store).append({"kind": "KEEP"}).n == 30_001

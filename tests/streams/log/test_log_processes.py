"""Many processes on one log: writers killed at any moment, writers at once, readers holding nothing."""

import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter

import pytest

from streams.open import ensure_topic, open_sink, open_source
from streams.source import OutRecord, parse_address

WRITER = """
import sys
from streams.source import parse_address
from streams.open import open_sink
from streams.source import OutRecord
address, name, batches, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sink = open_sink(parse_address(address))
for batch in range(batches):
    sink.send([OutRecord(f"{name}/{batch}/{n}".encode() + bytes(size), partition=n % 2) for n in range(20)])
    print(batch, flush=True)
"""


def writer(address, name, batches, size=0):
    command = [sys.executable, "-c", WRITER, str(address), name, str(batches), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def all_values(address):
    source = open_source(address)
    source.assign(dict.fromkeys(source.bounds(), 0))
    values, offsets = [], {0: [], 1: []}
    while (batch := source.poll(500, 0)) is not None:
        values += [value.rstrip(b"\0").decode() for value in batch.values]
        offsets[batch.partition] += batch.offsets
    source.close()
    assert all(found == list(range(len(found))) for found in offsets.values())
    return values


@pytest.mark.kill
def test_a_killed_writer_loses_nothing_acknowledged_and_leaves_no_half_of_a_send(tmp_path):
    address = parse_address(f"log:{tmp_path}/clicks.log")
    ensure_topic(address, 2)
    chance = random.Random(5)
    acknowledged = set()
    for life in range(10):
        process = writer(address, f"life{life}", 10**6, size=3000)
        wanted = chance.randrange(1, 25)
        acks = [process.stdout.readline().strip() for _ in range(wanted)]
        threading.Event().wait(chance.random() * 0.005)  # somewhere inside the next send
        process.send_signal(signal.SIGKILL)
        acks += process.stdout.read().split()
        process.wait()
        process.stdout.close()
        acknowledged |= {f"life{life}/{batch}" for batch in acks}
    sizes = Counter(value.rpartition("/")[0] for value in all_values(address))
    assert acknowledged
    assert acknowledged <= set(sizes)
    assert set(sizes.values()) == {20}


def test_many_writers_at_once_lose_and_repeat_nothing(tmp_path):
    address = parse_address(f"log:{tmp_path}/clicks.log")
    ensure_topic(address, 2)
    processes = [writer(address, f"writer{n}", 30) for n in range(3)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    expected = [f"writer{w}/{batch}/{n}" for w in range(3) for batch in range(30) for n in range(20)]
    assert sorted(all_values(address)) == sorted(expected)


def test_a_reader_in_another_process_sees_what_is_sent_here(tmp_path):
    address = parse_address(f"log:{tmp_path}/clicks.log")
    ensure_topic(address, 2)
    source = open_source(address)
    source.assign({0: 0})
    process = writer(address, "other", 1)
    assert source.poll(1, 60).values == [b"other/0/0"]
    process.communicate()
    source.close()


def test_many_creators_at_once_agree_on_one_log(tmp_path):
    address = parse_address(f"log:{tmp_path}/clicks.log")
    found, threads = [], []
    for _ in range(8):
        threads.append(threading.Thread(target=lambda: found.append(ensure_topic(address, 3))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".new")] == []


def test_a_reader_holds_no_transaction_between_polls(tmp_path):
    address = parse_address(f"log:{tmp_path}/clicks.log")
    ensure_topic(address, 1)
    sink, source = open_sink(address), open_source(address)
    source.assign({0: 0})
    sink.send([OutRecord(b"x")] * 10)
    assert source.poll(3, 0).offsets == [0, 1, 2]
    other = sqlite3.connect(address.path)
    busy, left, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    other.close()
    assert (busy, left) == (0, 0), "a reader's transaction would keep the write-ahead log from being emptied"
    sink.close()
    source.close()

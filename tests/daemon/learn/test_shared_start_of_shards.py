"""Models by key that begin from one learned matrix, learned by several shards: all of them begin from it, and
what comes of it is recomputed to the bit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from daemon.cli import main
from daemon.exits import EX_OK
from daemon.versions.restore import learner_of
from daemon.versions.shards import MergeRecord
from daemon.versions.storage import open_store
from learners.keyed import Keyed
from learners.loreta import Loreta
from tests.daemon.test_up import CONFIG, ROOT, clicks
from tests.harness import forked

SHARDS = "partitions = 4\n[space"
NO_PORTS = "merge_port = 0\nshard_ports = 0\nup_port = 0\n"
NAMES = ("anna", "bert", "carl")


def test_shards_begin_from_the_shared_matrix_and_replay_to_the_bit(tmp_path: Path) -> None:
    everybody, tenants = tmp_path / "everybody.toml", tmp_path / "tenants.toml"
    (tmp_path / "clicks.jsonl").write_text(clicks(100))
    paths = '\n[checkpoints]\npath = "everybody"\n[learner]\nalgorithm = "oasis"\n'
    everybody.write_text(CONFIG.replace("clicks.log", "everybody.log") + paths)
    assert main(["feed", str(tmp_path / "clicks.jsonl"), "--config", str(everybody)]) == EX_OK
    assert main(["learn", "--exit-when-caught-up", "--config", str(everybody)]) == EX_OK
    shared = learner_of(open_store(tmp_path / "everybody").versions.load(1))

    lines = []
    for number, line in enumerate(clicks(240).splitlines()):
        lines.append(json.dumps({**json.loads(line), "key": NAMES[number % len(NAMES)]}))
    (tmp_path / "keyed.jsonl").write_text("\n".join(lines))
    of_keys = (
        f'\n[learner]\nalgorithm = "loreta"\nrank = 2\n[keys]\nslots = 4\nstart = "{tmp_path}/everybody:1"\n'
    )
    tenants.write_text(CONFIG.replace("[space", SHARDS) + NO_PORTS + of_keys + "[shards]\ncount = 2\n")
    assert main(["feed", str(tmp_path / "keyed.jsonl"), "--config", str(tenants)]) == EX_OK
    up = [sys.executable, "-m", "daemon", "up", "--config", str(tenants), "--exit-when-caught-up"]
    ended = forked.run(up, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    assert ended.returncode == EX_OK, ended.stderr

    versions = open_store(tmp_path / "checkpoints").versions
    last = versions.manifest(versions.versions()[-1])
    record = MergeRecord.in_version(last)
    assert record is not None
    assert [part.shard for part in record.parts] == [0, 1]
    merged = learner_of(versions.load(last.number))
    assert isinstance(merged, Keyed)
    assert sorted(merged.names()) == sorted(NAMES)
    for name in NAMES:
        model = merged.learner_of(name)
        assert isinstance(model, Loreta)
        np.testing.assert_array_equal(model.start, shared.W)  # type: ignore[attr-defined]
        assert model.rank > 0
    numbers = {"": last.number}
    for shard in (0, 1):
        its = open_store(tmp_path / "checkpoints" / "shards" / f"{shard}-of-2").versions
        numbers[str(shard)] = its.versions()[-1]
    for which, number in numbers.items():
        of_shard = ("--shard", which) if which else ()
        verify = ("replay", "--from", "0", "--to", str(number), "--verify", *of_shard)
        assert main([*verify, "--config", str(tenants)]) == EX_OK

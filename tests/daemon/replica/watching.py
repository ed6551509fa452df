"""What tests look at in a replica, and a record that comes in two segments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from daemon.catalogs import as_blocks
from tests.harness.waiting import until

from .world import column_of, serves


def W_of(replica):
    with replica.read() as view:
        return view.form.state_matrix.copy(), view.model


def lost(replica, reason):
    return until(lambda: replica.status().fallbacks.get(reason), f"fall back: {reason}; {replica.status()}")


def goes_on(world, replica):
    """After a fall back: the next version is loaded, and steps are followed again from there."""
    manifest = world.publish()
    serves(replica, str(manifest.number))
    assert replica.status().swaps["version"] >= 2
    until(lambda: replica.status().following == "steps", "following again")
    world.learn(10)
    serves(replica, f"{manifest.number}+10")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()


def formed_at(replica):
    with replica.read() as view:
        return view.formed


def in_two(world, events=20):
    """A record whose steps come in two segments: the first is sent, the second is what this returns."""
    sent = []
    world.send, whole = sent.append, world.send
    world.learn(events)
    world.send = whole
    (steps,) = sent
    half = len(steps.tau) // 2
    blocks = as_blocks({"query": steps.query, "error": steps.error})
    parts = []
    for part in (slice(0, half), slice(half, None)):
        rows = np.arange(len(steps.tau))[part]
        columns = {name: column_of(block.take(rows)) for name, block in blocks.items()}
        parts.append(replace(steps, tau=steps.tau[part], **columns))
    world.send(replace(parts[0], last=steps.first))
    return lambda: world.send(replace(parts[1], timestamps=steps.timestamps[:0]))

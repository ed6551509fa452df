"""Worlds, and replicas of them that end with the test."""

from __future__ import annotations

import pytest

from .world import World, serves


@pytest.fixture(params=["dense", "sparse"])
def world(request: pytest.FixtureRequest) -> World:
    return World(kind=request.param)


@pytest.fixture
def started(world):
    replicas = []

    def start(**how):
        replicas.append(world.replica(**how))
        replicas[-1].start()
        return replicas[-1]

    yield start
    for replica in replicas:
        replica.close()


@pytest.fixture
def started_of(started, request):
    replicas = []

    def start(**learner):
        world = World(**learner)
        replicas.append(world.replica())
        replicas[-1].start()
        serves(replicas[-1], "0")
        return world, replicas[-1]

    yield start
    for replica in replicas:
        replica.close()

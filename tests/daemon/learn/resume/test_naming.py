"""Which version `--restart-from` means, and a command line that contradicts itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemon.cli import main
from daemon.exits import EX_OK, EX_USAGE, UserError
from daemon.learn.resume.origin import LearnOptions
from tests.daemon.learn.conftest import Site, make_events

LEAVE = LearnOptions(exit_when_caught_up=True)


def test_a_number_that_is_only_claimed_is_no_version(site: Site) -> None:
    site.feed(make_events(5))
    site.learn()
    number = site.versions.claim().number
    kept = site.versions.versions()
    assert number not in kept
    with pytest.raises(UserError, match=f"there is no version {number}") as told:
        site.learn(replace(LEAVE, restart_from=number))
    assert told.value.code == EX_USAGE
    assert f"versions: {kept[0]}" in told.value.remedy


def test_a_name_branches_once_whatever_it_means_later(site: Site) -> None:
    site.feed(make_events(5))
    site.learn()
    first, root = site.newest().number, site.versions.versions()[0]
    site.ledger.append({"kind": "PROMOTE", "version": root, "alias": "best"})
    asked = replace(LEAVE, restart_name="best")
    assert site.learn(asked) == EX_OK
    branch = site.newest()
    assert (branch.parent, branch.schedule[0]["from_version"]) == (root, root)
    site.ledger.append({"kind": "PROMOTE", "version": first, "alias": "best"})
    site.feed(make_events(5, seed=1))
    assert site.learn(asked) == EX_OK
    assert site.newest().parent == branch.number
    assert site.learn(replace(asked, again=True)) == EX_OK
    assert site.newest().number > branch.number
    with pytest.raises(UserError, match="there is no version monday") as told:
        site.learn(replace(LEAVE, restart_name="monday"))
    assert told.value.code == EX_USAGE


def test_the_command_takes_names_and_refuses_a_jump_to_nowhere(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["learn", "--exit-when-caught-up"]
    for key, value in site.settings.items():
        words += ["--set", f"{key}={value}"]
    assert main([*words, "--jump"]) == EX_USAGE
    assert "--start" in capsys.readouterr().err
    site.feed(make_events(5))
    assert main([*words, "--restart-from", "best"]) == EX_USAGE
    assert "there is no version best" in capsys.readouterr().err
    assert site.learn() == EX_OK
    newest = site.newest().number
    assert main([*words, "--restart-from", "latest"]) == EX_OK
    assert "everything is learned" in capsys.readouterr().err
    assert site.newest().schedule[0]["from_version"] == newest

"""What the documents name is there: files they link to or speak of, commands and options they print."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from daemon.cli import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "deploy/*.md", "checkpoints/*.md", "streams/**/*.md")
    for path in ROOT.glob(pattern)
)
COMMANDED = [name for name in DOCUMENTS if name != "CHANGELOG.md"]
TOPS = ("checkpoints", "daemon", "deploy", "docs", "learners", "streams", "tests")
FENCE = re.compile(r"^```[a-z]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
SPOKEN = re.compile(rf"`((?:{'|'.join(TOPS)})/[\w./@*-]+)`")
DECISIONS = ROOT / "docs" / "decisions"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_are_there(name: str) -> None:
    document = ROOT / name
    text = document.read_text()
    links = [link for link, _ in LINK.findall(text) if link and "://" not in link]
    missing = [link for link in links if not (document.parent / link).exists()]
    missing += [path for path in SPOKEN.findall(text) if not list(ROOT.glob(path.rstrip("/")))]
    assert not missing


@pytest.mark.parametrize("name", DOCUMENTS)
def test_headings_linked_to_are_there(name: str) -> None:
    document = ROOT / name
    for link, heading in LINK.findall(document.read_text()):
        if heading and "://" not in link:
            target = document.parent / link if link else document
            assert heading in anchors(target.read_text()), f"{link}#{heading}"


def anchors(text: str) -> set[str]:
    """What headings are called in links: lower case, no punctuation, dashes for spaces."""
    prose = FENCE.sub("", text)
    heads = [line.lstrip("#").strip().lower() for line in prose.splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in heads}


def commands(text: str) -> list[list[str]]:
    """The words of every `tripletd` command in the fenced blocks."""
    lines = "".join(FENCE.findall(text)).splitlines()
    said = [re.split(r"(?:^|\s)#", part)[0].strip() for line in lines for part in re.split(r"[;|]", line)]
    return [shlex.split(one)[1:] for one in said if one.startswith("tripletd ")]


@pytest.mark.parametrize("name", COMMANDED)
def test_commands_and_options_are_there(name: str) -> None:
    for words in commands((ROOT / name).read_text()):
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands") and not words[0].startswith("-"):
            assert words[0] in command.commands, f"tripletd {words}"
            command, words = command.commands[words[0]], words[1:]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-") and word != "-"} <= known | {"--help"}, (
            f"tripletd {words}"
        )


def test_there_are_commands_to_look_at() -> None:
    assert sum(len(commands((ROOT / name).read_text())) for name in COMMANDED) > 30


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 160


def test_the_readme_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text()
    pages = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert [page for page in pages if f"docs/{page}" not in readme] == []


def test_decisions_are_numbered_and_listed() -> None:
    records = sorted(path.name for path in DECISIONS.glob("[0-9]*.md"))
    assert [name[:3] for name in records] == [f"{number:03d}" for number in range(1, len(records) + 1)]
    index = (DECISIONS / "README.md").read_text()
    for name in records:
        title = (DECISIONS / name).read_text().splitlines()[0].removeprefix("# ")
        assert title.startswith(name[:3])
        assert f"[{title}]({name})" in index


@pytest.mark.parametrize("name", COMMANDED)
def test_modules_and_targets_to_run_are_there(name: str) -> None:
    text = (ROOT / name).read_text()
    for module in re.findall(r"python3? -m ((?:daemon|tests)\.[\w.]+)", text):
        assert importlib.util.find_spec(module) is not None, module
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`|&& )make ([a-z]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"

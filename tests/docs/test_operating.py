"""docs/operating.md has an entry for whatever an operator may meet: alerts, exit codes, limits."""

from __future__ import annotations

import re
from pathlib import Path

from daemon import exits

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text()


def test_every_alert_has_an_entry_with_its_severity() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)\n(?:.*\n)*?.*severity: (\w+)", rules)
    assert len(alerts) == rules.count("- alert:") > 10
    assert re.findall(r"^\| (Tripletd\w+) \| (\w+) \|", PAGE, re.MULTILINE) == alerts


def test_every_exit_code_has_an_entry() -> None:
    codes = {value for name, value in vars(exits).items() if name.startswith("EX_") or name == "INTERRUPTED"}
    section = PAGE.split("## Exit codes")[1].split("\n## ")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)} == codes


def test_keys_that_the_page_names_exist() -> None:
    example = (ROOT / "deploy" / "tripletd.toml").read_text()
    sections: dict[str, set[str]] = {}
    section = ""
    for line in example.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif match := re.match(r"(\w+) = ", line):
            sections.setdefault(section, set()).add(match.group(1))
    known = {f"{section}.{key}" for section, keys in sections.items() for key in keys}
    named = "|".join(map(re.escape, sections))
    spoken = set(re.findall(rf"`((?:{named})\.[a-z_.]+)`", PAGE))
    assert spoken <= known

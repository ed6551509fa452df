"""The PromQL of rules and dashboard, and what it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.deploy.programs import DEPLOY

DASHBOARD = DEPLOY / "grafana" / "dashboards" / "tripletd.json"
RULES = DEPLOY / "prometheus" / "rules.yml"
_NAME = re.compile(r"\b(?:tripletd|process)_\w+")
_GROUPED = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
_MATCHED = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """(where it stands, expression) of every rule, panel and annotation, Grafana's variables filled in."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m")
    for one in dashboard()["annotations"]["list"]:
        yield one["name"], one["target"]["expr"]


def metrics_in(expression: str) -> set[str]:
    return set(_NAME.findall(expression))


def labels_in(expression: str) -> set[str]:
    grouped = {name.strip() for names in _GROUPED.findall(expression) for name in names.split(",")}
    return grouped | set(_MATCHED.findall(expression))

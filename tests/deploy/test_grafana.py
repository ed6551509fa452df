"""The dashboard and what provisions it: complete, consistent with each other and with compose.yaml."""

from __future__ import annotations

from itertools import combinations

import yaml

from tests.deploy.expressions import dashboard
from tests.deploy.programs import DEPLOY

GRAFANA = DEPLOY / "grafana"
COLUMNS = 24
NEEDED = {
    "timeseries": ("datasource", "fieldConfig", "options", "targets"),
    "stat": ("datasource", "fieldConfig", "options", "targets"),
    "row": ("collapsed", "panels"),
}


def test_the_dashboard_has_what_grafana_needs() -> None:
    found = dashboard()
    assert found["uid"] == "tripletd"
    assert len(found["uid"]) <= 40  # Grafana's limit
    assert found["schemaVersion"] >= 36
    assert {"title", "panels", "time", "templating", "annotations"} <= found.keys()
    assert "id" not in found  # of one installation's database


def test_every_panel_is_whole_and_lies_apart() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert all(key in panel for key in NEEDED[panel["type"]]), panel["title"]
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= COLUMNS
        refs = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(refs)) == len(refs)
        assert all(target["expr"] for target in panel.get("targets", ()))
        assert "calcs" in panel.get("options", {}).get("legend", {"calcs": []})  # Grafana requires the key
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_everything_reads_the_provisioned_data_source() -> None:
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    wanted = {"type": source["type"], "uid": source["uid"]}
    found = dashboard()
    for panel in found["panels"]:
        for one in (panel, *panel.get("targets", ())):
            assert one.get("datasource", wanted) == wanted
    assert [one["datasource"] for one in found["annotations"]["list"]] == [wanted]


def test_the_provisioned_places_are_those_that_compose_mounts() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    mounts = dict(mount.split(":")[:2] for mount in services["grafana"]["volumes"] if mount.startswith("."))
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/tripletd.yml").read_text())["providers"]
    assert mounts["./grafana/dashboards"] == provider["options"]["path"]
    for kind in ("datasources", "dashboards"):  # and not the folder above: the image has others there
        assert mounts[f"./grafana/provisioning/{kind}"] == f"/etc/grafana/provisioning/{kind}"
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/tripletd.json"
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"

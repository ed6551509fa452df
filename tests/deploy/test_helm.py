"""The Helm chart: what Kubernetes takes, what the roles need, and closed.

Rendered by helm, held against the schemas of Kubernetes with nothing unknown allowed, and its environment
given to the configuration of the product itself.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from daemon.config import load_config
from daemon.config.schema import Config
from daemon.config.values import parse_duration
from daemon.serve.http.guard import AllowedHosts
from daemon.telemetry.server import PAGES
from tests.deploy.programs import DEPLOY, OPEN_S, helm

CHART = DEPLOY / "helm" / "tripletd"
KUBERNETES = ("1.30", "1.34", "1.37")
BUCKET = ("storage.path=s3://models/shop", "storage.endpoint=https://minio:9000", "storage.region=eu")
CLOSED = (
    *(
        f"secrets.{name}.existingSecret=my-{name.lower()}"
        for name in ("tokens", "tls", "objectStore", "kafka")
    ),
    "secrets.metrics.existingSecret=my-metrics",
    "secrets.catalog.data.password=for-a-trial",
    "kafka.saslPassword=true",
    "kafka.ca=true",
    "http.unprotected=",
)
EVERYTHING = (
    *BUCKET,
    *CLOSED,
    "follow.enabled=true",
    "metrics.podMonitor.enabled=true",
    "metrics.podMonitor.labels.release=prometheus",
    "serviceAccount.annotations.role=reader",
    *(
        f"extraEnv[{place}].name=TRIPLETD_STREAM__KAFKA__{name},extraEnv[{place}].value={value}"
        for place, (name, value) in enumerate(
            {
                "SECURITY_PROTOCOL": "SASL_SSL",
                "SASL_MECHANISM": "PLAIN",
                "SASL_USERNAME": "shop",
            }.items()
        )
    ),
)
SETTINGS: dict[str, tuple[str, ...]] = {
    "default": (),
    "bucket": BUCKET,
    "everything": EVERYTHING,
    "one learner": ("shards.count=0", "serve.autoscaling.enabled=false", "networkPolicy.enabled=false"),
    "others' objects": (
        "storage.volume.existingClaim=mine",
        "serviceAccount.create=false",
        "topics.create=false",
    ),
}
PORTS = {"learn": 9101, "validate": 9102, "serve": 9103, "follow": 9105, "merge": 9106}
ARGS = {"follow": ["feed", "--follow"]}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm(), *arguments], capture_output=True, text=True, timeout=60, check=False)


def render(values: Sequence[str], kubernetes: str = "1.34", name: str = "shop") -> list[dict[str, Any]]:
    """The chart's objects with `values` set, in a namespace of the name "models"."""
    options = [word for one in values for word in ("--set", one)]
    command = ("template", name, str(CHART), "--namespace", "models", "--kube-version", kubernetes, *options)
    done = run(*command)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.fixture(scope="module")
def rendered() -> dict[str, list[dict[str, Any]]]:
    return {name: render(values) for name, values in SETTINGS.items()}


def pods(objects: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Component and template of each pod, what a StatefulSet claims for it among its volumes."""
    for one in objects:
        if template := one["spec"].get("template") if "spec" in one else None:
            claims = one["spec"].get("volumeClaimTemplates", ())
            volumes = [
                *template["spec"]["volumes"],
                *({"name": claim["metadata"]["name"]} for claim in claims),
            ]
            template = {**template, "spec": {**template["spec"], "volumes": volumes}}
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template


def of_kind(objects: Sequence[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def configuration(objects: Sequence[dict[str, Any]], spec: dict[str, Any], folder: Path) -> Config:
    """What the container of this pod runs with, as the product reads it; secrets are files of `folder`."""
    file = folder / "tripletd.toml"
    file.write_text(of_kind(objects, "ConfigMap")["shop-tripletd"]["data"]["tripletd.toml"])
    (folder / "secret").write_text("of some length")
    environment = {
        one["name"]: str(folder / "secret") if one["name"].endswith("_FILE") else one["value"]
        for one in spec["containers"][0]["env"]
        if "value" in one
    }
    assert environment["TRIPLETD_CONFIG"] == "/etc/tripletd/tripletd.toml"
    return load_config(file, environ=environment)


def test_helm_finds_nothing_wrong() -> None:
    assert run("lint", "--strict", str(CHART), "--kube-version", "1.34").returncode == 0


@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_kubernetes_knows_every_field(kubernetes: str) -> None:
    for values in SETTINGS.values():
        for one in render(values, kubernetes):
            if one["kind"] != "PodMonitor":  # the schema of Prometheus' operator is not among them
                kubernetes_validate.validate(one, kubernetes, strict=True)


def test_an_unknown_field_would_be_told(rendered: dict[str, list[dict[str, Any]]]) -> None:
    (serve,) = (one for one in rendered["default"] if one["kind"] == "HorizontalPodAutoscaler")
    serve["spec"]["minimum"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(serve, "1.34", strict=True)
    del serve["spec"]["minimum"]


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_pod_is_closed_and_asked_where_the_product_answers(
    rendered: dict[str, list[dict[str, Any]]], setting: str
) -> None:
    for role, template in pods(rendered[setting]):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False, "TRIPLETD_..._PORT would be set by services"
        volumes = {one["name"] for one in spec["volumes"]}
        for one in [*spec["containers"], *spec.get("initContainers", ())]:
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {mount["name"] for mount in one["volumeMounts"]} <= volumes
            assert one["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "cpu" not in one["resources"]["limits"]
        for volume in spec["volumes"]:
            if "secret" in volume:
                assert not volume["secret"]["defaultMode"] & 0o007
        if role == "topics":
            continue
        (container,) = spec["containers"]
        assert container["args"] == ARGS.get(role, [role])
        assert container["ports"] == [{"name": "http", "containerPort": PORTS[role]}]
        for probe in ("startup", "readiness", "liveness"):
            got = container[f"{probe}Probe"]["httpGet"]
            assert got["path"] in PAGES
            assert got["scheme"] == ("HTTPS" if setting == "everything" else "HTTP")
        asked = [
            container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")
        ]
        assert asked == ["/startupz", "/readyz", "/livez"]
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 600  # a first start compiles
        waits = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        environment = {one["name"]: one.get("value") for one in container["env"]}
        drain = parse_duration(environment.get("TRIPLETD_SERVE__DRAIN") or "0s")
        assert waits + drain + OPEN_S < spec["terminationGracePeriodSeconds"]
        assert (waits > 0, drain > 0) == (role == "serve", role == "serve")


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_product_takes_what_containers_are_given(
    rendered: dict[str, list[dict[str, Any]]], setting: str, tmp_path: Path
) -> None:
    objects = rendered[setting]
    for role, template in pods(objects):
        config = configuration(objects, template["spec"], tmp_path)
        assert config.shards.count == (0 if setting == "one learner" else 2)
        assert config.stream.partitions >= config.shards.count
        assert config.checkpoints.path == (
            "s3://models/shop"
            if setting in ("bucket", "everything")
            else "/var/lib/tripletd/state/checkpoints"
        )
        mounts = {one["mountPath"] for one in template["spec"]["containers"][0]["volumeMounts"]}
        assert ("/var/lib/tripletd/state" in mounts) == (not config.checkpoints.path.startswith("s3://"))
        assert config.checkpoints.cache.startswith("/var/lib/tripletd/cache/")
        assert config.http.host == "0.0.0.0"
        for of_role, key in (
            ("follow", "feed_port"),
            *((one, f"{one}_port") for one in PORTS if one != "follow"),
        ):
            assert getattr(config.http, key) == PORTS[of_role]
        names = AllowedHosts(config.http.hosts)
        assert names.know("shop-tripletd-serve")
        assert names.know("shop-tripletd-serve.models.svc:80")
        assert not names.know("shop.example.org")
        for path in (config.http.tls_certificate, config.http.tls_key, config.http.tokens):
            assert bool(path) == (setting == "everything")
            assert not path or str(Path(path).parent) in mounts
        assert bool(config.http.unprotected) == (setting != "everything")
        if setting == "everything":
            assert config.stream.kafka.sasl_password.get_secret_value() == "of some length"
            assert config.catalog.secret.get_secret_value() == "of some length"
            assert config.checkpoints.endpoint == "https://minio:9000"
        if role == "follow":
            assert str(Path(config.feed.follow.path).parent) in mounts


def test_a_shard_is_told_its_number_and_one_learner_none(rendered: dict[str, list[dict[str, Any]]]) -> None:
    index = "metadata.labels['apps.kubernetes.io/pod-index']"
    for setting, replicas in (("default", 2), ("one learner", 1)):
        learn = of_kind(rendered[setting], "StatefulSet")["shop-tripletd-learn"]["spec"]
        assert learn["replicas"] == replicas
        assert learn["podManagementPolicy"] == "Parallel"
        told = {
            one["name"]: one.get("valueFrom") for one in learn["template"]["spec"]["containers"][0]["env"]
        }
        expected = {"fieldRef": {"fieldPath": index}} if setting == "default" else None
        assert told.get("TRIPLETD_SHARD") == expected
        merging = "shop-tripletd-merge" in of_kind(rendered[setting], "Deployment")
        assert merging == (setting == "default")


def test_who_selects_pods_selects_those_that_there_are(rendered: dict[str, list[dict[str, Any]]]) -> None:
    for objects in rendered.values():
        labels = [template["metadata"]["labels"] for _, template in pods(objects)]
        for one in objects:
            spec = one.get("spec", {})
            selector = spec.get("selector") or spec.get("podSelector") or {}
            wanted = selector.get("matchLabels", selector) if one["kind"] != "PersistentVolumeClaim" else {}
            assert any(wanted.items() <= one_of.items() for one_of in labels), one["metadata"]["name"]
            if one["kind"] == "HorizontalPodAutoscaler":
                scaled = of_kind(objects, "Deployment")[spec["scaleTargetRef"]["name"]]
                assert "replicas" not in scaled["spec"], "an upgrade would undo what was scaled"
            if one["kind"] == "PodDisruptionBudget":
                assert "minAvailable" not in spec


def test_servers_are_replaced_without_a_gap(rendered: dict[str, list[dict[str, Any]]]) -> None:
    serve = of_kind(rendered["default"], "Deployment")["shop-tripletd-serve"]["spec"]
    assert serve["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    for role in ("merge", "validate"):
        assert of_kind(rendered["default"], "Deployment")[f"shop-tripletd-{role}"]["spec"]["strategy"] == {
            "type": "Recreate"
        }


def test_a_changed_configuration_starts_pods_again_and_makes_another_job() -> None:
    before = render(())
    after = render(("config=[stream]\naddress = 'kafka://kafka:9092/others'",))
    for (_, one), (_, other) in zip(pods(before), pods(after), strict=True):
        if "annotations" in one["metadata"]:
            assert one["metadata"]["annotations"] != other["metadata"]["annotations"]
    assert of_kind(before, "Job").keys() != of_kind(after, "Job").keys()


def test_the_monitor_asks_as_the_ports_want(rendered: dict[str, list[dict[str, Any]]]) -> None:
    (monitor,) = of_kind(rendered["everything"], "PodMonitor").values()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["authorization"]["credentials"] == {"name": "my-metrics", "key": "token"}
    assert endpoint["path"] in PAGES


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("shards.count=-1",), "shards.count"),
        (("shards.cuont=2",), "cuont"),
        (("learn.resouces.limits.memory=1Gi",), "resouces"),
        (("storage.path=/data",), "storage.path"),
        (("storage.cacheSize=many",), "cacheSize"),
        (("http.unprotected=yes",), "unprotected"),
        (("serve.gracePeriodSeconds=24",), "serve.gracePeriodSeconds: at least 10 s more"),
        (("serve.drainSeconds=0",), "drainSeconds"),
        (("config=[stream]",), "kafka:// address"),
        (("kafka.ca=true",), "secrets.kafka"),
        (("secrets.tls.existingSecret=a", "secrets.tls.data.x=b"), "existingSecret or data, not both"),
    ],
)
def test_wrong_values_are_refused_in_words(values: tuple[str, ...], said: str) -> None:
    options = [word for one in values for word in ("--set", one)]
    done = run("template", "shop", str(CHART), "--kube-version", "1.34", *options)
    assert done.returncode != 0
    assert said.rsplit(".", 1)[-1] in done.stderr


def test_the_schema_has_every_value_and_the_version_is_ours() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'version = "{chart["appVersion"]}"' in project


def test_names_stay_short_enough_for_labels() -> None:
    objects = render((), name="a-release-with-a-name-that-is-as-long-as-helm-takes")
    assert all(len(one["metadata"]["name"]) <= 63 for one in objects)

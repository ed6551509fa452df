"""Reading a configuration: file, then environment, then command line; the last one wins.

Relative paths are taken against the file's folder, not wherever the process was started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from daemon.config.learners import learner_keys
from daemon.config.problems import section_problems, unknown_keys
from daemon.config.schema import SECTIONS, Config, Origin
from daemon.config.sources import ENV_PREFIX, Flat, coerce, env_layer, flatten, is_secret, nest, read_toml
from daemon.config.stream import KafkaConfig, StreamConfig
from daemon.config.values import Section
from daemon.exits import EX_CONFIG, EX_USAGE, UserError

RENAMED: Mapping[tuple[str, ...], tuple[str, ...]] = {("serve", "patience"): ("serve", "request_timeout")}
"""Keys under their former names, which are still taken, with a note."""


def resolve_paths(config: Config) -> Config:
    """The configuration with every path absolute.

    A path from the file or a default is relative to the file's folder; one from the environment or
    the command line to the working directory, where whoever typed it stands.
    """
    home = config.file.resolve().parent if config.file else Path.cwd()

    def resolved(key: str, value: str, split: Callable[[str], tuple[str, str, str]]) -> str:
        base = Path.cwd() if config.origin_of(key) in ("env", "cli") else home
        before, path, after = split(value)
        return before + os.path.normpath(base / path) + after if path else value

    stream, catalog = config.stream, config.catalog
    checkpoints, validate = config.checkpoints, config.validate
    address = resolved("stream.address", stream.address, _split_address)
    files = {
        name: resolved(f"stream.kafka.{name}", getattr(stream.kafka, name), _split_plain)
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
    }
    catalog_path = resolved("catalog.path", catalog.path, _split_plain)
    folder = resolved("checkpoints.path", checkpoints.path, _split_folder)
    serve = {
        name: resolved(f"serve.{name}", getattr(config.serve, name), _split_plain)
        for name in ("catalog", "display")
    }
    judgments = resolved("validate.judgments", validate.judgments, _split_judgments)
    return replace(
        config,
        stream=stream.model_copy(update={"address": address, "kafka": stream.kafka.model_copy(update=files)}),
        catalog=catalog.model_copy(update={"path": catalog_path}),
        checkpoints=checkpoints.model_copy(update={"path": folder}),
        validate=validate.model_copy(update={"judgments": judgments}),
        serve=config.serve.model_copy(update=serve),
    )


def _split_folder(value: str) -> tuple[str, str, str]:
    """The address of another store than a folder, `scheme://...`, is left as it is."""
    return (value, "", "") if "://" in value else ("", value, "")


def _split_plain(value: str) -> tuple[str, str, str]:
    return "", value, ""


def _split_judgments(value: str) -> tuple[str, str, str]:
    kind, colon, path = value.partition(":")
    return kind + colon, path, ""


def _split_address(value: str) -> tuple[str, str, str]:
    """Only the embedded log's address holds a path; any other scheme is left as it is."""
    if not value.startswith("log:"):
        return value, "", ""
    path, hash_sign, topic = value[len("log:") :].partition("#")
    return "log:", path, hash_sign + topic


def load_config(
    path: Path | None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The effective configuration.

    Args:
        path: a tripletd.toml; None starts from the defaults.
        overrides: command-line values, nested or dotted ("learner.C"); they win over everything.
        environ: environment to read TRIPLETD_SECTION__KEY from; the process's own when None.

    Relative paths of the file (and of defaults) are relative to the file's folder, those of the
    environment and the command line to the working directory.

    Raises:
        UserError: code 78, with a line for each thing wrong: file or origin, section.key, found, allowed.
    """
    layers: list[tuple[Origin, Flat]] = [
        ("file", dict(flatten(read_toml(path))) if path else {}),
        ("env", env_layer(os.environ if environ is None else environ)),
        ("cli", {tuple(".".join(key).split(".")): value for key, value in flatten(overrides or {})}),
    ]
    merged: Flat = {}
    origins: dict[str, Origin] = {}
    notes: list[str] = []
    for origin, layer in layers:
        for key, value in layer.items():
            now = RENAMED.get(key, key)
            if now != key:
                notes.append(f"{_place(key, {'.'.join(key): origin}, path)}: is called {'.'.join(now)} now")
            if now == key or now not in layer:  # the new name wins over the old one beside it
                merged[now] = value
                origins[".".join(now)] = origin
    _refuse_clashes(merged, origins, path)
    sections = _validated(nest(merged), origins, path)
    config = resolve_paths(Config(**sections, file=path, origins=origins, notes=tuple(notes)))  # type: ignore[arg-type]
    _refuse_unfit_kafka(config.stream, origins, path)
    return config


def parse_setting(text: str) -> tuple[str, Any]:
    """("section.key", typed value) of a `--set section.key=value` argument."""
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        message = f"--set {key}: not of the form section.key=value"
        raise UserError(message, "for example --set learner.C=0.05", EX_USAGE)
    path = tuple(key.strip().split("."))
    if is_secret(path):
        variable = ENV_PREFIX + "__".join(path).upper()
        remedy = f"set {variable}, or {variable}_FILE to the path of a file that holds it"
        raise UserError(f"--set {key}: a command line can be read by everybody here", remedy, EX_USAGE)
    return key.strip(), coerce(path, value.strip())


def _refuse_clashes(merged: Flat, origins: Mapping[str, Origin], path: Path | None) -> None:
    """UserError where one layer gives a table and another a plain value under the same name."""
    for key in merged:
        for above in (key[:length] for length in range(1, len(key))):
            if above in merged and not isinstance(merged[above], Mapping):
                places = f"{_place(above, origins, path)} is given a value, but {_place(key, origins, path)}"
                raise UserError(f"{places} needs a table there", "remove one of the two", EX_CONFIG)


def _refuse_unfit_kafka(stream: StreamConfig, origins: Mapping[str, Origin], path: Path | None) -> None:
    """UserError where [stream.kafka] does not fit together, or stands beside an embedded log.

    A file for a broker may be tried with another address from the command line or the environment.
    """
    if stream.address.startswith("kafka:"):
        place = _place(("stream", "kafka"), origins, path)
        problems = [f"{place}: {sentence}" for sentence in stream.problems()]
        if problems:
            raise UserError("\n".join(problems), "deploy/tripletd.toml explains every key", EX_CONFIG)
        return
    unset = KafkaConfig.model_validate({})
    for name in KafkaConfig.model_fields:
        keys = ("stream.address", f"stream.kafka.{name}")
        in_file = origins.get(keys[0], "file") == origins.get(keys[1]) == "file"
        if in_file and getattr(stream.kafka, name) != getattr(unset, name):
            place = _place(("stream", "kafka", name), origins, path)
            found = f"{place}: of no use with stream.address {stream.address}"
            raise UserError(found, "give a kafka:// address, or remove the key", EX_CONFIG)


def _validated(tree: dict[str, Any], origins: Mapping[str, Origin], path: Path | None) -> dict[str, Section]:
    problems = unknown_keys(tree)
    sections: dict[str, Section] = {}
    for name in SECTIONS:
        table = tree.get(name, {})
        model = learner_keys(table) if name == "learner" else SECTIONS[name]
        try:
            sections[name] = model.model_validate(table)
        except ValidationError as error:
            problems += section_problems(name, error)
    if problems:
        lines = [f"{_place(key, origins, path)}: {sentence}" for key, sentence in problems]
        raise UserError("\n".join(lines), "deploy/tripletd.toml explains every key", EX_CONFIG)
    return sections


def _place(key: tuple[str, ...], origins: Mapping[str, Origin], path: Path | None) -> str:
    dotted = ".".join(key)
    named = dotted if dotted in origins else next((k for k in origins if k.startswith(dotted + ".")), dotted)
    origin = origins.get(named, "file")
    if origin == "env":
        return f"environment TRIPLETD_{named.replace('.', '__').upper()}: {dotted}"
    if origin == "cli":
        return f"command line: {dotted}"
    return f"{path or 'configuration'}: {dotted}"

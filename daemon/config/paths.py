"""Relative paths in a configuration: against the file's folder, not wherever the process was started."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from daemon.config.model import Config


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
    folder = resolved("checkpoints.path", checkpoints.path, _split_plain)
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

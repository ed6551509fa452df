"""The server overrides hooks that uvicorn does not promise: each is there in the version in use."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from daemon.serve.http.server import LimitedConnection

ROOT = Path(__file__).parents[4]
HOOKS = [
    "connection_lost",
    "connection_made",
    "data_received",
    "on_body",
    "on_header",
    "on_headers_complete",
    "on_message_begin",
    "on_message_complete",
    "on_response_complete",
    "pause_writing",
    "resume_writing",
    "shutdown",
    "send_400_response",
    "_unsupported_upgrade_warning",
]
ATTRIBUTES = ["connections", "client", "cycle", "headers", "loop", "parser", "pipeline", "transport", "url"]
OF_A_CYCLE = ["disconnected", "more_body", "response_complete", "response_started"]


def assigned(owner: Any) -> set[str]:
    """Attributes that a class gives its instances."""
    nodes = ast.walk(ast.parse(inspect.getsource(owner)))
    return {
        node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }


@pytest.mark.parametrize("name", HOOKS)
def test_uvicorn_calls_what_is_overridden(name: str) -> None:
    assert hasattr(HttpToolsProtocol, name), f"uvicorn {uvicorn.__version__} has no {name}"
    if name in ("send_400_response", "_unsupported_upgrade_warning"):  # asyncio and httptools call the others
        called = f"self.{name}(" in inspect.getsource(HttpToolsProtocol)
        assert called, f"uvicorn {uvicorn.__version__} does not call {name}"


def test_uvicorn_asks_connections_to_shut_down_after_it_has_stopped_listening() -> None:
    source = inspect.getsource(uvicorn.Server.shutdown)
    assert 0 < source.index("server.close()") < source.index("connection.shutdown()")


def test_nothing_else_of_uvicorn_is_overridden() -> None:
    ours = set(vars(LimitedConnection)) - {"__init__"}
    theirs = {name for name, _ in inspect.getmembers(HttpToolsProtocol, inspect.isfunction)}
    assert ours & theirs == set(HOOKS)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_the_protocol_has_what_is_read(name: str) -> None:
    assert name in assigned(HttpToolsProtocol), f"uvicorn {uvicorn.__version__} has no {name}"


@pytest.mark.parametrize("name", OF_A_CYCLE)
def test_a_cycle_has_what_is_read(name: str) -> None:
    assert name in assigned(RequestResponseCycle), f"uvicorn {uvicorn.__version__}: a cycle has no {name}"


def test_no_later_version_is_installed_unseen() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = [one for one in wanted if one.startswith("uvicorn")]
    found = re.fullmatch(r"uvicorn>=0\.\d+,<0\.(\d+)", bound)
    assert found is not None, bound
    assert int(uvicorn.__version__.split(".")[1]) == int(found[1]) - 1

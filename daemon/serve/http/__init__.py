"""Serving over HTTP."""

from daemon.serve.http.app import Parts, create_app
from daemon.serve.http.limits import Limits
from daemon.serve.http.ports import Ports
from daemon.serve.http.server import HttpServer, serve

__all__ = ["HttpServer", "Limits", "Parts", "Ports", "create_app", "serve"]

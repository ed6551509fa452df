"""Serving over HTTP."""

from daemon.serve.http.app import create_app
from daemon.serve.http.limits import HttpLimits
from daemon.serve.http.parts import LocalModel, Parts, Writes
from daemon.serve.http.server import HttpServer, serve

__all__ = ["HttpLimits", "HttpServer", "LocalModel", "Parts", "Writes", "create_app", "serve"]

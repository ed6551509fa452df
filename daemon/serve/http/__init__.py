"""Serving over HTTP."""

from daemon.serve.http.app import Parts, create_app
from daemon.serve.http.limits import HttpLimits
from daemon.serve.http.server import HttpServer, serve

__all__ = ["HttpLimits", "HttpServer", "Parts", "create_app", "serve"]

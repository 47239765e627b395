"""The private PostgreSQL server that serves when no database URL is set."""

from evenbeat.embedded.server import EmbeddedServer, start

__all__ = ["EmbeddedServer", "start"]

"""PgQueuer once more, with the batch size that it has by default: only the drain differs."""

from peers import pgqueuer
from peers.pgqueuer import Client, left, setup

NAME = "pgqueuer_default"
TITLE = "PgQueuer, default batch"
PACKAGES = ("pgqueuer", "asyncpg", "uvloop")
REQUIREMENTS = ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0")
NEEDS = "postgres"
DURABLE = True
NOTE = "as PgQueuer, but batch_size=10"
UNSUPPORTED = dict.fromkeys(
    ("single", "pickup", "load", "recurring", "crash"), "as with any batch size: see PgQueuer"
)

__all__ = ["Client", "left", "setup", "worker"]


def worker(url: str, concurrency: int | None) -> None:
    """One process, as it comes."""
    pgqueuer.BATCH = 10
    pgqueuer.worker(url, concurrency)

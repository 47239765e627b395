"""Processes that were forked after the database was opened, under a real server."""

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fleet import FULL

from waiting import wait_for

READS = 10_000 if FULL else 1_000


@pytest.fixture
def preloaded(database_url: str) -> Iterator[str]:
    """The address of four gunicorn processes, forked from one that has used its database."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*free.getsockname())
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "4"]
    server = subprocess.Popen(
        [*command, "--bind", address, "--log-level", "error", "preloaded:application"],
        cwd=Path(__file__).parent,
        env=os.environ | {"EVENBEAT_DATABASE_URL": database_url},
    )
    try:
        wait_for(lambda: _is_up(f"http://{address}"), "gunicorn is up")
        yield f"http://{address}"
    finally:
        server.terminate()
        server.wait(30)


def _is_up(address: str) -> bool:
    try:
        return httpx.get(address).status_code == 200
    except httpx.TransportError:
        return False


def test_gunicorn_with_preload_answers_each_request_with_its_own_job(preloaded):
    ids = httpx.get(preloaded).json()

    def read(id_: str) -> tuple[bool, int]:
        body = client.get(f"{preloaded}/{id_}").raise_for_status().json()
        return body["id"] == id_ and body["n"] == body["expected"], body["pid"]

    asked = itertools.islice(itertools.cycle(ids), READS)
    with httpx.Client(timeout=30) as client, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(read, asked))
    assert [right for right, _ in answers] == [True] * READS
    assert len({pid for _, pid in answers}) > 1

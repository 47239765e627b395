"""`evenbeat worker --metrics-port`: metrics and health of real processes, over real HTTP."""

import re
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from real_processes import Start

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.store.store import Store
from waiting import wait_for

APP = """
from evenbeat import Evenbeat

app = Evenbeat()

@app.task
async def greet(): pass
"""

WORKER = ("-m", "evenbeat", "worker", "--app", "shop:app")


@pytest.fixture
def environment(tmp_path: Path, database_url: str) -> dict[str, str]:
    (tmp_path / "shop.py").write_text(APP)
    return {"EVENBEAT_DATABASE_URL": database_url}


def completed(url: str) -> float:
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    wanted = {"task": "greet", "outcome": "completed"}
    return next(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "evenbeat_executions_total" and sample.labels == wanted
    )


def test_a_worker_serves_its_metrics_and_health(
    start: Start, environment: dict[str, str], store: Store
):
    running = start(*WORKER, "--metrics-port", "0", **environment)
    line = running.wait_for_line("Serving metrics")
    url = re.search(r"url=(http://127\.0\.0\.1:\d+)/metrics", line)[1]
    running.wait_for_line("Starting interval scheduler")
    wait_for(lambda: httpx.get(f"{url}/readyz").status_code == 200, "readiness")
    assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{url}/readyz").json()["checks"] == {
        "database": "ok",
        "schema": "ok",
        "worker": "ok",
    }
    assert completed(url) == 0
    store.add(NewJob(JobSpec("greet")))
    wait_for(lambda: completed(url) == 1, "the run to be counted")
    head = httpx.head(f"{url}/metrics")
    assert (head.status_code, head.content) == (200, b"")
    assert httpx.get(f"{url}/else").status_code == 404
    assert httpx.post(f"{url}/metrics").status_code == 501
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as rude:
        rude.sendall(b"\x00\xff nonsense\r\n\r\n")
        assert b"400" in rude.recv(1000)
    assert running.stop() == 0


def test_each_process_takes_a_port(start: Start, environment: dict[str, str]):
    with socket.create_server(("127.0.0.1", 0)) as free:
        first = free.getsockname()[1]
    options = ("--processes", "2", "--metrics-port", str(first))
    running = start(*WORKER, *options, **environment)
    for port in (first, first + 1):
        url = f"http://127.0.0.1:{port}"
        running.wait_for_line(f"url={url}/metrics")
        wait_for(lambda url=url: httpx.get(f"{url}/readyz").status_code == 200, url)
    assert running.stop() == 0


def test_a_port_that_is_taken_is_refused_at_once(start: Start, environment: dict[str, str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = start(*WORKER, "--metrics-port", str(port), **environment)
        assert running.exit_code() == 2
    assert f"Cannot serve metrics on 127.0.0.1, port {port}" in running.text
    assert "Traceback" not in running.text


def test_ports_must_suffice(start: Start, environment: dict[str, str]):
    options = ("--processes", "3", "--metrics-port", "65534")
    running = start(*WORKER, *options, **environment)
    assert running.exit_code() == 2
    assert "leaves no room for 3 processes" in running.text


def test_silent_lines_take_no_more_than_a_few_threads(start: Start, environment: dict[str, str]):
    running = start(*WORKER, "--metrics-port", "0", **environment)
    line = running.wait_for_line("Serving metrics")
    port = int(re.search(r":(\d+)/metrics", line)[1])
    wait_for(lambda: httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200, "readiness")
    process = psutil.Process(running.process.pid)
    before = most = process.num_threads()
    with ExitStack() as stack:
        for number in range(250):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            silent.sendall([b"", b"GET /metrics HTTP/1.1\r\n"][number % 2])
            most = max(most, process.num_threads())
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=20).status_code == 200
    assert most < before + 100
    assert "Traceback" not in running.text
    assert running.stop() == 0

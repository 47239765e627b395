"""Live events: a real stream from a real server, and a broadcaster that nothing can make grow."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.routing import Mount
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.api import live_events
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.api.dependencies import Service
from evenbeat.api.live_events import MOST_WAITING, Broadcaster, LiveEvent, Subscriber
from evenbeat.engine.worker import Worker
from loopback import served
from waiting import PATIENCE, wait_for


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_events, "POLL_SECONDS", 0.05)


def told(lines: Iterator[str]) -> Iterator[tuple[str, str, Any]]:
    """The events of a stream: id, kind, data."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line == "" and "event" in fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}
        elif name:
            fields[name] = value


def test_a_run_is_seen_from_its_start_to_its_end(
    api: FastAPI, client: TestClient, worker: Worker, token_for: Callable[[str], str]
) -> None:
    headers = {"Authorization": f"Bearer {token_for('viewer')}"}
    outer = Starlette(routes=[Mount("/prefix", api)])
    job = client.post("/api/v1/jobs", json={"task": "waits", "delay": "1h"}).json()
    other = client.post("/api/v1/jobs", json={"task": "nothing", "delay": "1h"}).json()
    with served(outer) as url, httpx.Client(headers=headers, timeout=PATIENCE) as http:
        place = f"{url}/prefix/api/v1/events"
        with (
            http.stream("GET", place) as all_of_it,
            http.stream("GET", place, params={"job_id": job["id"]}) as one,
        ):
            assert all_of_it.headers["content-type"].startswith("text/event-stream")
            events, of_one = told(all_of_it.iter_lines()), told(one.iter_lines())
            assert next(events)[1] == "figures"
            client.post(f"/api/v1/jobs/{other['id']}/run")
            while next(events)[2].get("job_id") != other["id"]:
                pass
            client.post(f"/api/v1/jobs/{job['id']}/run")
            seen = []
            while "cancelled" not in seen:
                _, kind, data = next(of_one)
                if kind == "execution":
                    assert (data["job_id"], data["task"]) == (job["id"], "waits")
                    seen.append(data["status"])
                    if data["status"] == "running":
                        client.post(f"/api/v1/jobs/{job['id']}/cancel")
            assert seen == ["running", "cancelled"]


def test_one_who_comes_back_goes_on_where_it_left(
    api: FastAPI, client: TestClient, token_for: Callable[[str], str]
) -> None:
    headers = {"Authorization": f"Bearer {token_for('viewer')}"}
    with served(api) as url, httpx.Client(headers=headers, timeout=PATIENCE) as http:
        with http.stream("GET", f"{url}/api/v1/events") as stream:
            last_id, kind, _ = next(told(stream.iter_lines()))
            assert kind == "figures"
        client.post("/api/v1/jobs", json={"task": "nothing"})
        broadcaster: Broadcaster = api.state.broadcaster
        wait_for(lambda: len(broadcaster._history) >= 2, "the news")
        back = {"Last-Event-ID": last_id}
        with http.stream("GET", f"{url}/api/v1/events", headers=back) as stream:
            _, kind, data = next(told(stream.iter_lines()))
            assert (kind, data["jobs"]["pending"]) == ("figures", 1)
        strange = {"Last-Event-ID": "from another life"}
        with http.stream("GET", f"{url}/api/v1/events", headers=strange) as stream:
            assert next(told(stream.iter_lines()))[1] == "reset"


def test_those_who_leave_are_forgotten_and_the_poll_ends(
    api: FastAPI, token_for: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_events, "LINGER_SECONDS", 0.1)
    headers = {"Authorization": f"Bearer {token_for('viewer')}"}
    with served(api) as url, httpx.Client(headers=headers, timeout=PATIENCE) as http:
        with http.stream("GET", f"{url}/api/v1/events") as stream:
            events = told(stream.iter_lines())  # kept: a dropped iterator hangs up
            next(events)
            broadcaster: Broadcaster = api.state.broadcaster
            assert (len(broadcaster.subscribers), broadcaster.polling) == (1, True)
        wait_for(
            lambda: (len(broadcaster.subscribers), broadcaster.polling) == (0, False),
            "the poll to end",
        )


def test_the_poll_ends_with_the_application_and_without_a_word(
    app: Evenbeat, caplog: pytest.LogCaptureFixture
) -> None:
    broadcaster = Broadcaster(Service(app, Access.open()))

    async def join() -> None:
        broadcaster.join(Subscriber(None))

    asyncio.run(join())
    wait_for(lambda: broadcaster._history, "the first poll")
    assert broadcaster.polling
    app.close()
    wait_for(lambda: not broadcaster.polling, "the poll to end")
    assert [r.getMessage() for r in caplog.records if r.name == live_events.__name__] == []


def test_a_stream_needs_a_token_and_a_job(client: TestClient, client_for: Any) -> None:
    assert client_for(None).get("/api/v1/events").status_code == 401
    nobody = "01890000-0000-7000-8000-000000000000"
    assert client.get("/api/v1/events", params={"job_id": nobody}).status_code == 404
    assert client.get("/api/v1/events", params={"job_id": "x"}).status_code == 422


def test_a_stream_ends_with_its_token(
    api: FastAPI, access: Any, token_for: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.api.live_events.QUIET_SECONDS", 0.1)
    headers = {"Authorization": f"Bearer {token_for('viewer')}"}
    with served(api) as url, httpx.stream("GET", f"{url}/api/v1/events", headers=headers) as stream:
        lines = stream.iter_lines()
        while not next(lines).startswith(": still here"):
            pass
        access.revoke(access.tokens()[0].id)
        assert all(isinstance(line, str) for line in lines)


def test_one_caller_cannot_take_every_place(
    api: FastAPI, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("MOST_SUBSCRIBERS", 6), ("MOST_PER_CALLER", 3), ("FOR_NEW_CALLERS", 2)):
        monkeypatch.setattr(live_events, name, number)
    broadcaster: Broadcaster = api.state.broadcaster
    tokens = {name: access.issue(Role.VIEWER, timedelta(hours=1), subject=name).token
              for name in ("ann", "bob", "cy", "dee")}  # fmt: skip
    with served(api) as url, ExitStack() as streams:
        http = streams.enter_context(httpx.Client(timeout=PATIENCE))

        def ask(name: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            request = http.build_request("GET", f"{url}/api/v1/events", headers=headers)
            response = http.send(request, stream=True)
            streams.callback(response.close)
            return response

        def status(name: str) -> int:
            return ask(name).status_code

        assert [status("ann") for _ in range(3)] == [200, 200, 200]
        refused = ask("ann")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert refused.headers["content-type"] == "application/problem+json"
        assert "3 event streams" in json.loads(refused.read())["detail"]
        assert [status("bob"), status("bob")] == [200, 503]  # the last two are for others
        assert [status("cy"), status("dee"), status("dee")] == [200, 200, 503]
        assert len(broadcaster.subscribers) == 6
    with served(api) as url, httpx.Client(timeout=PATIENCE) as http:
        wait_for(lambda: not broadcaster.subscribers, "all to be forgotten")
        headers = {"Authorization": f"Bearer {tokens['ann']}"}
        with http.stream("GET", f"{url}/api/v1/events", headers=headers) as stream:
            assert stream.status_code == 200


def test_a_client_that_leaves_before_its_stream_begins_keeps_no_place(
    api: FastAPI, token_for: Callable[[str], str]
) -> None:
    broadcaster: Broadcaster = api.state.broadcaster

    async def gone(_message: Any) -> None:
        raise OSError

    async def nothing() -> Any:
        return {"type": "http.request"}

    token = f"Bearer {token_for('viewer')}".encode()
    scope = {
        "type": "http", "method": "GET", "path": "/api/v1/events", "query_string": b"",
        "headers": [(b"authorization", token)], "app": api, "asgi": {"spec_version": "2.4"},
    }  # fmt: skip
    with pytest.raises(ClientDisconnect):
        asyncio.run(api(scope, nothing, gone))
    assert broadcaster.subscribers == set()


def test_a_slow_subscriber_gets_a_summary() -> None:
    async def listen() -> list[LiveEvent]:
        subscriber = Subscriber(None)
        subscriber.send(LiveEvent(str(n), "execution", "{}") for n in range(MOST_WAITING + 1))
        subscriber.send([LiveEvent("last", "execution", "{}")])
        return await subscriber.take(1)

    summary, last = asyncio.run(listen())
    assert (summary.kind, json.loads(summary.data)) == ("summary", {"dropped": MOST_WAITING + 1})
    assert last.id == "last"


def test_too_much_in_one_second_becomes_a_summary(
    app: Evenbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = live_events.Poller(app.store, Service(app, Access.open()))
    assert [event.kind for event in poll.run_once({None})] == ["figures"]
    with app.store.database.transaction() as connection:
        connection.execute("""
            INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, completed_at,
                                             worker_id, execution_number, status)
            SELECT evenbeat.uuid7(now()), gen_random_uuid(), now(), now(), now(),
                   gen_random_uuid(), 1, 'completed'
            FROM generate_series(1, 1500)""")
    events = poll.run_once({None})
    assert [event.kind for event in events] == ["summary"]
    assert json.loads(events[0].data) == {"started_at_least": 1001}

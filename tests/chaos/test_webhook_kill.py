"""`kill -9` around a webhook: what was stored with the end of a run is delivered, once."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import SHORT_LEASE, Fleet, job

from evenbeat.domain.webhooks import message_id
from evenbeat.store.store import Store

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from loopback_site import Seen, Site, serving

from waiting import wait_for

RECEIVING: dict[str, Any] = {"allow_private_addresses": "true", **SHORT_LEASE}
COUNT = 10


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


def accepting(site: Site, stall: Callable[[int], bool] = lambda _number: False) -> list[str]:
    """The ids of messages that were answered with 2xx; requests may stall before their answer."""
    accepted: list[str] = []

    def answer(seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if stall(len(site.seen)):
            site.gate.wait(60)
            return 500, {}, b""  # whoever asked is dead
        accepted.append(seen.headers["webhook-id"])
        return 204, {}, b""

    site.answers["/hook"] = answer
    return accepted


def messages(store: Store, webhook_id: Any, *states: str) -> list[str]:
    page = store.webhooks.messages(webhook_id, states=states or None, limit=1000)
    return [message_id(message.id) for message in page.messages]


def test_a_worker_killed_between_the_ends_and_the_deliveries_loses_none(
    fleet: Fleet, store: Store, site: Site
) -> None:
    accepted = accepting(site)
    hook = store.webhooks.add(f"{site.url}/hook", ["job.completed"])
    store.add_many([job("nap")] * COUNT)
    worker = fleet.start(queues=["default"], **RECEIVING)  # it runs the jobs, and delivers nothing
    wait_for(lambda: len(messages(store, hook.id)) == COUNT, "every end is stored")
    worker.kill()
    assert accepted == []

    fleet.start(**RECEIVING)

    wait_for(lambda: len(messages(store, hook.id, "delivered")) == COUNT, "all are delivered")
    assert sorted(accepted) == sorted(messages(store, hook.id))
    assert len(set(accepted)) == len(accepted) == len(site.seen) == COUNT


def test_a_worker_killed_while_it_delivers_is_followed_by_one_that_does(
    fleet: Fleet, store: Store, site: Site
) -> None:
    accepted = accepting(site, stall=lambda number: number <= COUNT)
    hook = store.webhooks.add(f"{site.url}/hook", ["job.completed"])
    store.add_many([job("nap")] * COUNT)
    worker = fleet.start(**RECEIVING)
    wait_for(lambda: len(site.seen) == COUNT, "every delivery is under way")
    worker.kill()
    assert accepted == []

    fleet.start(**RECEIVING)

    wait_for(lambda: len(messages(store, hook.id, "delivered")) == COUNT, "all are delivered")
    assert sorted(accepted) == sorted(messages(store, hook.id))
    assert len(set(accepted)) == len(accepted) == COUNT
    first, second = site.seen[:COUNT], site.seen[COUNT:]
    assert {s.headers["webhook-id"] for s in first} == {s.headers["webhook-id"] for s in second}

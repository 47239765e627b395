"""Runs in the application context of a Flask application."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from flask import Flask, current_app, g

from evenbeat import Evenbeat
from evenbeat.contrib.flask import use_app_context
from evenbeat.domain.execution import Execution


def made() -> Flask:
    flask = Flask("shop")
    flask.config["CURRENCY"] = "EUR"
    flask.extensions["ended"] = []

    @flask.teardown_appcontext
    def note(error: BaseException | None) -> None:
        flask.extensions["ended"].append(error)

    return flask


ISOLATED = Evenbeat(name="isolated")
use_app_context(ISOLATED, made)


@ISOLATED.task(isolate=True)
def isolated() -> str:
    return str(current_app.config["CURRENCY"])


def last_run(app: Evenbeat, job_id: UUID) -> Execution:
    return app.store.read.executions_of(job_id).executions[0]


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_handlers_have_current_app_and_a_g_of_their_own(evenbeat_harness, place):
    app, flask = Evenbeat(name="shop"), made()
    use_app_context(app, flask)

    def price(works: bool) -> str:
        assert not hasattr(g, "user")
        g.user = "somebody"
        if not works:
            raise ConnectionError("no shop")
        return f"7 {current_app.config['CURRENCY']}"

    if place == "loop":

        @app.task(name="price", max_retries=0)
        async def task(works: bool) -> str:
            await asyncio.sleep(0)
            return price(works)
    else:
        task = app.task(price, max_retries=0)

    harness = evenbeat_harness(app)
    first = task.enqueue(True)
    harness.drain()
    second = task.enqueue(False)
    harness.drain()
    assert last_run(app, first.id).result == "7 EUR"
    assert last_run(app, second.id).error_message == "no shop"
    ended: list[Any] = flask.extensions["ended"]
    assert [str(error) for error in ended] == ["None", "no shop"]


def test_a_function_that_makes_the_application_is_called_once(evenbeat_harness):
    app, calls = Evenbeat(name="shop"), []

    def make() -> Flask:
        calls.append(1)
        return made()

    use_app_context(app, make)

    @app.task
    def currency() -> str:
        return str(current_app.config["CURRENCY"])

    harness = evenbeat_harness(app)
    assert calls == []
    added = app.enqueue_many([currency.job() for _ in range(20)])
    harness.drain()
    assert {last_run(app, one.id).result for one in added} == {"EUR"}
    assert calls == [1]


def test_isolated_runs_have_it_too(evenbeat_harness):
    harness = evenbeat_harness(ISOLATED)
    added = isolated.enqueue()
    harness.drain()
    assert last_run(ISOLATED, added.id).result == "EUR"

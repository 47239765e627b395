"""Mistakes that everybody makes once: what is said names the argument, what is allowed, and what to
do."""

import base64
import functools
import logging
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from socket import socket
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID, uuid4

import pytest
from pydantic import (
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    Field,
    Json,
    PlainSerializer,
    SecretStr,
)

from evenbeat import Context, Evenbeat, NewJob
from evenbeat.errors import InvalidInput
from evenbeat.store.database import Database

if TYPE_CHECKING:
    from collections import OrderedDict

    from evenbeat import Context as Ctx


@pytest.fixture
def app() -> Evenbeat:
    return Evenbeat("postgresql:///nowhere")


def said(function, *args, **kwargs) -> str:
    with pytest.raises(InvalidInput) as caught:
        function(*args, **kwargs)
    return str(caught.value)


# -- payloads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [object(), lambda: 1, len, sys.stdout, 1j])
def test_a_value_that_json_cannot_carry_is_named(app, value):
    @app.task
    def keep(first: int, thing): ...

    text = said(keep.enqueue, 1, thing=value)
    assert "argument 'thing'" in text
    assert type(value).__name__ in text


def circle() -> list:
    ring: list = [1]
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({"a": [1, {"b": object()}]}, "thing.a.1.b", "id or a path"),
        ({"a": {"b": b"\xff"}}, "thing.a.b", "base64.b64encode"),
        ({"a": circle()}, "thing.a", "circle"),
        ({"a": {"b": datetime.now(UTC)}}, "thing.a.b", "datetime"),
        ([{"b": [float("nan")]}], "thing.0.b.0", "nan"),
        ([{"b": {1: "x"}}], "thing.0.b", "key 1"),
        ({"a": Decimal}, "thing.a", "type type"),
    ],
)
@pytest.mark.parametrize("annotation", [Any, object, dict | list, dict[str, Any] | list[Any]])
def test_the_message_leads_to_the_part_that_is_wrong(app, value, path, words, annotation):
    def keep(thing): ...

    keep.__annotations__["thing"] = annotation
    text = said(app.task(keep).enqueue, value)
    assert f"argument {path!r}" in text
    assert words in text


def test_bytes_that_are_no_text_are_named_with_a_way_out(app):
    @app.task
    def keep(name: str, raw: bytes): ...

    text = said(keep.enqueue, "x", b"\xff\xfe")
    assert "argument 'raw'" in text
    assert "Base64Bytes" in text

    @app.task
    def keep_all(raw: Base64Bytes): ...

    payload = keep_all.job(base64.b64encode(b"\xff\xfe")).payload
    assert keep_all.definition.signature.decode(payload) == {"raw": b"\xff\xfe"}


@dataclass
class Order:
    id: UUID
    notes: Any = None


class Customer(BaseModel):
    name: str
    since: date
    note: str = Field("", exclude=True)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dict[int, str], {1: "a"}),
        (dict[date, set[int]], {date(2030, 1, 1): {1, 2}}),
        (datetime, datetime.now(UTC)),
        (Decimal, Decimal("1.50")),
        (Order, Order(uuid4(), [1, {"a": None}])),
        (list[Customer], [Customer(name="Ada", since=date(2030, 1, 1), note="other")]),
        (Iterable[int], [1, 2]),
        (Annotated[complex, PlainSerializer(str), BeforeValidator(complex)], 1 + 2j),
        (Any, (1, "a", (2.5, None))),
    ],
)
def test_what_arrives_as_it_was_sent_is_taken(app, annotation, value):
    def keep(thing): ...

    keep.__annotations__["thing"] = annotation
    task = app.task(keep)
    task.definition.signature.decode(task.job(value).payload)


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (datetime | str, datetime.now(UTC), "argument 'thing' is of the type datetime, but"),
        (
            Order,
            Order(uuid4(), datetime.now(UTC)),
            "argument 'thing.notes' is of the type datetime, but",
        ),
        (SecretStr, "hunter2", "would reach the handler with another value"),
        (Json, '{"a": 1}', "would be refused by the worker: argument 'thing'"),
    ],
)
def test_what_would_arrive_as_something_else_is_refused_whatever_the_annotation(
    app, annotation, value, words
):
    def keep(thing): ...

    keep.__annotations__["thing"] = annotation
    text = said(app.task(keep).enqueue, value)
    assert words in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime.now(UTC), "datetime"),
        (uuid4(), "UUID"),
        (Decimal("1.5"), "Decimal"),
        ({1, 2}, "set"),
        ({"deep": [datetime.now(UTC)]}, "datetime"),
    ],
)
def test_what_a_worker_could_not_make_again_needs_an_annotation(app, value, kind):
    @app.task
    def keep(n: int, when): ...

    text = said(keep.enqueue, 1, value)
    assert "argument 'when" in text
    assert kind in text
    assert "annotat" in text.lower()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"x": float("-inf")}]])
def test_numbers_that_are_none_are_refused(app, value):
    @app.task
    def keep(x): ...

    @app.task
    def keep_float(x: float): ...

    assert "argument 'x" in said(keep.enqueue, value)
    if isinstance(value, float):
        assert "argument 'x'" in said(keep_float.enqueue, value)


def test_keys_that_are_no_texts_are_refused(app):
    @app.task
    def keep(table): ...

    text = said(keep.enqueue, {1: "a"})
    assert "argument 'table'" in text
    assert "key 1" in text


def test_plain_values_need_no_annotation(app):
    @app.task
    def keep(a, b=None, **more): ...

    payload = {"a": [1, 2.5, True, None, "x", (1, 2)], "b": {"c": {}}, "d": "e"}
    assert keep.job(**payload).payload["a"][:5] == [1, 2.5, True, None, "x"]
    assert "argument 'd'" in said(keep.job, a=1, d={1: 2})


def test_an_annotation_that_cannot_be_read_leaves_the_others_checked(app, caplog):
    def keep(n: int, table: "OrderedDict[str, int]", ctx: "Ctx") -> None: ...

    with caplog.at_level(logging.WARNING):
        task = app.task(keep)
    assert "argument 'n'" in said(task.enqueue, "not an int", {})
    assert task.job(1, {"a": 1}).payload == {"n": 1, "table": {"a": 1}}
    assert task.definition.signature.context_name == "ctx"
    assert "'OrderedDict[str, int]'" in caplog.text
    assert "'table'" in caplog.text


class Parcel(BaseModel):
    items: "OrderedDict[str, int]"


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (list[socket], "'thing': list[socket.socket]. Take what the handler can load it by"),
        (Parcel, "'thing': test_mistakes.Parcel. 'OrderedDict' in it is not known"),
    ],
)
def test_an_annotation_that_json_cannot_carry_is_named_with_its_argument(app, annotation, words):
    def keep(n: int, thing, other: str = ""): ...

    keep.__annotations__["thing"] = annotation
    text = said(app.task, keep)
    assert words in text
    assert "model_" not in text


def test_a_context_by_another_name_is_one(app):
    def keep(n: int, run: "Context") -> None: ...

    keep.__annotations__["n"] = "Unknown"
    assert app.task(keep).definition.signature.context_name == "run"


# -- handlers ------------------------------------------------------------------------------------


def tell(name: str, text: str = "") -> None: ...


class Mailer:
    def send(self, to: str) -> None: ...


class Letter:
    def __call__(self, to: str) -> None: ...


def test_a_handler_without_a_name_of_its_own_gets_one(app):
    assert "name=" in said(app.task, lambda: None)
    assert "name=" in said(app.task, functools.partial(tell, "Ada"))
    assert app.task(functools.partial(tell, "Ada"), name="tell").name == "tell"


def test_what_is_no_function_is_no_handler(app):
    assert "@app.task(name='send')" in said(app.task, "send")
    assert "needs a function, got 3." in said(app.task, 3)
    assert "around=[" in said(app.task, tell, around=print)


def test_arguments_of_a_schedule_are_a_document(app):
    assert "payload is of the type list" in said(app.every("1h", payload=[1]), tell)


def test_a_method_is_no_handler(app):
    assert "'self'" in said(app.task, Mailer.send)
    assert app.task(Mailer().send).job("ada").payload == {"to": "ada"}


def test_an_isolated_handler_must_be_found_by_its_child(app):
    def nested() -> None: ...

    for handler in (nested, lambda: None, functools.partial(tell, "Ada"), Mailer().send, Letter()):
        assert "top level" in said(app.task, handler, name="handler", isolate=True)
    assert app.task(nested).name == "nested"
    assert app.task(tell, isolate=True).name == "tell"


def test_two_schedules_of_one_name_are_refused(app):
    @app.every("1h", schedule_name="nightly")
    def one() -> None: ...

    def two() -> None: ...

    text = said(app.cron("@daily", schedule_name="nightly"), two)
    assert "'nightly'" in text
    assert "schedule_name" in text
    assert app.declared["nightly"].spec.task == "one"


def test_one_task_cannot_have_two_schedules_of_one_name(app):
    @app.every("1h", schedule_name="nightly")
    def one() -> None: ...

    text = said(app.cron("@daily", schedule_name="nightly"), one)
    assert "'nightly'" in text
    assert "schedule_name" in text
    assert len(app.declared) == 1


def test_decorators_can_be_stacked_and_each_schedule_has_a_name(app):
    @app.every("1h", priority=80, payload={"why": "hourly"})
    @app.every("1d", schedule_name="daily")
    @app.cron("0 3 * * *", priority=20)
    def both(why: str = "?") -> str:
        return why

    assert both("me") == "me"
    assert [*app.declared] == ["both", "daily", "both-2"]
    assert {one.spec.task for one in app.declared.values()} == {"both"}
    assert [one.spec.priority for one in app.declared.values()] == [20, 20, 80]
    assert app.declared["both-2"].payload == {"why": "hourly"}
    assert both.spec.priority == 20


@pytest.mark.parametrize("option", [{"name": "x"}, {"isolate": True}])
def test_what_belongs_to_the_task_goes_to_the_innermost_decorator(app, option):
    @app.cron("0 3 * * *")
    def both() -> None: ...

    text = said(app.every("1h", **option), both)
    assert repr(next(iter(option))) in text
    assert "innermost" in text
    assert "innermost" in said(app.task, both)
    assert "another application" in said(Evenbeat("postgresql:///other").every("1h"), both)


# -- enqueueing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["2030-01-01T00:00:00Z", date(2030, 1, 1), datetime(2030, 1, 1)])  # noqa: DTZ001
def test_run_at_is_a_moment(app, value):
    @app.task
    def send() -> None: ...

    text = said(send.options, run_at=value)
    assert text.startswith("run_at must be a datetime with a time zone")


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ([1], "metadata is of the type list, but must be a dict"),
        ({1: "a"}, "metadata has the key 1, but must be a dict"),
    ],
)
def test_metadata_are_a_document(app, metadata, words):
    @app.task
    def send() -> None: ...

    assert words in said(send.options(metadata=metadata).job)
    assert words in said(NewJob, send.spec, metadata=metadata)


def test_a_part_of_the_metadata_that_is_no_json_is_named(app):
    @app.task
    def send() -> None: ...

    wrong = {"a": {"b": [1, object()]}}
    with app.eager():
        text = said(send.options(metadata=wrong).enqueue)
        assert text.startswith("metadata.a.b.1 cannot be stored as JSON: ")
        text = said(send.options(metadata={"a": float("nan")}).enqueue)
        assert text.startswith("metadata.a cannot be stored as JSON: ")


def test_a_scope_is_more_than_a_name(app):
    @app.task
    def send() -> None: ...

    for call in (
        send.options(scope="acme").job,
        lambda: app.jobs.list(scope="acme"),
        lambda: app.schedules.count(scope="acme"),
    ):
        assert 'Scope("tenant", "acme"); got \'acme\'' in said(call)


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"queue": 3}, "queue must be a text or a list of texts, such as queue=['queue']; got 3."),
        ({"task": [3]}, "task must be a text or a list of texts"),
        ({"task": []}, "task is an empty list"),
        ({"due_before": "2030-01-01"}, "due_before must be a datetime with a time zone"),
        ({"created_after": date(2030, 1, 1)}, "created_after must be a datetime"),
        ({"status": "runing"}, "status must be one of pending, "),
    ],
)
def test_a_filter_that_means_nothing_is_named(app, filters, words):
    assert words in said(app.jobs.list, **filters)


def test_enqueue_many_takes_jobs_that_are_not_added_yet(app):
    @app.task
    def send(n: int = 1) -> None: ...

    text = said(app.enqueue_many, [send])
    assert "send.job(" in text
    assert "job(...)" in said(app.enqueue_many, ["send"])
    assert "job(...)" in said(app.enqueue_many, [uuid4()])
    text = said(app.enqueue_many, send.job())
    assert "[job]" in text
    assert "JobSpec" not in text
    assert "a list" in said(app.enqueue_many, send)
    assert "send.job(" in said(app.add, send)


# -- workers and connections ---------------------------------------------------------------------


def test_queues_are_a_list(app):
    text = said(app.worker, queues="default")
    assert "queues=['default']" in text
    assert "Leave it out to serve all" in said(app.worker, queues=[])
    assert "queue must be 1 to 200" in said(app.worker, queues=[3])


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql+psycopg://me@localhost/x", "without '+psycopg'"),
        ("mysql://me@localhost/x", "postgresql://"),
    ],
)
def test_a_url_of_another_kind_is_explained(url, words):
    assert words in said(lambda: Evenbeat(url).settings)


@pytest.mark.parametrize(
    "password",
    ["secr@word", "secr@word/x", "secr@word#x", "secr@word:x", "se/cr@word", "se%zzword"],
)
def test_a_password_that_would_be_read_as_something_else_is_explained_and_not_shown(password):
    text = said(Database, f"postgresql://me:{password}@localhost:5432/x")
    assert "%40" in text
    assert "word" not in text.replace("password", "")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///x?host=/tmp/x&user=me",
        "postgresql://me:p%40ss%2Fword@h1:1,h2:2/x?application_name=a@b",
        "postgres://me@/x",
        "postgres://me:a?b#c:d@localhost/a%40b",
    ],
)
def test_what_libpq_understands_is_taken(url):
    Database(url).close()


def test_a_broken_dependency_is_not_hidden(tmp_path):
    (tmp_path / "psycopg_pool.py").write_text("import os\nos.no_such_thing\n")
    code = "from evenbeat import Evenbeat"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert "no_such_thing" in run.stderr

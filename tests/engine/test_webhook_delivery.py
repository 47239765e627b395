"""Delivering webhooks: a real receiver on loopback, which fails, stalls, redirects and accepts."""

import itertools
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from loopback_site import serving
from standardwebhooks.webhooks import Webhook as Independent
from standardwebhooks.webhooks import WebhookVerificationError

from evenbeat import Evenbeat, Fail
from evenbeat.domain.job import NewJob
from evenbeat.domain.webhooks import TASK, WebhookEvent, message_id
from evenbeat.engine.maintenance import Retention
from evenbeat.errors import InvalidInput
from evenbeat.external import addresses
from evenbeat.settings import load_settings
from evenbeat.tasks.builtin import webhook
from evenbeat.tasks.registry import RunnerKind
from evenbeat.testing import Harness
from waiting import wait_for

ALL = list(WebhookEvent)
NO_CONTENT = (204, {}, b"")
BROKEN = (500, {"content-type": "text/plain"}, b"not today\x00")
START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def site():
    with serving() as site:
        site.answers["/hook"] = NO_CONTENT
        yield site


def declared(database_url: str, **settings) -> Evenbeat:
    app = Evenbeat(database_url, **{"allow_private_addresses": True} | settings)

    @app.task(max_retries=0)
    async def works(value: int = 1) -> int:
        return value

    @app.task(max_retries=0)
    async def fails() -> None:
        raise Fail("It was meant to.")

    return app


@pytest.fixture
def harness(database_url):
    """On a virtual clock that begins at START."""
    with Harness(declared(database_url), START) as harness:
        yield harness


def outcome(app: Evenbeat, message) -> tuple[str, list[int | None]]:
    """The state of a message, and the statuses of all attempts at it."""
    found, _, attempts = app.store.webhooks.message(message)
    assert found.attempts == len(attempts)
    return found.state, [attempt.status_code for attempt in attempts]


# -- the way that all messages go ------------------------------------------------------------------


def test_a_receiver_that_fails_five_times_gets_the_message_once(database_url, site):
    """Everything real: worker, clock, network; and the signature is checked by others' code."""
    accepted = []

    def answer(seen):
        if len(site.seen) <= 5:
            return BROKEN
        accepted.append(seen)
        return NO_CONTENT

    site.answers["/hook"] = answer
    app = declared(database_url, webhook_retry_delays="0s,0s,0s,0s,0s,0s,0s", poll_seconds=0.2)
    with app:
        hook = app.store.webhooks.add(f"{site.url}/hook", ["job.completed"])
        worker = app.worker()
        worker.start()
        try:
            job = app.add(_job(app, "works")).id
            delivered = lambda: app.store.webhooks.messages(hook.id, states=["delivered"]).total  # noqa: E731
            wait_for(delivered, "it is delivered, and noted")
        finally:
            worker.stop(grace=5)
        (message,) = app.store.webhooks.messages(hook.id).messages
        assert outcome(app, message.id) == ("delivered", [500] * 5 + [204])
    assert len(site.seen) == 6
    assert len(accepted) == 1
    for seen in site.seen:
        payload = Independent(hook.secret).verify(seen.body, seen.headers)
        assert payload["data"]["job"]["id"] == str(job)
        assert seen.headers["webhook-id"] == message_id(message.id)
        assert (seen.method, seen.headers["content-type"]) == ("POST", "application/json")
    assert len({seen.body for seen in site.seen}) == 1
    with pytest.raises(WebhookVerificationError):
        Independent("whsec_" + "A" * 32).verify(accepted[0].body, accepted[0].headers)


def _job(app: Evenbeat, task: str) -> NewJob:
    return NewJob(app.registry.get(task).spec)


def send(harness, site, path="/hook", **options):
    """An endpoint, and a test message to it that is not yet delivered."""
    hook = harness.app.store.webhooks.add(f"{site.url}{path}", ALL, now=harness.clock.now())
    return hook, harness.app.store.webhooks.test(hook.id, now=harness.clock.now(), **options).id


def test_a_completed_run_is_told_in_the_same_breath(harness, site):
    hook = harness.app.store.webhooks.add(f"{site.url}/hook", ["job.completed", "job.failed"])
    for name in ("works", "fails"):
        harness.app.add(_job(harness.app, name))
    assert harness.drain() == 4
    told = {json.loads(seen.body)["type"]: json.loads(seen.body)["data"] for seen in site.seen}
    assert told.keys() == {"job.completed", "job.failed"}
    assert told["job.failed"]["execution"]["error_message"] == "It was meant to."
    assert {m.state for m in harness.app.store.webhooks.messages(hook.id).messages} == {"delivered"}


def test_retries_come_when_the_specification_says_and_then_no_more(harness, site):
    site.answers["/hook"] = BROKEN
    hook, message = send(harness, site)
    harness.drain()
    assert outcome(harness.app, message) == ("pending", [500])
    harness.advance("100h")
    state, statuses = outcome(harness.app, message)
    assert (state, statuses) == ("failed", [500] * 10)
    attempts = harness.app.store.webhooks.message(message)[2]
    waits = [b.started_at - a.started_at for a, b in itertools.pairwise(attempts)]
    planned = [timedelta(seconds=5), timedelta(minutes=5), timedelta(minutes=30),
               *(timedelta(hours=h) for h in (2, 5, 10, 14, 20, 24))]  # fmt: skip
    for wait, plan in zip(waits, planned, strict=True):
        assert plan <= wait <= plan * 1.1 + timedelta(seconds=1)
    stamps = [int(seen.headers["webhook-timestamp"]) for seen in site.seen]
    assert stamps == [int(a.started_at.timestamp()) for a in attempts]
    assert len({seen.headers["webhook-signature"] for seen in site.seen}) == 10
    endpoint = harness.app.store.webhooks.get(hook.id)
    assert (endpoint.enabled, endpoint.failing_since) == (True, START)
    assert attempts[-1].response == "not today\ufffd"
    job = next(j for j in harness.app.store.read.jobs().jobs if j.task == TASK)
    assert (job.status, job.error_message) == (
        "failed", "The answer was 500 Internal Server Error. Given up after attempt 10.",
    )  # fmt: skip


def test_what_was_given_up_can_be_delivered_again(harness, site):
    site.answers["/hook"] = BROKEN
    hook, message = send(harness, site)
    harness.advance("100h")
    site.answers["/hook"] = NO_CONTENT
    harness.app.store.webhooks.redeliver(message, now=harness.clock.now())
    harness.drain()
    assert outcome(harness.app, message) == ("delivered", [500] * 10 + [204])
    assert harness.app.store.webhooks.get(hook.id).failing_since is None
    assert {seen.headers["webhook-id"] for seen in site.seen} == {message_id(message)}


def test_a_delivered_message_is_not_sent_again_by_a_run_that_was_given_up(harness, site):
    """A worker noted the delivery, and died before it could end its run."""
    _, message = send(harness, site)
    harness.drain()
    harness.skip("1s")
    harness.app.store.control.run_now(
        [job.id for job in harness.app.store.read.jobs().jobs], now=harness.clock.now()
    )
    assert harness.drain() == 1
    assert outcome(harness.app, message) == ("delivered", [204])
    assert len(site.seen) == 1


# -- how receivers may answer ----------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 299])
def test_every_2xx_is_an_acceptance(harness, site, status):
    site.answers["/hook"] = (status, {}, b"")
    _, message = send(harness, site)
    harness.drain()
    assert outcome(harness.app, message) == ("delivered", [status])


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 404, 500, 503])
def test_everything_else_is_a_failure_and_no_redirect_is_followed(harness, site, status):
    site.answers["/hook"] = (status, {"location": f"{site.url}/elsewhere"}, b"")
    _, message = send(harness, site)
    harness.drain()
    assert outcome(harness.app, message) == ("pending", [status])
    assert [seen.path for seen in site.seen] == ["/hook"]
    if status < 400:
        assert "Redirects are not followed" in harness.app.store.webhooks.message(message)[0].error


def test_a_redirect_to_nowhere_is_a_failure_like_another(harness, site):
    site.answers["/hook"] = (302, {"location": "http://[::1"}, b"")
    _, message = send(harness, site)
    harness.drain()
    assert outcome(harness.app, message)[0] == "pending"
    site.answers["/hook"] = NO_CONTENT
    harness.advance("1m")
    assert outcome(harness.app, message) == ("delivered", [None, 204])


def test_a_name_that_is_none_is_a_failure_like_another(harness, site):
    _, message = send(harness, site)
    harness.app.store.webhooks.update(
        harness.app.store.webhooks.message(message)[0].webhook_id, {"url": "http://xn--/"}
    )
    harness.drain()
    found = harness.app.store.webhooks.message(message)[0]
    assert (found.state, found.attempts, found.error_code) == ("pending", 1, "address_refused")


def test_gone_disables_the_endpoint_and_says_so(harness, site):
    site.answers["/hook"] = (410, {}, b"bye")
    hook, message = send(harness, site)
    harness.app.store.webhooks.test(hook.id, now=harness.clock.now())
    harness.drain()
    harness.advance("100h")
    assert outcome(harness.app, message)[0] == "failed"
    endpoint = harness.app.store.webhooks.get(hook.id)
    assert (endpoint.enabled, endpoint.disabled_reason) == (
        False, "The receiver answered 410 Gone.",
    )  # fmt: skip
    harness.app.add(_job(harness.app, "works"))
    harness.drain()
    assert harness.app.store.webhooks.messages(hook.id).total == 2
    assert len(site.seen) <= 2  # both were under way, or the second found it disabled


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("as_date", [False, True])
def test_a_receiver_that_asks_to_wait_is_waited_for(harness, site, status, as_date):
    until = format_datetime(datetime.now(UTC) + timedelta(minutes=20), usegmt=True)
    site.answers["/hook"] = (status, {"retry-after": until if as_date else "1200"}, b"")
    _, message = send(harness, site)
    harness.drain()
    found = harness.app.store.webhooks.message(message)[0]
    # A date is told by the receiver's own clock, in whole seconds.
    assert found.next_attempt_at is not None
    waits = found.next_attempt_at - START
    assert timedelta(minutes=19) < waits <= timedelta(minutes=20)


def test_a_receiver_that_stalls_is_given_up_on(database_url, site):
    site.answers["/hook"] = lambda _: (site.gate.wait(20), NO_CONTENT)[1]
    with Harness(declared(database_url, webhook_timeout_seconds=1)) as harness:
        _, message = send(harness, site)
        harness.drain()
        found = harness.app.store.webhooks.message(message)[0]
        assert (found.state, found.error_code) == ("pending", "http_timeout")
        assert found.error == "No full answer within 1 s."


@pytest.mark.parametrize("then", ["hangs", "breaks off"])
def test_what_was_accepted_is_not_sent_again_for_the_sake_of_the_answers_body(harness, then):
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nwell"
    with socket.create_server(("127.0.0.1", 0)) as receiver, ThreadPoolExecutor(1) as threads:

        def receive():
            caller, _ = receiver.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(answer)
                while then == "hangs" and caller.recv(65536):
                    pass

        answering = threads.submit(receive)
        webhooks = harness.app.store.webhooks
        hook = webhooks.add(f"http://127.0.0.1:{receiver.getsockname()[1]}/", ALL)
        message = webhooks.test(hook.id, now=harness.clock.now()).id
        harness.drain()
        answering.result()
    assert outcome(harness.app, message) == ("delivered", [200])
    assert webhooks.message(message)[2][0].response == "well"


def test_nobody_there(harness, site):
    hook = harness.app.store.webhooks.add("http://127.0.0.1:1/hook", ALL)
    message = harness.app.store.webhooks.test(hook.id, now=harness.clock.now()).id
    harness.drain()
    found = harness.app.store.webhooks.message(message)[0]
    assert (found.state, found.error_code) == ("pending", "connection_failed")


def test_endpoints_that_changed_meanwhile(harness, site):
    disabled, first = send(harness, site)
    deleted, second = send(harness, site)
    webhooks = harness.app.store.webhooks
    webhooks.update(disabled.id, {"enabled": False})
    jobs = {job.payload["message"]: job.id for job in harness.app.store.read.jobs().jobs}
    webhooks.delete(deleted.id)
    harness.drain()
    assert outcome(harness.app, first) == ("failed", [])
    assert harness.app.store.read.job(jobs[str(first)]).error_message == "The webhook is disabled."
    assert str(second) in jobs
    assert site.seen == []


def test_after_a_rotation_both_secrets_verify_for_a_day(harness, site):
    hook, _ = send(harness, site)
    harness.drain()
    rotated = harness.app.store.webhooks.rotate(hook.id, now=harness.clock.now())
    harness.app.store.webhooks.test(hook.id, now=harness.clock.now())
    harness.drain()
    harness.advance("24h")
    harness.app.store.webhooks.test(hook.id, now=harness.clock.now())
    harness.drain()
    before, between, after = (seen.headers["webhook-signature"].split() for seen in site.seen)
    assert [len(before), len(between), len(after)] == [1, 2, 1]
    seen = site.seen[1]
    stamp = datetime.fromtimestamp(int(seen.headers["webhook-timestamp"]), UTC)
    for secret in (rotated.secret, hook.secret):
        expected = Independent(secret).sign(seen.headers["webhook-id"], stamp, seen.body.decode())
        assert expected in between


# -- where nothing is sent -------------------------------------------------------------------------

REFUSED = {
    "loopback": "http://127.0.0.1:{port}/hook",
    "another loopback": "http://127.8.8.8:{port}/hook",
    "IPv6 loopback": "http://[::1]:{port}/hook",
    "mapped": "http://[::ffff:127.0.0.1]:{port}/hook",
    "decimal": "http://2130706433:{port}/hook",
    "hexadecimal": "http://0x7f.1:{port}/hook",
    "metadata": "http://169.254.169.254/latest/meta-data",
    "private": "http://10.0.0.1/hook",
    "a name of this machine": "http://localhost:{port}/hook",
}


@pytest.mark.parametrize("url", REFUSED.values(), ids=REFUSED.keys())
def test_addresses_inside_are_refused_early_and_again_when_it_matters(database_url, site, url):
    url = url.format(port=site.port)
    with pytest.raises(InvalidInput, match="only public addresses"):
        webhook.check_endpoint(url, load_settings())
    with Harness(declared(database_url, allow_private_addresses=False)) as harness:
        hook = harness.app.store.webhooks.add(url, ALL)  # as if the name had changed since
        message = harness.app.store.webhooks.test(hook.id, now=harness.clock.now()).id
        harness.drain()
        found = harness.app.store.webhooks.message(message)[0]
        assert (found.error_code, found.status_code) == ("address_refused", None)
        assert "only public addresses are fetched from" in found.error
    assert site.seen == []


def test_a_name_that_resolves_inside_is_refused(database_url, site, monkeypatch):
    monkeypatch.setattr(addresses, "system_resolver", lambda _host, _port: ["10.1.2.3"])
    app = declared(database_url, allow_private_addresses=False)
    with Harness(app) as harness:
        hook = app.store.webhooks.add("https://rebound.example/hook", ALL)
        message = app.store.webhooks.test(hook.id, now=harness.clock.now()).id
        harness.drain()
        assert "10.1.2.3" in app.store.webhooks.message(message)[0].error


@pytest.mark.parametrize(
    "url", ["https://receiver.example/hook", "http://93.184.215.14/x", "https://[2606:4700::1111]/"]
)
def test_public_endpoints_pass_the_early_check(url):
    assert webhook.check_endpoint(url, load_settings()) == url


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("ftp://receiver.example/", "ftp URL"),
        ("receiver.example/hook", "not a full URL"),
        ("https://user:pass@receiver.example/", "user name or password"),
        ("https:///hook", "names no host"),
        ("https://receiver.example/" + "x" * 2100, "characters; at most"),
        ("https://receiver.example/a b", "a space"),
    ],
)
def test_urls_of_the_wrong_form_are_refused(url, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        webhook.check_endpoint(url, load_settings())


# -- where the task runs ---------------------------------------------------------------------------


def test_every_worker_delivers_where_its_other_tasks_run(database_url, site):
    app = Evenbeat(database_url, allow_private_addresses=True)

    @app.task
    def plain() -> None: ...

    with Harness(app) as harness:
        assert app.registry.get(TASK).runs is RunnerKind.IN_THREAD
        assert len(harness.worker.runners) == 1
        _, message = send(harness, site)
        harness.drain()
        assert outcome(app, message) == ("delivered", [204])


def test_a_second_worker_of_one_application_finds_the_task_there(database_url):
    app = declared(database_url)
    with app:
        for worker in (app.worker(), app.worker()):
            assert TASK in app.registry
            for runner in worker.runners:
                runner.close()


def test_a_low_balance_reaches_the_receiver_once(database_url, site):
    app = declared(database_url, balance_alert_score=1.0)
    with Harness(app, START) as harness:
        app.store.webhooks.add(f"{site.url}/hook", ["balance.low"])
        app.balancer.is_low = lambda _told: True  # type: ignore[method-assign]
        app.balancer.watch()
        app.balancer.watch()
        harness.drain()
    (seen,) = site.seen
    assert json.loads(seen.body)["data"].keys() == {
        "score", "peak_load", "mean_load", "total_jobs", "suggestion",
    }  # fmt: skip


def test_old_messages_are_removed_with_the_rest(harness, site):
    hook, message = send(harness, site)
    harness.drain()
    retention = Retention(harness.app.store, harness.clock, days=30, executions=100)
    retention.run_once()
    assert outcome(harness.app, message) == ("delivered", [204])
    harness.skip("31d")
    retention.run_once()
    assert harness.app.store.webhooks.messages(hook.id).total == 0
    assert harness.app.store.webhooks.get(hook.id).enabled


def test_settings_of_webhooks():
    assert load_settings(webhook_retry_delays="1s, 2m").webhook_retry_delays == ("1s", "2m")
    assert load_settings(webhook_retry_delays=()).webhook_retry_delays == ()
    for wrong in ("soon", "8d", ",".join(["1s"] * 51)):
        with pytest.raises(InvalidInput, match=r"webhook_retry_delays=.*up to 50 durations"):
            load_settings(webhook_retry_delays=wrong)

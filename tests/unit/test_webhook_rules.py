"""Webhook rules: signatures that another implementation accepts, ids, secrets, and retries."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook as Independent
from standardwebhooks.webhooks import WebhookVerificationError

from evenbeat.domain.webhooks import (
    LONGEST_RETRY,
    SPREAD,
    check_events,
    check_reach,
    key_of,
    message_id,
    next_delay,
    parse_message_id,
    secret_of,
    signature,
    signed_headers,
)
from evenbeat.errors import InvalidInput

keys = st.binary(min_size=24, max_size=64)
ids = st.uuids()
bodies = st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))
waits = st.lists(st.timedeltas(timedelta(0), timedelta(days=7)), max_size=12)


@given(keys, ids, bodies)
def test_an_independent_implementation_verifies_what_we_sign(key, id_, body):
    secret = secret_of(key)
    headers = signed_headers([secret], message_id(id_), datetime.now(UTC), body)
    Independent(secret).verify(body, headers, json_parse=False)


@given(keys, keys, ids)
def test_after_a_rotation_either_secret_verifies(new, old, id_):
    secrets = [secret_of(new), secret_of(old)]
    headers = signed_headers(secrets, message_id(id_), datetime.now(UTC), b'{"type":"x"}')
    for secret in secrets:
        assert Independent(secret).verify(b'{"type":"x"}', headers) == {"type": "x"}


@given(keys, ids, st.from_regex(r"\A[ -~]{1,50}\Z").map(str.encode), st.data())
def test_nothing_signed_can_be_changed(key, id_, body, data):
    secret, moment = secret_of(key), datetime.now(UTC)
    headers = signed_headers([secret], message_id(id_), moment, body)
    at = data.draw(st.integers(0, len(body) - 1))
    changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    later = headers | {"webhook-timestamp": str(int(moment.timestamp()) + 1)}
    for sent, said in ((changed, headers), (body, later), (body, headers | {"webhook-id": "x"})):
        with pytest.raises(WebhookVerificationError):
            Independent(secret).verify(sent, said, json_parse=False)


def test_a_signature_that_was_worked_out_elsewhere():
    """The one example that the reference library's own tests use."""
    secret, id_ = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert (
        signature(secret, id_, 1614265330, b'{"test": 2432232314}')
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@given(keys)
def test_secrets_are_written_and_read_back(key):
    assert key_of(secret_of(key)) == key


@pytest.mark.parametrize(
    "secret", ["", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_no!",
               secret_of(b"x" * 64) + "AAAA"],
)  # fmt: skip
def test_what_is_no_secret_is_refused_without_repeating_it(secret):
    with pytest.raises(InvalidInput) as refused:
        key_of(secret)
    assert not secret or secret not in str(refused.value)


@given(ids)
def test_ids_have_no_full_stop_and_are_read_back(id_):
    text = message_id(id_)
    assert text.startswith("msg_")
    assert "." not in text
    assert parse_message_id(text) == parse_message_id(str(id_)) == id_


@pytest.mark.parametrize("text", ["", "msg_", "msg_xyz", "evt_" + "0" * 32, "msg_" + "0" * 31])
def test_what_is_no_message_id_is_refused_with_an_example(text):
    with pytest.raises(InvalidInput, match=f"looks like {message_id(UUID(int=0))}"):
        parse_message_id(text)


@given(
    waits, st.integers(1, 15), st.none() | st.timedeltas(timedelta(0), timedelta(days=3)),
    st.floats(0, 1),
)  # fmt: skip
def test_waits_follow_the_schedule_and_the_receivers_wish(schedule, attempt, asked, spread):
    wait = next_delay(schedule, attempt, asked, spread)
    if attempt > len(schedule):
        assert wait is None
        return
    planned = schedule[attempt - 1]
    assert wait is not None
    assert wait >= planned
    assert wait >= min(asked or timedelta(0), LONGEST_RETRY)
    assert wait <= max(planned * (1 + SPREAD), asked or timedelta(0))


def test_events_are_checked_and_put_in_order():
    assert check_events(["job.failed", "job.completed", "job.failed"]) == [
        "job.completed",
        "job.failed",
    ]
    with pytest.raises(InvalidInput, match=r"job\.completed, .*got job\.done"):
        check_events(["job.done"])
    with pytest.raises(InvalidInput, match="at least one event"):
        check_events([])
    with pytest.raises(InvalidInput, match=r"got webhook\.test"):
        check_events(["webhook.test"])


def test_the_balance_is_not_that_of_a_single_job():
    with pytest.raises(InvalidInput, match="schedule as a whole"):
        check_reach(["balance.low"], job=True, filtered=False)
    with pytest.raises(InvalidInput, match="schedule as a whole"):
        check_reach(["balance.low"], job=False, filtered=True)
    check_reach(["balance.low"], job=False, filtered=False)
    check_reach(["balance.low", "job.failed"], job=False, filtered=True)


def test_every_message_has_an_id_of_its_own():
    assert message_id(uuid4()) != message_id(uuid4())


def test_the_receiver_in_the_documentation_tells_genuine_from_forged():
    text = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")
    blocks = [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def receive" in b]
    assert len(blocks) == 2
    secrets = [secret_of(b"new" * 9), secret_of(b"old" * 9)]
    headers = signed_headers(secrets, message_id(uuid4()), datetime.now(UTC), b'{"a": 1}')
    for block in blocks:
        names: dict[str, Any] = {}
        exec(block, names)  # noqa: S102 - our own documentation
        for secret in secrets:
            assert names["receive"](secret, headers, b'{"a": 1}') == {"a": 1}
        with pytest.raises((ValueError, WebhookVerificationError)):
            names["receive"](secrets[0], headers, b'{"a": 2}')
        with pytest.raises((ValueError, WebhookVerificationError)):
            names["receive"](secret_of(b"foreign" * 4), headers, b'{"a": 1}')
        stale = signed_headers(secrets, "msg_1", datetime.now(UTC) - timedelta(hours=1), b"{}")
        with pytest.raises((ValueError, WebhookVerificationError)):
            names["receive"](secrets[0], stale, b"{}")

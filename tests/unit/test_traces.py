"""Tracebacks: which frames are the application's, and which line decides."""

import json
import traceback
from pathlib import Path

import pytest

from evenbeat.domain import traces
from evenbeat.domain.traces import decisive_frame, read_trace

OURS = Path(traces.__file__).parent.parent

TRACE = f"""Traceback (most recent call last):
  File "{OURS}/engine/runners.py", line 338, in perform
    return call_inside(around, run.context, handle, loop)
           ^^^^^^^^^^^
  File "/srv/shop/orders.py", line 42, in charge
    card.pay(total)
  File "/srv/venv/lib/python3.11/site-packages/card/api.py", line 7, in pay
    return json.loads(text)
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
  File "<frozen importlib._bootstrap>", line 1, in load
json.decoder.JSONDecodeError: Expecting value"""


def test_own_frames_are_told_from_others_and_the_last_one_decides():
    parts = read_trace(TRACE)
    assert "\n".join(part.text for part in parts) == TRACE
    frames = [part.frame for part in parts if part.frame]
    assert [frame.is_own for frame in frames] == [False, True, False, False, False]
    decisive = decisive_frame(parts)
    assert decisive == ("/srv/shop/orders.py", 42, "charge", "card.pay(total)", True)


def test_of_chained_exceptions_the_last_one_decides():
    other = TRACE.replace("orders.py", "retry.py").replace("in charge", "in again")
    joined = f"{TRACE}\n\nDuring handling of the above exception, another exception occurred:\n\n"
    decisive = decisive_frame(read_trace(joined + other))
    assert decisive is not None
    assert decisive.path == "/srv/shop/retry.py"
    library = TRACE.replace("/srv/shop/orders.py", "/usr/lib/python3.11/queue.py")
    decisive = decisive_frame(read_trace(joined + library))
    assert decisive is not None
    assert decisive.path == "/srv/shop/orders.py"
    assert decisive_frame(read_trace(library)) is None


def raised(error: Exception) -> str:
    def call() -> None:
        raise error

    try:
        call()
    except Exception as caught:  # noqa: BLE001, RUF100
        return "".join(traceback.format_exception(caught))
    raise AssertionError


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no trace\nat all",
        raised(ValueError("two\nlines")),
        raised(ExceptionGroup("several", [ValueError("a"), KeyError("b")])),
        raised(SyntaxError("bad", ("x.py", 1, 2, "code", 1, 3))),
        raised(json.JSONDecodeError("x", "y", 0)).replace("\n", "\r\n"),
    ],
)
def test_whatever_was_raised_is_read_without_loss(text: str):
    assert "\n".join(part.text for part in read_trace(text)) == text
    if "in call" in text:
        decisive = decisive_frame(read_trace(text))
        assert decisive is not None
        assert (decisive.function.strip(), decisive.code.strip()) == ("call", "raise error")

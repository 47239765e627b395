"""What answers mean to a command, and where it asks."""

from typing import Any

import httpx
import pytest

from evenbeat.cli import exit_code
from evenbeat.cli.client import (
    ApiError,
    Client,
    checked_token,
    connected,
    path_segment,
    read_response,
    service_url,
)
from evenbeat.errors import (
    Conflict,
    DatabaseUnavailable,
    EvenbeatError,
    InvalidInput,
    NotAuthenticated,
    NotFound,
)

REQUEST = httpx.Request(
    "GET", "http://127.0.0.1/api/v1/jobs", headers={"Authorization": "Bearer x"}
)


def answer(status: int, content: Any = None, text: str | None = None) -> httpx.Response:
    if text is not None:
        return httpx.Response(status, text=text, request=REQUEST)
    return httpx.Response(status, json=content, request=REQUEST)


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (413, 2), (422, 2), (404, 4), (401, 5), (403, 5), (409, 1), (429, 1), (500, 1),
     (502, 3), (503, 3), (504, 3)],
)  # fmt: skip
def test_a_problem_is_raised_in_its_own_words(status: int, code: int):
    with pytest.raises(ApiError, match=r"^It was so\.$") as refused:
        read_response(answer(status, {"detail": "It was so.", "title": "x", "status": status}))
    assert (refused.value.exit_code, refused.value.status) == (code, status)
    assert exit_code(refused.value) == code


@pytest.mark.parametrize(
    "strange",
    [
        answer(200, text="<html>"),
        answer(200, ["a list"]),
        answer(200, text='"text"'),
        answer(301, {}),
        answer(404, {"detail": "Not Found"}),
        answer(502, text="Bad Gateway"),
        answer(500, {"detail": [1]}),
    ],
)
def test_what_is_not_evenbeat_is_said_to_be_so(strange: httpx.Response):
    with pytest.raises(ApiError, match="is not an Evenbeat service") as refused:
        read_response(strange)
    assert refused.value.exit_code == 3


def test_an_empty_answer_is_an_empty_document():
    assert read_response(httpx.Response(204, request=REQUEST)) == {}
    assert read_response(answer(200, {"jobs": []})) == {"jobs": []}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("x"), 2),
        (DatabaseUnavailable("x"), 3),
        (NotFound("job", "x"), 4),
        (NotAuthenticated("x"), 5),
        (Conflict("x"), 1),
        (EvenbeatError("x"), 1),
    ],
)
def test_errors_have_documented_exit_codes(error: EvenbeatError, code: int):
    assert exit_code(error) == code


def test_requests_carry_what_was_given_and_no_more():
    requests: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={})

    client = Client("http://h/mounted", "secret", httpx.MockTransport(respond))
    client.get("/api/v1/jobs", status=["a", "b"], name=None, queue=[], limit=1)
    client.post("/api/v1/x")
    client.patch("/api/v1/y", {"a": None})

    first, second, third = requests
    assert str(first.url) == "http://h/mounted/api/v1/jobs?status=a&status=b&limit=1"
    assert first.headers["authorization"] == "Bearer secret"
    assert second.content == b""
    assert third.content == b'{"a":null}'


def test_names_become_one_part_of_a_path():
    assert path_segment("a b/c%?#") == "a%20b%2Fc%25%3F%23"


@pytest.mark.parametrize(
    "token", ["a\nb", "a\rb", "a\0b", "tökén", "a b", "\udcff", "x" * 8001, "\x1b[2J", "a\u202eb"]
)
def test_a_token_that_no_header_could_hold_is_explained(
    token: str, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(InvalidInput, match="at most 8,000 letters") as refused:
        checked_token(token)
    assert token not in str(refused.value)
    monkeypatch.setenv("EVENBEAT_TOKEN", token.replace("\0", "\n-"))
    for option in (token, None):
        with pytest.raises(InvalidInput), connected("http://127.0.0.1:9", option, None):
            pass


def test_spaces_around_a_token_do_no_harm():
    assert [checked_token(text) for text in (" a.b-c_d\n", "", " \n")] == ["a.b-c_d", None, None]


def test_an_option_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("EVENBEAT_URL", raising=False)
    assert service_url(None, None) is None
    monkeypatch.setenv("EVENBEAT_URL", "http://there")
    assert service_url(None, None) == "http://there"
    assert service_url("http://here", None) == "http://here"
    assert service_url(None, "postgresql:///x") is None
    with pytest.raises(InvalidInput):
        service_url("http://here", "postgresql:///x")

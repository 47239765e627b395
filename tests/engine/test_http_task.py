"""The built-in task `http`: real calls to real servers, and addresses that are not called."""

import socket
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from loopback_site import serving

from evenbeat import Evenbeat
from evenbeat.cli.app_loader import served_app
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.errors import Fail, InvalidInput
from evenbeat.external import addresses
from evenbeat.tasks.builtin import http
from evenbeat.tasks.builtin.http import expected_ranges, fill_in, retry_after
from evenbeat.testing import Harness

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
OK = (200, {"content-type": "text/plain"}, b"all well")


@pytest.fixture
def site():
    with serving() as site:
        site.answers["/"] = OK
        yield site


@pytest.fixture
def call(database_url):
    """Runs one http job with these settings and payload; returns its job and its execution."""

    def run(payload, **settings):
        app = Evenbeat(database_url, **settings)
        app.registry.add(http.definition(app.settings))
        with Harness(app) as harness:
            added = app.add(NewJob(JobSpec("http"), payload))
            assert harness.drain() == 1
            (execution,) = app.store.read.executions_of(added.id).executions
            return app.store.read.job(added.id), execution

    return run


@pytest.fixture
def local(call):
    """The same, on a machine whose operator allows loopback addresses."""
    return lambda url, **payload: call({"url": url} | payload, allow_private_addresses=True)


# -- calls and answers ---------------------------------------------------------------------------


def test_a_call_and_what_is_kept_of_the_answer(site, local):
    site.answers["/sync?full=1"] = (
        201,
        {"content-type": "application/json", "etag": '"7"', "set-cookie": "session=private"},
        b'{"rows": 12}',
    )
    job, run = local(
        f"{site.url}/sync?full=1",
        method="POST",
        headers={"X-Team": "ops", "accept": "application/json"},
        body={"all": [1, None], "since": "2030-01-01"},
    )
    assert job.status == "completed"
    duration = run.result.pop("duration_ms")
    assert 0 < duration < 30_000
    kept = run.result["headers"]
    assert (kept["content-type"], kept["etag"]) == ("application/json", '"7"')
    assert "set-cookie" not in kept
    assert {k: v for k, v in run.result.items() if k != "headers"} == {
        "status": 201,
        "url": f"{site.url}/sync?full=1",
        "redirects": 0,
        "body": '{"rows": 12}',
        "body_bytes": 12,
    }
    (seen,) = site.seen
    assert (seen.method, seen.body) == ("POST", b'{"all":[1,null],"since":"2030-01-01"}')
    assert (seen.headers["x-team"], seen.headers["content-type"]) == ("ops", "application/json")
    assert seen.headers["host"] == f"127.0.0.1:{site.port}"
    assert seen.headers["user-agent"] == "Evenbeat"


def test_a_text_is_sent_as_it_is(site, local):
    local(f"{site.url}/", method="PUT", body="grüße", headers={"Content-Type": "text/csv"})
    (seen,) = site.seen
    assert seen.body == "grüße".encode()
    assert seen.headers["content-type"] == "text/csv"


@pytest.mark.parametrize(
    ("status", "expected", "outcome", "code"),
    [
        (204, "2xx", "completed", None),
        (404, [200, 404], "completed", None),
        (503, "200-299, 5xx", "completed", None),
        (200, 204, "failed", "http_200"),
        (404, "2xx", "failed", "http_404"),
        (301, "2xx", "failed", "http_301"),
        (429, "2xx", "scheduled", "http_429"),
        (500, "2xx", "scheduled", "http_500"),
        (503, "2xx", "scheduled", "http_503"),
    ],
)
def test_the_status_decides(site, local, status, expected, outcome, code):  # noqa: PLR0917
    site.answers["/x"] = (status, {"content-type": "text/html"}, b"" if status == 204 else b"why")
    job, run = local(f"{site.url}/x", expected_status=expected)
    assert (job.status, run.error_code) == (outcome, code)
    assert run.result["status"] == status
    assert run.result["body"] == ("" if status == 204 else "why")
    assert run.stack_trace is None


def test_retry_after_is_when_the_next_attempt_is_due(site, local):
    for asked, wait in {"120": 120, "999999": 3600, "soon": None}.items():
        site.answers["/busy"] = (429, {"retry-after": asked}, b"")
        job, run = local(f"{site.url}/busy")
        waits = (job.next_run_at - datetime(2030, 1, 1, tzinfo=UTC)).total_seconds()
        assert run.error_code == "http_429"
        assert waits == wait if wait else 48 <= waits <= 72  # the policy's own minute, ±20 %


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "0"}, timedelta(0)),
        ({"retry-after": format_datetime(NOON + timedelta(seconds=90), usegmt=True)},
         timedelta(seconds=90)),
        ({"retry-after": format_datetime(NOON - timedelta(days=1), usegmt=True)}, timedelta(0)),
        ({"retry-after": format_datetime(NOON + timedelta(days=9), usegmt=True)},
         timedelta(hours=1)),
        # By the server's own clock, which is an hour behind ours.
        ({"retry-after": "Tue, 01 Jan 2030 11:00:30 GMT", "date": "Tue, 01 Jan 2030 11:00:00 GMT"},
         timedelta(seconds=30)),
        ({"retry-after": "9" * 400}, timedelta(hours=1)),
        ({"retry-after": "-5"}, None), ({"retry-after": "1.5"}, None), ({}, None),
        ({"retry-after": "Tue, 99 Foo 2030 11:00:30 GMT"}, None),
    ],
)  # fmt: skip
def test_reading_retry_after(headers, wait):
    assert retry_after(headers, NOON) == wait


def test_an_answer_is_kept_up_to_its_cap_and_read_to_its_end(site, local):
    sent = []
    site.answers["/long"] = lambda _: sent.append(1) or (
        200, {"content-type": "text/plain; charset=latin-1"}, b"\xe4" * 300_000,
    )  # fmt: skip
    _, run = local(f"{site.url}/long", max_response_bytes=100)
    assert run.result["body"] == "ä" * 100
    assert run.result["body_bytes"] == 300_000
    assert run.result["note"] == "the first 100 bytes"


def test_the_largest_answer_in_its_widest_form_still_fits_in_the_result(site, local):
    site.answers["/nul"] = (200, {}, b"\x01" * 60_000)
    _, run = local(f"{site.url}/nul", max_response_bytes=http.MOST_KEPT)
    assert set(run.result["body"]) == {"\x01"}
    assert run.result["body_bytes"] == 60_000


def test_what_is_not_text_is_not_kept(site, local):
    site.answers["/a"] = (200, {"content-type": "image/png"}, b"\x89PNG")
    site.answers["/b"] = (200, {"content-encoding": "gzip", "content-type": "text/html"}, b"\x1f")
    for path, why in {"/a": "image/png is not text", "/b": "its encoding is gzip"}.items():
        _, run = local(site.url + path)
        assert (run.result["body"], run.result["body_bytes"] > 0) == (None, True)
        assert why in run.result["note"]


def test_a_slow_answer_and_no_answer_are_tried_again(site, local):
    site.answers["/slow"] = lambda _: site.gate.wait(5) and OK
    job, run = local(f"{site.url}/slow", timeout="200ms")
    assert (job.status, run.error_code) == ("scheduled", "http_timeout")
    assert run.error_message == "No full answer within 0.2 s."
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    job, run = local(f"http://127.0.0.1:{free}/")
    assert (job.status, run.error_code) == ("scheduled", "connection_failed")


def test_a_name_that_does_not_resolve_is_tried_again(local, monkeypatch):
    def nowhere(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(addresses, "system_resolver", nowhere)
    job, run = local("http://nowhere.example/")
    assert (job.status, run.error_code) == ("scheduled", "connection_failed")
    assert "nowhere.example cannot be resolved: name or service not known" in run.error_message


# -- payloads ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({}, "'url' is missing"),
        ({"url": "ftp://x/"}, "only http and https"),
        ({"url": "http://u:p@x/"}, "user name or password"),
        ({"url": "http://x/", "method": "TRACE"}, "'method'"),
        ({"url": "http://x/", "headers": {"Host": "y"}}, "Host is set by the call itself"),
        ({"url": "http://x/", "headers": {"a b": "y"}}, "'a b' is no name of a header"),
        ({"url": "http://x/", "headers": {"A": "hush\r\nB: c"}}, "header A cannot be sent"),
        ({"url": "http://x/", "headers": {"A": "hush ✓"}}, "header A cannot be sent"),
        ({"url": "http://x/", "expected_status": "6xx"}, "'6xx' is no status"),
        ({"url": "http://x/", "expected_status": []}, "is no status"),
        ({"url": "http://x/", "expected_status": True}, "is no status"),
        ({"url": "http://x/", "timeout": 0}, "more than 0"),
        ({"url": "http://x/", "timeout": "2h"}, "at most 1h"),
        ({"url": "http://x/", "max_response_bytes": -1}, "max_response_bytes"),
        ({"url": "http://x/", "max_response_bytes": 10**9}, "max_response_bytes"),
        ({"url": "http://x/", "colour": "red"}, "there is no argument 'colour'"),
    ],
)
def test_a_wrong_payload_is_refused_when_the_job_is_added(payload, says):
    signature = http.definition(Evenbeat().settings).signature
    with pytest.raises(InvalidInput) as caught:
        signature.encode((), payload)
    message = str(caught.value)
    assert says.lower() in message.lower()
    assert "hush" not in message
    assert "Value error" not in message
    assert "Annotated" not in message


def test_a_sound_payload_is_stored_as_it_was_given():
    signature = http.definition(Evenbeat().settings).signature
    for payload in (
        {"url": "https://example.com/"},
        {"url": "http://x/", "timeout": 5, "expected_status": [200, "3xx"], "body": [1, {"a": ""}]},
        {"url": "http://x/", "timeout": "5m", "expected_status": 204, "body": "text"},
    ):
        assert signature.encode((), payload) == payload


def test_expected_statuses():
    assert expected_ranges("2xx") == [(200, 299)]
    assert expected_ranges([200, "204", "300-399", "4XX"]) == [
        (200, 200), (204, 204), (300, 399), (400, 499),
    ]  # fmt: skip


# -- secrets -------------------------------------------------------------------------------------


def test_headers_may_use_listed_variables_and_never_show_them(call, site, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("SITE_TOKEN", "hunter2-token")
    site.answers["/"] = lambda seen: (200, {"x-request-id": "hunter2-token"},
                                      f"you said {seen.headers}".encode())  # fmt: skip
    payload = {"url": f"{site.url}/", "headers": {"Authorization": "Bearer ${env:SITE_TOKEN}"}}
    job, run = call(payload, allow_private_addresses=True, http_header_variables="SITE_TOKEN")
    assert site.seen[0].headers["authorization"] == "Bearer hunter2-token"
    assert run.result["status"] == 200
    assert "Bearer …" in run.result["body"]
    assert "hunter2" not in f"{run} {job} {caplog.text}"


def test_a_variable_that_is_not_listed_or_not_set_fails_without_a_call(call, site):
    payload = {"url": f"{site.url}/", "headers": {"A": "${env:HOME}"}}
    job, run = call(payload, allow_private_addresses=True)
    assert (job.status, run.error_code) == ("failed", "variable_refused")
    assert "EVENBEAT_HTTP_HEADER_VARIABLES" in run.error_message
    assert site.seen == []
    with pytest.raises(Fail, match="NOPE is not set"):
        fill_in({"A": "${env:NOPE}"}, frozenset({"NOPE"}), {})
    with pytest.raises(Fail, match="header A cannot be sent") as caught:
        fill_in({"A": "${env:X}"}, frozenset({"X"}), {"X": "two\nlines"})
    assert "two" not in str(caught.value)


# -- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "127。0。0。1", "１２７.0.0.1"],  # noqa: RUF001
)
def test_loopback_is_refused_unless_allowed(call, site, host):
    job, run = call({"url": f"http://{host}:{site.port}/"})
    assert (job.status, run.error_code) == ("failed", "address_refused")
    assert "EVENBEAT_ALLOW_PRIVATE_ADDRESSES" in run.error_message or not host.isascii()
    assert site.seen == []


def test_loopback_is_reached_when_allowed(local, call, site):
    assert local(f"{site.url}/")[1].result["status"] == 200
    listed = call({"url": f"{site.url}/"}, allowed_networks=["127.0.0.1"])
    assert listed[1].result["body"] == "all well"


PUBLIC = "93.184.216.34"
NAMES = {
    "inside.example": ["10.0.0.7"],
    "here.example": ["127.0.0.1"],
    "mixed.example": [PUBLIC, "127.0.0.1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
}
FORBIDDEN = [
    "http://127.0.0.1:{port}/", "//127.0.0.1:{port}/", "http://127.0.0.1:{port}",
    "http://169.254.169.254/latest/meta-data/", "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::1]:{port}/", "http://[64:ff9b::7f00:1]:{port}/", "http://[2002:7f00:1::]:{port}/",
    "http://2130706433:{port}/", "http://0x7f000001:{port}/", "http://0177.0.0.1:{port}/",
    "http://0x7f.1:{port}/", "http://127.1:{port}/", "http://0:{port}/", "http://0.0.0.0:{port}/",
    "http://here.example:{port}/", "http://inside.example/", "http://mixed.example:{port}/",
    "http://mapped.example:{port}/", "http://metadata.example/", "http://localhost:{port}/",
    "http://public.example@127.0.0.1:{port}/", "http://127.0.0.1:{port}\\@public.example/",
    "https://127.0.0.1:{port}/", "ftp://127.0.0.1:{port}/", "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/_x", "http://192.168.0.1/", "http://224.0.0.1/",
]  # fmt: skip


def resolver(host, port):
    if host in NAMES:
        return NAMES[host]
    return [entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def test_no_redirect_leads_to_a_forbidden_address(site, database_url, monkeypatch):
    """The first site stands on an address that is allowed, the second on one that is not."""
    monkeypatch.setattr(addresses, "system_resolver", resolver)
    with serving("127.0.0.2") as outside:
        for number, target in enumerate(FORBIDDEN):
            location = target.format(port=site.port)
            outside.answers[f"/{number}"] = (302, {"location": location}, b"")
        app = Evenbeat(database_url, allowed_networks="127.0.0.2")
        app.registry.add(http.definition(app.settings))
        with Harness(app) as harness:
            added = app.enqueue_many(
                NewJob(JobSpec("http"), {"url": f"{outside.url}/{number}"})
                for number in range(len(FORBIDDEN))
            )
            assert harness.drain() == len(FORBIDDEN) == len(outside.seen)
            ends = {
                target: app.store.read.executions_of(job.id).executions[0].error_code
                for target, job in zip(FORBIDDEN, added, strict=True)
            }
    assert {target: code for target, code in ends.items() if code != "address_refused"} == {}
    assert site.seen == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_judged_by_every_address_it_has(call, site, name, monkeypatch):
    monkeypatch.setattr(addresses, "system_resolver", resolver)
    job, run = call({"url": f"http://{name}:{site.port}/"})
    assert (job.status, run.error_code) == ("failed", "address_refused")
    assert name in run.error_message
    assert site.seen == []


def test_the_checked_address_is_the_one_connected_to(call, site, monkeypatch):
    """A name that changes its address after the check finds nobody asking again."""
    asked = []

    def rebinding(host, _port):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    monkeypatch.setattr(addresses, "system_resolver", rebinding)
    payload = {"url": f"http://rebinding.example:{site.port}/"}
    _, run = call(payload, allow_private_addresses=True)
    assert run.result["status"] == 200
    assert asked == ["rebinding.example"]
    assert site.seen[0].headers["host"] == f"rebinding.example:{site.port}"


def test_proxies_of_the_environment_are_not_asked(local, site, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert local(f"{site.url}/")[1].result["status"] == 200


# -- redirects -----------------------------------------------------------------------------------


def test_redirects_are_followed_within_bounds(site, local):
    site.answers["/a"] = (302, {"location": "/b"}, b"")
    site.answers["/b"] = (307, {"location": f"{site.url}/"}, b"")
    site.answers["/loop"] = (302, {"location": "/loop"}, b"")
    _, run = local(f"{site.url}/a", headers={"X-Key": "k"})
    assert (run.result["status"], run.result["redirects"]) == (200, 2)
    assert run.result["url"] == f"{site.url}/"
    assert [seen.headers.get("x-key") for seen in site.seen] == ["k"] * 3
    job, run = local(f"{site.url}/loop")
    assert (job.status, run.error_code) == ("failed", "too_many_redirects")
    job, run = local(f"{site.url}/a", follow_redirects=False, expected_status="3xx")
    assert (run.result["status"], run.result["headers"]["location"]) == (302, "/b")


def test_another_origin_does_not_get_to_see_the_headers(site, call):
    with serving("127.0.0.2") as first:
        first.answers["/"] = (307, {"location": f"{site.url}/"}, b"")
        call(
            {
                "url": f"{first.url}/",
                "headers": {"Authorization": "a", "X-Key": "b", "Cookie": "c", "Accept": "d"},
            },
            allow_private_addresses=True,
        )
        assert first.seen[0].headers["x-key"] == "b"
    headers = site.seen[0].headers
    assert headers["accept"] == "d"
    assert not headers.keys() & {"authorization", "x-key", "cookie"}


# -- TLS -----------------------------------------------------------------------------------------


@pytest.fixture
def certified(tmp_path, monkeypatch):
    """The TLS settings of secure.example, whose certificate this machine trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    from evenbeat.external import fetching

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "secure.example")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("secure.example")]), False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "site.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    fetching.tls_context.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    yield context
    fetching.tls_context.cache_clear()


def test_a_pinned_connection_is_still_verified_by_name(certified, local, monkeypatch):
    with serving(tls=certified) as site:
        site.answers["/"] = OK
        monkeypatch.setattr(addresses, "system_resolver", lambda *_: ["127.0.0.1"])
        _, run = local(f"https://secure.example:{site.port}/")
        assert (run.result["status"], run.result["body"]) == (200, "all well")
        job, run = local(f"https://other.example:{site.port}/")
        assert (job.status, run.error_code) == ("scheduled", "connection_failed")
        assert "certificate" in run.error_message.lower()
        assert len(site.seen) == 1


# -- offering it ---------------------------------------------------------------------------------


def test_built_in_tasks_are_offered_without_loading_what_they_need():
    code = (
        "import sys; from evenbeat import Evenbeat; app = Evenbeat();"
        "assert not app.registry.named(); print(app.include_builtins(), app.include_builtins());"
        "heavy = ('httpx', 'httpcore', 'anyio', 'scrapy', 'twisted');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['http', 'crawl'] []\n[]\n"


def test_the_commands_offer_them_unless_the_settings_say_no(monkeypatch: pytest.MonkeyPatch):
    assert served_app(None, database=None).registry.named() == ["crawl", "http"]
    monkeypatch.setenv("EVENBEAT_ALLOW_SHELL", "true")
    assert served_app(None, database=None).registry.named() == ["crawl", "http", "shell"]
    monkeypatch.setenv("EVENBEAT_BUILTIN_TASKS", "false")
    assert not served_app(None, database=None).registry.named()


def test_a_task_of_the_applications_own_takes_the_place():
    app = Evenbeat(allow_shell=True)

    @app.task(name="http")
    def mine() -> None: ...

    assert app.include_builtins() == ["crawl", "shell"]
    assert app.registry.get("http").handler is mine.definition.handler

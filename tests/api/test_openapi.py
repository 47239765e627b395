"""The OpenAPI document is true: schemathesis asks what it allows and forbids, in every role.

`EVENBEAT_OPENAPI=full` asks thousands of times in each role, of a running service (`make fuzz`);
the default is what every test run can afford.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import from_schema
from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished

from loopback import served
from waiting import PATIENCE

FULL = os.environ.get("EVENBEAT_OPENAPI") == "full"
LEAST = 2_000 if FULL else 150

# Grammars that the document names as formats, since no pattern holds just what they allow.
_WORDS = st.sampled_from(["nightly-report", "a", "x" * 200, "Überweisung 7", "東京", "a/b c"])
_SPANS = st.builds("{}{}".format, st.integers(1, 59), st.sampled_from(["s", "m", "min"[:1]]))
for name, texts in {
    "name": _WORDS,
    "printable": _WORDS,
    "scope": st.sampled_from(["tenant", "acme", "Überseehafen 7"]),
    "time-span": st.one_of(_SPANS, st.sampled_from(["1h30m", " 90s ", "1.5h", ".5m"])),
    "size": st.sampled_from(["512MB", "1.5GB", "2 GiB", "1048576"]),
    "window": st.sampled_from(
        ["Mon-Fri 22:00-06:00 Europe/Berlin", "09:00-17:30", "Sat,Sun 00:00-24:00"]
    ),
    "rate": st.builds(
        "{}/{}".format, st.integers(1, 1_000_000), st.sampled_from(["s", "min", "h"])
    ),
    "schedule": st.one_of(
        st.sampled_from(["@daily", "0 9 * * mon-fri", "*/5 * * * *", "@monthly"]),
        st.builds("@every {}m".format, st.integers(1, 10_000)),
    ),
    "clock-time": st.sampled_from(["08:00 Europe/Berlin", "23:59", "0:05 UTC"]),
    "time-zone": st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns"]),
}.items():
    schemathesis.openapi.format(name, texts)

SEMANTIC = {
    "payload.*": "arguments are checked by the task's own schema",
    r"parameters\..*": "those that the template has, by its own rules",
    "body.*": "a template's job is checked as a job is, once placeholders are filled",
    "Idempotency-Key": "it was used for another request",
    "job_id": "it must exist",
    "after": "the jobs must exist",
    "name": "a name cannot be taken away",
    "run_at|delay": "the job has a schedule",
    "unique_by": "the payload must have these arguments",
    "throttle|debounce|debounce_max": "one bounds the other, and not all go together",
    "fair_key": "a job takes turns or has limits, which may be its task's or already there",
    "retry_cap|retry_backoff|lease|heartbeat": "one bounds the other, which may be a default",
    "from|to": "the order of two moments, both in the past",
    "until": "it must be in the future",
    "memory_limit|cpu_limit": "the task must run in a process of its own",
    "events": "balance.low and alerts go with no filter",
    "schedule_enabled": "there must be a schedule",
    "url": "where it leads",
}
"""What a request may be refused for that its schema allows: fields of the answer, and why."""


@schemathesis.hook
def before_call(_ctx: Any, case: Any, _kwargs: Any) -> None:
    """A job has one rhythm, which would take the schema a page to say: of several, one stays."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    jobs = case.body.get("jobs", [case.body]) if isinstance(case.body, dict) else []
    for job in [one for one in jobs if isinstance(one, dict)]:
        rhythms = [one for one in ("after", "schedule", "interval_seconds") if job.get(one)]
        if "count" not in job:  # of a preview, `after` is a moment
            for other in rhythms[:-1] if len(job) % 2 else rhythms[1:]:
                del job[other]
        if not job.get("after"):
            job.pop("after_on", None)
        if job.get("interval_seconds") is None:
            job.pop("anchor_at", None)
        if job.get("run_at"):
            job.pop("delay", None)


@schemathesis.hook
def filter_query(ctx: Any, query: Any) -> bool:
    """In a query, one word is a list of one: a single value in place of a list is no wrong one."""
    lists = {one.name for one in ctx.operation.query if '"array"' in json.dumps(one.definition)}
    return not any(isinstance(query.get(name), str | int | float) for name in lists)


@schemathesis.check
def refused_for_a_reason(_ctx: Any, response: Any, case: Any) -> None:
    """What the schema allows is refused only for what no schema can say."""
    if response.status_code != 422 or not case.meta.generation.mode.is_positive:
        return
    problem = json.loads(response.content)
    for error in problem["errors"] or [{"field": ""}]:
        field = re.sub(r"^jobs\.\d+\.", "", error["field"])
        is_stand_in = "'AAA'" in error["message"]  # schemathesis' own, whatever the format
        if not is_stand_in and not any(re.fullmatch(known, field) for known in SEMANTIC):
            raise AssertionError(f"{case.operation.label}: {error} {case.body!r}")


CONFIG: dict[str, Any] = {
    "checks": {
        # 409: the state forbids it. 413: it is too large. 422: see `refused_for_a_reason`.
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "401", "403", "404", "409", "413", "422"]
        },
    },
    "generation": {"max-examples": 22 if FULL else 3, "database": "none", "allow-x00": False},
    "seed": 1,
    # It would put texts out of the source code where a format says what is allowed.
    "analysis": {"constants": {"enabled": False}},
}


TWINS = ("create_jobs", "put_job", "put_template", "admin_update_scheduled_job")
"""Left to the long run: they take the same bodies as others."""


def phases(role: str) -> dict[str, Any]:
    """What to try: every boundary of every field takes thousands of requests, so by default one
    role pays for that, and the others are tried at random."""
    return {
        "coverage": {"enabled": FULL or role == "operator"},
        "fuzzing": {"enabled": FULL or role != "operator"},
        "stateful": {"enabled": FULL},
    }


@pytest.mark.timeout(0 if FULL else 900)
@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_every_answer_is_documented(
    api: FastAPI, role: str, token_for: Callable[[str], str]
) -> None:
    headers = {"Authorization": f"Bearer {token_for(role)}"}
    config = SchemathesisConfig.from_dict(CONFIG | {"headers": headers, "phases": phases(role)})
    failures, asked = [], 0
    with served(api) as url:
        if FULL:
            schema = schemathesis.openapi.from_url(
                f"{url}/openapi.json", config=config, timeout=PATIENCE
            )
        else:  # several times faster
            schema = schemathesis.openapi.from_asgi("/openapi.json", api, config=config)
        left_out = ["stream_events", *(() if FULL else TWINS)]  # a stream has no end
        for event in from_schema(schema.exclude(operation_id=left_out)).execute():
            if isinstance(event, ScenarioFinished):
                asked += len(event.recorder.interactions)
                failures += (new := list(_failures(event)))
                if FULL and new:  # the end is an hour away
                    print("\n\n".join(dict.fromkeys(new)), flush=True)  # noqa: T201
            elif isinstance(event, NonFatalError | FatalError):
                failures.append(str(event.__dict__ if hasattr(event, "__dict__") else event))
    print(f"{role}: {asked:,} requests")  # noqa: T201
    assert asked > LEAST
    assert not failures, "\n\n".join(dict.fromkeys(failures))


def _failures(event: ScenarioFinished) -> Iterator[str]:
    for case_id, checks in event.recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                interaction = event.recorder.interactions.get(case_id)
                answer = interaction.response if interaction else None
                shown = f"{answer.status_code} {answer.content[:500]!r}" if answer else ""
                yield (
                    f"{event.label} {check.name}: {check.failure_info.failure}\n"
                    f"{check.failure_info.code_sample}\n{shown}"
                )


def test_every_operation_is_described(api: FastAPI) -> None:
    for path, item in api.openapi()["paths"].items():
        for method, operation in item.items():
            place = f"{method.upper()} {path}"
            assert operation.get("operationId"), place
            assert operation.get("summary"), place
            assert operation.get("tags"), place
            if "security" in operation:
                assert {"401", "403"} <= operation["responses"].keys(), place


def test_headers_and_counts_are_described(api: FastAPI) -> None:
    document = api.openapi()
    for path in ("jobs", "templates/{name}/jobs"):
        answers = document["paths"][f"/api/v1/{path}"]["post"]["responses"]
        assert set(answers["201"]["headers"]) == {"Location"}
        assert set(answers["200"]["headers"]) == {"Location", "Idempotency-Replayed"}
    counts = document["paths"]["/api/admin/jobs/stats"]["get"]["responses"]["200"]["content"]
    assert {"queued", "total", "running"} <= counts["application/json"]["schema"][
        "properties"
    ].keys()
    assert document["components"]["schemas"]["Alive"]["properties"]["status"]["const"] == "ok"

"""The OpenAPI document is true: schemathesis asks what it allows and forbids, in every role.

`EVENBEAT_OPENAPI_EXAMPLES=200` asks much more; the default is what every test run can afford.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import from_schema
from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished

EXAMPLES = int(os.environ.get("EVENBEAT_OPENAPI_EXAMPLES", "0"))

CONFIG: dict[str, Any] = {
    "checks": {
        # 409: the state forbids it. 413: it is too large. 422: a text that is a text, but no
        # schedule, or two fields that exclude each other: what JSON schema cannot say.
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "401", "403", "404", "409", "413", "422"]
        },
    },
    "generation": {"max-examples": EXAMPLES or 3, "database": "none"},
    "seed": 1,
}


def phases(role: str) -> dict[str, Any]:
    """What to try: every boundary of every field takes thousands of requests, so by default one
    role pays for that, and the others are tried at random."""
    return {
        "coverage": {"enabled": EXAMPLES > 0 or role == "operator"},
        "fuzzing": {"enabled": EXAMPLES > 0 or role != "operator"},
        "stateful": {"enabled": EXAMPLES > 0},
    }


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_every_answer_is_documented(
    api: FastAPI, role: str, token_for: Callable[[str], str]
) -> None:
    headers = {"Authorization": f"Bearer {token_for(role)}"}
    config = SchemathesisConfig.from_dict(CONFIG | {"headers": headers, "phases": phases(role)})
    schema = schemathesis.openapi.from_asgi("/openapi.json", api, config=config)
    # A stream has no end that could be checked.
    told, asked = [], 0
    for event in from_schema(schema.exclude(operation_id="stream_events")).execute():
        if isinstance(event, ScenarioFinished):
            asked += len(event.recorder.interactions)
            told += _failures(event)
        elif isinstance(event, NonFatalError | FatalError):
            told.append(str(event.__dict__ if hasattr(event, "__dict__") else event))
    assert asked > 150
    assert not told, "\n\n".join(dict.fromkeys(told))


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

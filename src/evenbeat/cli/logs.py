"""`evenbeat job logs` and `evenbeat execution logs`: what runs have left and logged, also live."""

import time
from collections.abc import Iterator
from typing import Annotated

from evenbeat.cli.client import ApiError, Client, Document
from evenbeat.cli.output import both, print_json, say, show
from evenbeat.cli.session import (
    ApiSession,
    JobArgument,
    LimitOption,
    api_command,
    argument,
    find,
    flag,
    option,
)
from evenbeat.cli.views import execution_facts, left_out, log_lines, section
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.states import FINISHED

FollowOption = Annotated[bool, flag("--follow", "Go on with what is logged from now on.", "-f")]
EveryOption = Annotated[str, option("DURATION", "How often to look.", hidden=True)]


@api_command
def job_logs(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    job: JobArgument,
    follow: FollowOption = False,
    failed: Annotated[bool, flag("--failed", "Only those that failed.")] = False,
    limit: LimitOption = 10,
    every: EveryOption = "500ms",
) -> None:
    """Show what a job's executions left: results, errors with their traces, progress, figures, and
    what they logged.

    With -f, the newest execution's log and what it and those after it log from then on, until the
    job has ended. Ctrl-C stops the watching; the job goes on.
    """
    client = session.client
    path = f"/api/v1/jobs/{find(client, 'job', job)['id']}"
    if follow:
        _follow_job(session, path, _seconds(every))
        return
    history = client.get(f"{path}/executions", status="failed" if failed else None, limit=limit)
    views = []
    for one in reversed(history["executions"]):
        one["log"] = _whole_log(client, one["id"])
        views += [execution_facts(one, client.now())]
        if lines := [*log_lines(one["log"]["lines"])]:
            views.append(section("Log", *lines))
        views.append("")
    session.show(history, *views[:-1])
    if not history["executions"]:
        say("It has no failed executions." if failed else "It has not run yet.")


@api_command
def execution_logs(
    session: ApiSession,
    execution: Annotated[str, argument("ID", "The id, or the beginning that lists show.")],
    follow: FollowOption = False,
    every: EveryOption = "500ms",
) -> None:
    """Show what one execution has logged: its first lines and its last ones.

    With -f, go on until it has ended. Ctrl-C stops the watching; the run goes on.
    """
    id_ = find(session.client, "execution", execution)["id"]
    if follow:
        _follow_execution(session, id_, _seconds(every))
        return
    log = _whole_log(session.client, id_)
    session.show(log, *log_lines(log["lines"]))
    if not log["lines"]:
        say("It has logged nothing, or that is not kept any more.")


def _seconds(every: str) -> float:
    return parse_duration(every, field="every").total_seconds()


def _whole_log(client: Client, execution_id: str) -> Document:
    """All that is kept, as one page."""
    whole: Document = {"lines": [], "left_out": 0, "after": 0}
    for page in _pages(client, execution_id):
        whole = page | {name: whole[name] + page[name] for name in ("lines", "left_out")}
        if not page["has_more"]:
            break
    return whole


def _pages(client: Client, execution_id: str) -> Iterator[Document]:
    """The log from its beginning, page by page, without an end. A service that is away may come
    back."""
    after, is_away = 0, False
    while True:
        try:
            page = client.get(f"/api/v1/executions/{execution_id}/log", after=after)
        except ApiError as error:
            if error.exit_code != 3 or not after:
                raise
            if not is_away:
                say(f"{error} Trying again; Ctrl-C ends it.")
            is_away = True
            time.sleep(1.0)
            continue
        is_away = False
        yield page | {"before": after}
        after = page["after"]


def _follow_execution(session: ApiSession, execution_id: str, pause: float) -> None:
    for page in _pages(session.client, execution_id):
        if session.as_json:
            for line in page["lines"]:
                print_json(line, indent=None)
        else:
            for line in log_lines(page["lines"], page["before"]):
                show(line)
            last = page["lines"][-1]["number"] if page["lines"] else page["before"]
            if gap := page["after"] - last:
                show(left_out(gap))
        if not page["has_more"]:
            if page["status"] != "running":
                return
            time.sleep(pause)


def _follow_job(session: ApiSession, path: str, pause: float) -> None:
    client, seen = session.client, ""
    while True:
        job = client.get(path)  # before its runs: if it has ended, these are all
        runs = client.get(f"{path}/executions", limit=100 if seen else 1)["executions"]
        new = sorted((run for run in runs if run["id"] > seen), key=lambda run: str(run["id"]))
        for run in new:
            seen = run["id"]
            begun = both(run["started_at"], client.now())
            say(f"-- run {run['execution_number']}, try {run['retry_attempt'] + 1}, begun {begun}")
            _follow_execution(session, seen, pause)
            end = client.get(f"/api/v1/executions/{seen}")
            say(": ".join(filter(None, (f"-- {end['status']}", end["error_message"]))))
        if not new:
            if job["status"] in FINISHED:
                if not runs:
                    say(f"It is {job['status']} and did not run.")
                return
            time.sleep(pause)

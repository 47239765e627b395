"""`evenbeat distribution` and `evenbeat rebalance`: how even the schedule is, and making it so."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from rich.console import Group
from rich.text import Text

from evenbeat.cli.client import Document
from evenbeat.cli.output import Column, confirmed, heading, moment, safe, show, table
from evenbeat.cli.session import ApiSession, YesOption, api_command, flag, option
from evenbeat.errors import InvalidInput
from evenbeat.humanize import count

_PATH = "/api/v1/scheduler"
_WIDTH = 48
_MOST_SHOWN = 20


@api_command
def distribution(session: ApiSession) -> None:
    """Show how many jobs start in each hour, how even the load is, and what to do about it."""
    current = session.client.get(f"{_PATH}/distribution")
    session.show(current, lambda: distribution_view(current))


@api_command
def rebalance(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    preview: Annotated[
        bool, flag("--preview", "Show what would move, and change nothing (default).")
    ] = False,
    apply: Annotated[bool, flag("--apply", "Move the jobs.")] = False,
    undo: Annotated[UUID | None, option("ID", "Put back what a rebalance moved.")] = None,
    max_moves: Annotated[int | None, option("N", "Move so many jobs at most.", min=1)] = None,
    yes: YesOption = False,
) -> int:
    """Lower the peak with the fewest moves. No job moves by more than half its interval."""
    if preview + apply + (undo is not None) > 1:
        raise InvalidInput("Give one of --preview, --apply and --undo ID.", field="preview")
    if undo is not None:
        if max_moves is not None:
            raise InvalidInput("--max-moves does not go with --undo.", field="max_moves")
        if not confirmed(f"Put back what rebalance {undo} moved?", yes):
            return 1
        undone = session.client.post(f"{_PATH}/rebalance/{undo}/undo")
        restored = heading(f"{count(len(undone['restored']), 'job')} put back")
        session.show(undone, restored, *_stays(undone["left_alone"], "left alone"))
        return 0
    body: Document = {} if max_moves is None else {"max_moves": max_moves}
    if not apply or not yes:
        plan = session.client.post(f"{_PATH}/rebalance/preview", body)
        if not apply or not plan["would_move"]:
            session.show(plan, lambda: preview_view(plan))
            return 0
        if not session.as_json:
            show(preview_view(plan))
        if not confirmed(f"Move {count(plan['would_move'], 'job')}?", yes):
            return 1
        body = {**body, "plan_id": plan["plan_id"]}  # what is applied is just what was shown
    done = session.client.post(f"{_PATH}/rebalance", body)
    session.show(done, lambda: done_view(done))
    return 0


def distribution_view(current: Document) -> Group:
    """Bars for the hours, the peak marked, and the figures below."""
    hours = current["hourly_distribution"]
    most = max((hour["job_count"] for hour in hours), default=0)
    lines = [heading(f"Starts per hour, the coming {current['window_hours']} hours (UTC)")]
    for hour in hours:
        jobs, is_peak = hour["job_count"], bool(most) and hour["hour"] == current["peak_hour"]
        blocks = "█" * round(_WIDTH * jobs / max(1, most)) or ("▏" if jobs else "")
        line = Text(f"  {hour['hour']:02d} ").append(blocks, "red" if is_peak else "blue")
        lines.append(line.append(f" {jobs:,}" + ("  <- peak" if is_peak else "")))
    peak, mean = current["expected_peak"], current["expected_mean"]
    score, slots = current["distribution_score"], count(current["workers_needed"], "worker slot")
    return Group(
        *lines,
        Text(),
        Text(f"{count(current['total_jobs'], 'job')}, score {score:.2f} (1.00 is even)"),
        Text(f"{peak:,.1f} run at once at most, {mean:,.1f} on average: {slots} needed"),
        Text(safe(current["suggestion"])),
    )


def preview_view(plan: Document) -> Group:
    """What would move, what stays and why, and what it gains."""
    if not plan["would_move"]:
        return Group(
            heading("There is nothing to gain: no move would lower the peak."),
            *_stays(plan["skipped"]),
        )
    title = f"{count(plan['would_move'], 'job')} would move"
    return _moves(title, plan, plan["preview"], "current_time", "proposed_time")


def done_view(done: Document) -> Group:
    """What was moved, and how to take it back."""
    if not done["moved"]:
        return Group(heading("No job moved."), *_stays(done["skipped"]))
    return Group(
        _moves(
            f"{count(len(done['moved']), 'job')} moved", done, done["moved"], "old_time", "new_time"
        ),
        Text(f"To take it back: evenbeat rebalance --undo {done['id']}"),
    )


def _moves(title: str, plan: Document, moves: Sequence[Document], old: str, new: str) -> Group:
    """The moves, the jobs that stay, and the gain."""
    when = "{:%a %d %b %H:%M:%S}".format
    columns: dict[str, Column] = {
        "job…": lambda move: move["name"] or move["job_id"],
        "from": lambda move: when(moment(move[old])),
        "to": lambda move: when(moment(move[new])),
        "why…": "reason",
    }
    more = len(moves) - _MOST_SHOWN
    before, after = plan["before"], plan["after"]
    peaks = f"{before['expected_peak']:,.1f} -> {after['expected_peak']:,.1f}"
    scores = f"{before['distribution_score']:.2f} -> {after['distribution_score']:.2f}"
    return Group(
        heading(title),
        table(moves[:_MOST_SHOWN], columns),
        *([Text(f"and {more:,} more, see --json", "dim")] if more > 0 else []),
        *_stays(plan["skipped"]),
        Text(f"Peak concurrency {peaks}, score {scores}"),
    )


def _stays(jobs: Sequence[Document], words: str = "stay") -> list[Text]:
    reasons = Counter(job["reason"] for job in jobs).most_common()
    by_reason = ", ".join(f"{number:,} {reason}" for reason, number in reasons)
    return [Text(f"{len(jobs):,} {words}: {safe(by_reason)}")] if jobs else []

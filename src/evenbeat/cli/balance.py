"""`evenbeat distribution` and `evenbeat rebalance`: how even the schedule is, and making it so."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Group
from rich.text import Text

from evenbeat.cli.client import Document
from evenbeat.cli.output import cell, confirmed, heading, safe, show, table
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.errors import InvalidInput
from evenbeat.humanize import count

_PATH = "/api/v1/scheduler"
_WIDTH = 48
_MOST_SHOWN = 20


@api_command
def distribution(session: ApiSession) -> None:
    """Show how many jobs start in each hour, how even the load is, and what to do about it."""
    told = session.client.get(f"{_PATH}/distribution")
    session.show(told, lambda: distribution_view(told))


@api_command
def rebalance(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what would move, and change nothing (default).")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Move the jobs.")] = False,
    undo: Annotated[
        UUID | None, typer.Option(metavar="ID", help="Put back what a rebalance moved.")
    ] = None,
    max_moves: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Move so many jobs at most.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Lower the peak with the fewest moves. No job moves by more than half its interval."""
    if preview + apply + (undo is not None) > 1:
        raise InvalidInput("Give one of --preview, --apply and --undo ID.", field="preview")
    if undo is not None:
        if max_moves is not None:
            raise InvalidInput("--max-moves does not go with --undo.", field="max_moves")
        return _undo(session, undo, yes)
    limit = {} if max_moves is None else {"max_moves": max_moves}
    if apply:
        return _apply(session, limit, yes)
    planned = session.client.post(f"{_PATH}/rebalance/preview", limit)
    session.show(planned, lambda: preview_view(planned))
    return 0


def _apply(session: ApiSession, limit: Document, yes: bool) -> int:
    """Show what would move and ask; what is then applied is just what was shown."""
    body = dict(limit)
    if not yes:
        planned = session.client.post(f"{_PATH}/rebalance/preview", limit)
        if not planned["would_move"]:
            session.show(planned, lambda: preview_view(planned))
            return 0
        if not session.as_json:
            show(preview_view(planned))
        if not confirmed(f"Move {count(planned['would_move'], 'job')}?", yes):
            return 1
        body["plan_id"] = planned["plan_id"]
    done = session.client.post(f"{_PATH}/rebalance", body)
    session.show(done, lambda: done_view(done))
    return 0


def _undo(session: ApiSession, rebalance_id: UUID, yes: bool) -> int:
    if not confirmed(f"Put back what rebalance {rebalance_id} moved?", yes):
        return 1
    undone = session.client.post(f"{_PATH}/rebalance/{rebalance_id}/undo")
    session.show(undone, lambda: undone_view(undone))
    return 0


# ---------------------------------------------------------------- what it shows


def distribution_view(told: Document) -> Group:
    """Bars for the hours, the peak marked, and the figures below."""
    hours = told["hourly_distribution"]
    most = max((hour["job_count"] for hour in hours), default=0)
    lines = [heading(f"Starts per hour, the coming {told['window_hours']} hours (UTC)")]
    for hour in hours:
        is_peak = bool(most) and hour["hour"] == told["peak_hour"]
        lines.append(_bar(hour["hour"], hour["job_count"], most, is_peak))
    return Group(*lines, Text(), *_figures(told), Text(safe(told["suggestion"])))


def _bar(hour: int, jobs: int, most: int, is_peak: bool) -> Text:
    blocks = "█" * round(_WIDTH * jobs / max(1, most)) or ("▏" if jobs else "")
    line = Text(f"  {hour:02d} ").append(blocks, "red" if is_peak else "blue")
    return line.append(f" {jobs:,}" + ("  <- peak" if is_peak else ""))


def _figures(told: Document) -> list[Text]:
    peak, mean, score = told["expected_peak"], told["expected_mean"], told["distribution_score"]
    workers = f"{told['workers_needed']:,} needed at a time"
    return [
        Text(f"{count(told['total_jobs'], 'job')}, score {score:.2f} (1.00 is even)"),
        Text(f"{peak:,.1f} run at once at most, {mean:,.1f} on average: worker slots {workers}"),
    ]


def preview_view(planned: Document) -> Group:
    """What would move, what stays and why, and what it gains."""
    if not planned["would_move"]:
        told = heading("There is nothing to gain: no move would lower the peak.")
        return Group(told, *_stays(planned["skipped"]))
    return Group(
        heading(f"{count(planned['would_move'], 'job')} would move"),
        *_moves(planned["preview"], ("current_time", "proposed_time")),
        *_stays(planned["skipped"]),
        _gain(planned["before"], planned["after"]),
    )


def done_view(done: Document) -> Group:
    """What was moved, and how to take it back."""
    if not done["moved"]:
        return Group(heading("No job moved."), *_stays(done["skipped"]))
    return Group(
        heading(f"{count(len(done['moved']), 'job')} moved"),
        *_moves(done["moved"], ("old_time", "new_time")),
        *_stays(done["skipped"]),
        _gain(done["before"], done["after"]),
        Text(f"To take it back: evenbeat rebalance --undo {done['id']}"),
    )


def undone_view(undone: Document) -> Group:
    """What was put back, and what was not."""
    restored = heading(f"{count(len(undone['restored']), 'job')} put back")
    return Group(restored, *_stays(undone["left_alone"], "left alone"))


def _moves(moves: Sequence[Document], keys: tuple[str, str]) -> list[Any]:
    shown = table("job…", "from", "to", "why…")
    for move in moves[:_MOST_SHOWN]:
        times = [_short(move[key]) for key in keys]
        shown.add_row(cell(move["name"] or move["job_id"]), *times, cell(move["reason"]))
    more = len(moves) - _MOST_SHOWN
    return [shown, *([Text(f"and {more:,} more, see --json", "dim")] if more > 0 else [])]


def _stays(jobs: Sequence[Document], words: str = "stay") -> list[Text]:
    reasons = Counter(job["reason"] for job in jobs).most_common()
    told = ", ".join(f"{number:,} {reason}" for reason, number in reasons)
    return [Text(f"{len(jobs):,} {words}: {safe(told)}")] if jobs else []


def _gain(before: Mapping[str, Any], after: Mapping[str, Any]) -> Text:
    peaks = f"{before['expected_peak']:,.1f} -> {after['expected_peak']:,.1f}"
    scores = f"{before['distribution_score']:.2f} -> {after['distribution_score']:.2f}"
    return Text(f"At once at most {peaks}, score {scores}")


def _short(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%a %d %b %H:%M:%S}"

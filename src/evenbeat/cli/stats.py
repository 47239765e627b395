"""`evenbeat stats`: the scheduler in figures."""

from rich.console import Group, RenderableType
from rich.text import Text

from evenbeat.cli.client import Document
from evenbeat.cli.output import both, facts, heading, status
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.humanize import count, milliseconds


@api_command
def stats(session: ApiSession) -> None:
    """Show how many jobs are in which state, and how their executions went."""
    told = session.client.get("/api/v1/scheduler/metrics")
    session.show(told, lambda: figures(told, session))


def figures(told: Document, session: ApiSession) -> RenderableType:
    """The scheduler's metrics, in two blocks."""
    runs, now = told["executions"], session.client.now()
    rate = runs["success_rate"]
    return Group(
        jobs_line(told["jobs"]),
        Text(),
        heading("Executions"),
        facts({
            "total": f"{runs['total']:,}",
            "succeeded": "" if rate is None else f"{share(rate):.1f} %",
            "take": milliseconds(runs["average_duration_ms"]),
            "stale locks cleared": f"{told['stale_locks_cleared']:,}",
            "last sign of life": both(told["last_check_at"], now) or "no worker",
            "counted": both(told["last_metrics_update"], now),
        }),
    )  # fmt: skip


def share(rate: float) -> float:
    """A rate between 0 and 1 in per cent."""
    return 100 * rate


def jobs_line(jobs: dict[str, int]) -> Text:
    """How many jobs are in each state, on one line."""
    line = Text.assemble((count(sum(jobs.values()), "job"), "bold"))
    for state, number in jobs.items():
        if number:
            line.append("   ").append_text(status(state)).append(f" {number:,}")
    return line

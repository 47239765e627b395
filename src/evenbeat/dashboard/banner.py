"""The banner over every screen: why nothing runs, or no longer as it should. Pure."""

from datetime import datetime, timedelta, tzinfo

from evenbeat.humanize import count, duration, time_of_day
from evenbeat.store.summaries import Standstill

NO_WRITES = (
    "The database takes no writes right now. Changes fail until it does; runs that have finished "
    "are kept by their workers and written then."
)
_BEHIND = timedelta(minutes=5)


def standstill(state: Standstill, lag: float, now: datetime, zone: tzinfo) -> str:
    """What is to be said, the gravest; empty if all is well. `lag` is how many seconds old what
    the page shows is."""

    def at(moment: datetime) -> str:
        return f"{time_of_day(moment, now, zone)} {moment.astimezone(zone).tzname()}"

    is_settled = state.oldest_start is not None and now - state.oldest_start > _BEHIND
    if not state.workers and state.jobs_wait:
        since = f" since {at(state.last_heartbeat)}" if state.last_heartbeat else ""
        return f"No worker is alive{since}: nothing runs. Start one: evenbeat worker"
    if state.held_back and not state.free:
        jobs = count(state.held_back, "job is", "jobs are")
        return f"Everything is paused, jobs or their queues: {jobs} held back."
    if is_settled and state.counted_at and now - state.counted_at > _BEHIND:
        since = at(state.counted_at)
        return f"No maintenance since {since}: figures are old, lost runs may go unnoticed."
    if lag > _BEHIND.total_seconds():
        return f"What you see is {duration(lag)} old: the replica is behind."
    return ""

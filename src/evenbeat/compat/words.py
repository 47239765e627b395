"""The words of older clients: for the fields of a job, and for its states; and which crawls they
take for the same; pure. Whoever imports this module teaches the API these words.

In a job's document they write `interval_minutes` with `interval_type`, `schedule_time` and
`retry_backoff_seconds`. `modern_fields` translates a request, `older_fields` adds them to a
response. What the schedule alone does not tell (60 minutes or 1 hour, the cron expression that an
interval has replaced) is remembered in the job's metadata.

For states the admin API has `queued` (pending or scheduled), `crawling` (running), `success`
(completed), `failed`, `paused` and `cancelled`; the seven words of /api/v1 are accepted as well.
Nobody writes a state: setting one means a verb that leads there. Only a run makes a job `running`,
`completed` or `failed`; a job that is to end without a run is cancelled.
"""

from collections.abc import Sequence
from typing import Any

from evenbeat.api.requests import CRAWL, DEDUP_KEYS, DIALECTS, WORDING
from evenbeat.api.responses import JOB_EXTRAS
from evenbeat.domain.job import JobRecord, NewJob
from evenbeat.domain.schedule import LONGEST_INTERVAL, parse_schedule
from evenbeat.domain.setting_kinds import plain_number
from evenbeat.domain.states import VERBS, JobStatus, Verb
from evenbeat.domain.unique import dedup_key
from evenbeat.errors import IllegalTransition, InvalidInput
from evenbeat.store.part import one_of

SECONDS = {"minutes": 60, "hours": 3_600, "days": 86_400}
OLDER_SCHEDULE = ("interval_minutes", "interval_type", "schedule_time")

WORDS: dict[str, tuple[JobStatus, ...]] = {
    "queued": (JobStatus.PENDING, JobStatus.SCHEDULED),
    "crawling": (JobStatus.RUNNING,),
    "success": (JobStatus.COMPLETED,),
    "failed": (JobStatus.FAILED,),
} | {state.value: (state,) for state in JobStatus if state is not JobStatus.FAILED}
"""Every word that is accepted, with the states it means."""

WORD_OF: dict[JobStatus, str] = {
    state: next(word for word, states in WORDS.items() if state in states) for state in JobStatus
}
"""The word that responses have for each state."""


def modern_fields(document: dict[str, Any]) -> dict[str, Any]:
    """The document in our own words. An interval goes before `schedule_time`."""
    fields = dict(document)
    if (backoff := fields.pop("retry_backoff_seconds", None)) is not None:
        fields.setdefault("retry_backoff", backoff)
    number, unit = fields.pop("interval_minutes", None), fields.pop("interval_type", None)
    text = fields.pop("schedule_time", None)
    if text is not None:
        try:
            parse_schedule(text)
        except InvalidInput as error:
            raise InvalidInput(f"schedule_time: {error}", field="schedule_time") from None
    if unit not in (None, *SECONDS):
        raise InvalidInput(
            f"interval_type must be one of {', '.join(SECONDS)}, got {unit!r}.",
            field="interval_type",
        )
    if number is not None:
        seconds = number * SECONDS[unit or "minutes"] if type(number) is int else 0
        if not 0 < seconds <= LONGEST_INTERVAL.total_seconds():
            raise InvalidInput(
                "interval_minutes must be a whole number from 1 on, and at most "
                f"{LONGEST_INTERVAL.days} days, got {str(number)[:40]}.",
                field="interval_minutes",
            )
        if fields.setdefault("interval_seconds", seconds) != seconds:
            raise InvalidInput(
                "interval_minutes and interval_seconds both say how often to run. Give one.",
                field="interval_minutes",
            )
        wording = {"interval_minutes": number, "interval_type": unit or "minutes"}
        if wording == _in_largest_unit(seconds):
            wording = dict.fromkeys(wording)  # what the schedule tells by itself
        if "schedule_time" in document:
            wording["schedule_time"] = text
        fields["wording"] = wording
    elif unit is not None:
        raise InvalidInput(
            "interval_type is the unit of interval_minutes, which is missing. For example "
            '"interval_minutes": 6, "interval_type": "hours".',
            field="interval_minutes",
        )
    elif text is not None and "schedule" not in fields:
        fields["schedule"] = text
    return fields


def older_fields(job: JobRecord) -> dict[str, Any]:
    """The schedule as an older client wrote it, otherwise the pair that describes the interval."""
    fields: dict[str, Any] = {"schedule_time": job.cron_expression}
    fields |= _in_largest_unit(job.interval_seconds)
    wording = job.metadata.get(WORDING)
    if isinstance(wording, dict) and job.interval_seconds is not None:
        # Metadata can be written by anyone: only what the schedule really says is answered.
        number, unit = wording.get("interval_minutes"), wording.get("interval_type")
        size = SECONDS.get(unit, 0) if isinstance(unit, str) else 0
        if isinstance(number, int) and number * size == job.interval_seconds:
            fields |= {"interval_minutes": number, "interval_type": unit}
        if isinstance(text := wording.get("schedule_time"), str):
            fields["schedule_time"] = text
    return fields | {"retry_backoff_seconds": plain_number(job.retry_backoff_seconds)}


def _in_largest_unit(seconds: int | None) -> dict[str, Any]:
    """The pair that describes an interval, in the largest unit that fits without a rest."""
    fields: dict[str, Any] = {"interval_minutes": None, "interval_type": None}
    for unit, size in SECONDS.items():
        if seconds is not None and seconds % size == 0:
            fields = {"interval_minutes": seconds // size, "interval_type": unit}
    return fields


def key_of_source(job: NewJob) -> str | None:
    """The key by which a source has one live crawl: a second one-off job for it is answered with
    the first. A schedule is no crawl yet, and a job with a name was meant as one of its own."""
    if job.spec.task != CRAWL or job.name is not None or job.spec.schedule.repeats:
        return None
    ids = (job.payload.get(name) for name in ("source_id", "subreddit_id"))
    source = next((id_ for id_ in ids if id_ is not None), None)
    return None if source is None else dedup_key(CRAWL, str(source))


DIALECTS.append(modern_fields)
JOB_EXTRAS.append(older_fields)
DEDUP_KEYS.append(key_of_source)


def verb_to(state: JobStatus, word: str) -> Verb | None:
    """The verb that leads from a state to the one that the word names; None where the job is there
    already. Raises `IllegalTransition`, which lists the words that can be set from here."""
    if state in states_of([word]):
        return None
    verbs: dict[str, Verb] = {}
    # Several verbs may lead there: the one for fewer states is meant, such as retry before run.
    for verb in sorted(VERBS.values(), key=lambda verb: -len(verb.sources)):
        if state in verb.sources:
            words = (name for name, states in WORDS.items() if state not in states)
            verbs |= {name: verb for name in words if verb.leads_to in WORDS[name]}
    if word not in verbs:
        raise IllegalTransition(WORD_OF[state], word, verbs)
    return verbs[word]


def states_of(words: Sequence[str]) -> list[str]:
    """The states that any of the words means, or `InvalidInput` that lists the known words."""
    one_of("status", words, tuple(WORDS))
    return list(dict.fromkeys(state.value for word in words for state in WORDS[word]))

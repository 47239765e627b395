"""Steps of runs, and the events that they wait for."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from evenbeat.domain.job import JobRecord
from evenbeat.domain.setting_kinds import check_name
from evenbeat.domain.states import LIVE
from evenbeat.domain.step import Step
from evenbeat.errors import Conflict, NotFound
from evenbeat.store.audit import AuditLog
from evenbeat.store.database import Connection
from evenbeat.store.part import StorePart
from evenbeat.store.rows import MAX_RESULT_BYTES, encode_json

MOST_SHOWN = 1000


class Steps(StorePart):
    """What runs did for good: kept with the job, occurrence by occurrence."""

    def of(
        self, job_id: UUID, plan_time: datetime | None = None, *, limit: int = 1_000_000
    ) -> list[Step]:
        """The steps of one occurrence, or of all, in the order in which they happened."""
        params = {"job_id": job_id, "plan_time": plan_time, "limit": limit}
        return self._all(Step._make, "steps_of", params)

    def in_run(self, job_id: UUID, plan_time: datetime, execution_id: UUID) -> list[Step]:
        """What one run did, or began to wait for."""
        params = {"job_id": job_id, "plan_time": plan_time, "execution_id": execution_id}
        return self._all(Step._make, "steps_in", params)

    def keep(self, step: Step, token: UUID | None) -> Step | None:
        """Keep a step of the run that holds this lease, and give it back as it stands now: the
        first that completes a step counts. None: the lease is lost."""
        result = None if step.result is None else encode_json("result", step.result)
        row = self._database.row("keep_step", step._asdict() | {"result": result, "token": token})
        return Step._make(row) if row else None

    def send_event(
        self,
        job_id: UUID,
        name: str,
        payload: Any = None,
        *,
        sent_by: str | None = None,
        once: bool = False,
        now: datetime | None = None,
    ) -> bool:
        """Give an event to the run that waits for it, or keep it for one that will; whether one
        waited. With `once`, whoever has sent one to this job before is refused."""
        check_name("name", name)
        text = encode_json("payload", payload, MAX_RESULT_BYTES)

        def send(connection: Connection) -> bool:
            job = self._database.row("job_to_tell", {"job_id": job_id}, connection)
            if job is None:
                raise NotFound("job", job_id)
            status, plan_time, _ = job
            if status not in LIVE:
                raise Conflict(
                    f"The job {job_id} is {status}, so it takes no event {name!r} any more."
                )
            if plan_time is None:
                raise Conflict(
                    f"The job {job_id} waits for other jobs and has no run planned yet, for which "
                    f"the event {name!r} could be. Send it when those have ended."
                )
            params = {
                "job_id": job_id,
                "plan_time": plan_time,
                "name": name,
                "payload": text,
                "sent_by": sent_by,
                "once": once,
                "channel": self._database.channel,
                "now": now,
            }
            sent = self._database.row("add_event", params, connection)
            if sent is None:
                raise Conflict("This was sent already.")
            if is_awaited := bool(sent[0]):
                self._database.rows("wake_job", params, connection)
            about = {"event": name, "payload": payload}
            log = AuditLog(self._database)
            log.add("job.event", ids=[job_id], after=about, connection=connection, now=now)
            return is_awaited

        return self._database.atomically(send)

    def open_waits(self, jobs: Iterable[JobRecord]) -> dict[UUID, Step]:
        """What each of these jobs sleeps or waits for now; only a job that was put off does."""
        ids = [job.id for job in jobs if job.release_count and job.status in LIVE]
        waits = self._all(Step._make, "open_waits", {"ids": ids}) if ids else []
        return {wait.job_id: wait for wait in reversed(waits)}

    def begun(self, ids: Sequence[UUID], connection: Connection | None = None) -> set[UUID]:
        """Those of these jobs of whose present occurrence something is done already."""
        rows = self._database.rows("begun_occurrences", {"ids": list(ids)}, connection)
        return {row[0] for row in rows}

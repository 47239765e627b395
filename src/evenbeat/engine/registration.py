"""A worker's entry in the registry: who it is, what it can run, and that it is alive."""

import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from uuid import UUID

import psutil  # type: ignore[import-untyped]

from evenbeat import __version__
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import settings_of
from evenbeat.domain.runner_load import HeldRun, RunnerLoad
from evenbeat.engine.clock import Clock
from evenbeat.engine.loop import Loop
from evenbeat.engine.runners import Runner
from evenbeat.errors import StoreError
from evenbeat.store.store import Store
from evenbeat.store.upkeep import ApplicationCode, KnownTask, NewWorker
from evenbeat.tasks.registry import Registry

logger = logging.getLogger(__name__)


def this_host() -> str:
    """A name that two workers share only if they can see each other's processes.

    The host's name alone is not enough: containers may be given the same one, and then a pid says
    nothing. The boot and the process namespace tell them apart.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")  # noqa: PTH115 - not a path
    except OSError:
        boot, namespace = f"{psutil.boot_time():.0f}", "0"
    return f"{socket.gethostname()}/{boot}/{namespace}"


def process_birth(pid: int) -> float:
    """When a process started: seconds that no change of the machine's clock can alter. Raises
    psutil.Error when there is no such process, or it cannot be looked at."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # no such process, or no such file system
        return float(psutil.Process(pid).create_time())
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a worker is, precisely enough that a neighbour can tell whether it still lives."""

    id: UUID = field(default_factory=uuid7)
    host: str = field(default_factory=this_host)
    pid: int = field(default_factory=os.getpid)
    process_started_at: float = field(default_factory=lambda: process_birth(os.getpid()))


class Registration:
    """Registers a worker, sends its heartbeats, and hears from them whether it should drain."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        runners: Sequence[Runner],
        *,
        concurrency: int,
        queues: Sequence[str] | None,
        application: ApplicationCode | None,
    ) -> None:
        self.identity = Identity()
        self.draining = False
        """Whether the worker takes no more jobs."""
        self.claiming_loops: list[Loop] = []
        """What a drain stops."""
        self.claim_age: Callable[[], float] = lambda: 0.0
        """Seconds since the worker looked for due jobs."""
        self._store = store
        self._registry = registry
        self._clock = clock
        self._runners = runners
        self._concurrency = concurrency
        self._queues = queues
        self._application = application
        self._held_since: dict[UUID, datetime] = {}
        self._known: object = None

    def register(self) -> None:
        """Make the worker and its tasks known."""
        worker = NewWorker(
            id=self.identity.id,
            host=self.identity.host,
            pid=self.identity.pid,
            process_started_at=self.identity.process_started_at,
            version=__version__,
            concurrency=min(self._concurrency, sum(runner.slots for runner in self._runners)),
            queues=self._queues,
            tasks=self._registry.named(),
            application=self._application,
            runners=self.loads(),
        )
        self._store.upkeep.register_worker(worker, now=self._clock.override())
        notes = [
            KnownTask(
                task.name,
                task.spec.queue,
                task.runs.value,
                task.signature.json_schema(),
                task.description,
                settings_of(task.spec),
            )
            for task in self._registry
        ]
        self._store.upkeep.know_tasks(notes, now=self._clock.override())

    def beat(self) -> None:
        """A heartbeat. Registers again if the worker was forgotten; drains if somebody asked so."""
        loads = self.loads()
        self._known = _gist(loads)
        status = self._store.upkeep.beat(
            self.identity.id,
            running=sum(load.running for load in loads),
            runners=loads,
            claim_age=self.claim_age(),
            draining=self.draining,
            now=self._clock.override(),
        )
        if status is None:
            self.register()
        elif status == "draining" and not self.draining:
            logger.info("Draining, as asked")
            self.drain()

    def loads(self) -> list[RunnerLoad]:
        """How full its runners are now."""
        held = {runner: runner.held() for runner in self._runners}
        tokens = {run.token for runs in held.values() for run in runs}
        now = self._clock.now()
        self._held_since = {token: self._held_since.get(token, now) for token in tokens}
        return [
            RunnerLoad(
                runner.kind.value,
                runner.slots,
                max(0, runner.running),
                [
                    HeldRun(run.token, run.job.id, run.task.name, str(run.stop_reason), since)
                    for run in runs
                    if (since := self._held_since.get(run.token)) is not None
                ],
            )
            for runner, runs in held.items()
        ]

    def has_news(self) -> bool:
        """Whether a runner has become full or free, or a held thread more or less, since the last
        heartbeat: then the next one should not wait."""
        return _gist(self.loads()) != self._known

    def drain(self) -> None:
        """Claim nothing more; what runs goes on."""
        self.draining = True
        for loop in self.claiming_loops:
            loop.stop()

    def deregister(self) -> None:
        """Leave the registry."""
        try:
            self._store.upkeep.forget_workers([self.identity.id])
        except StoreError as error:
            logger.warning("could not leave the registry: %s", error)


def _gist(loads: Sequence[RunnerLoad]) -> object:
    return [(load.is_full, {run.execution_id for run in load.held}) for load in loads]

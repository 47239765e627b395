"""A worker's entry in the registry: who it is, what it can run, and that it is alive."""

import logging
from collections.abc import Sequence

from evenbeat import __version__
from evenbeat.domain.job import settings_of
from evenbeat.engine.clock import Clock
from evenbeat.engine.identity import Identity
from evenbeat.engine.loop import Loop
from evenbeat.engine.runners.base import Runner
from evenbeat.errors import StoreError
from evenbeat.store.store import Store
from evenbeat.store.upkeep import NewWorker, TaskNote
from evenbeat.tasks.registry import Registry

logger = logging.getLogger(__name__)


class Registration:
    """Registers a worker, sends its heartbeats, and hears from them whether it should drain."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        runners: Sequence[Runner],
        queues: Sequence[str] | None,
    ) -> None:
        self.identity = Identity()
        self.draining = False
        """Whether the worker takes no more jobs."""
        self.claiming_loops: list[Loop] = []
        """What a drain stops."""
        self._store = store
        self._registry = registry
        self._clock = clock
        self._runners = runners
        self._queues = queues

    def register(self) -> None:
        """Make the worker and its tasks known."""
        worker = NewWorker(
            id=self.identity.id,
            host=self.identity.host,
            pid=self.identity.pid,
            process_started_at=self.identity.process_started_at,
            version=__version__,
            concurrency=sum(runner.slots for runner in self._runners),
            queues=self._queues,
            tasks=self._registry.named(),
        )
        self._store.upkeep.register_worker(worker, now=self._clock.override())
        notes = [
            TaskNote(
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
        status = self._store.upkeep.beat(
            self.identity.id,
            running=sum(runner.running for runner in self._runners),
            draining=self.draining,
            now=self._clock.override(),
        )
        if status is None:
            self.register()
        elif status == "draining" and not self.draining:
            logger.info("Draining, as asked")
            self.drain()

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

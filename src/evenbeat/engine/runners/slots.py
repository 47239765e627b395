"""A thread for each slot: what plain functions and child processes have in common."""

import queue
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence

from evenbeat.domain.execution import Outcome
from evenbeat.engine.run import Run
from evenbeat.engine.runners.base import EndedCallback, Runner


class SlotRunner(Runner):
    """Each of its threads takes one run after the other and minds it until its slot is free."""

    def __init__(
        self,
        slots: int,
        tasks: Sequence[str],
        ended: EndedCallback,
        freed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(slots, tasks, ended, freed)
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._serve, name=f"evenbeat-slot-{n}", daemon=True)
            for n in range(slots)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def take(self, runs: Sequence[Run]) -> None:
        self._taken += len(runs)
        self._waiting.extend(runs)
        for _ in runs:
            self._wake.put(True)

    def close(self) -> None:
        for _ in self._threads:
            self._wake.put(False)

    def _serve(self) -> None:
        while self._wake.get():
            try:
                run = self._waiting.popleft()
            except IndexError:  # given back meanwhile
                continue
            self._mind(run)
            # Only now is the slot free: a run that was stopped may have ended long before.
            with self._lock:
                self._over += 1
            self._freed()

    @abstractmethod
    def _mind(self, run: Run) -> None:
        """Perform a run and see to it that it is ended; returns when the slot is free."""

    def _end_once(self, run: Run, outcome: Outcome | None) -> None:
        """Whoever comes first ends the run: its own end, or whoever stopped it."""
        with self._lock:
            if run.ended:
                return
            run.ended = True
        run.interrupt = None
        self._ended(run, outcome)

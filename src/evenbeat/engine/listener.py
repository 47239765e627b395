"""Hints from other processes: jobs due, runs cancelled. Every hint may be lost without harm."""

from evenbeat.engine.claimer import Claimer
from evenbeat.engine.loop import Loop
from evenbeat.engine.run import ActiveRuns, StopReason
from evenbeat.store.listener import Listener
from evenbeat.store.store import Store

WAIT_SECONDS = 1.0


class HintListener(Loop):
    """Listens on a connection of its own and opens a new one when it breaks; then it wakes the
    claimer, because hints sent in the meantime are lost. The claimer may use the connection that
    brought a hint: it is awake, and free until the next wait."""

    name = "hints"

    def __init__(self, store: Store, claimer: Claimer, runs: ActiveRuns) -> None:
        super().__init__()
        self._store = store
        self._claimer = claimer
        self._runs = runs
        self._listener: Listener | None = None

    def trouble(self) -> str:
        return "cannot listen for hints, polling meanwhile"

    def run_once(self) -> float:
        """Wait for hints once, and act on them."""
        try:
            if self._listener is None:
                self._listener = self._store.listen()
                self._claimer.claim_on_hint(None)
            for signal in self._listener.wait(WAIT_SECONDS):
                if signal.kind == "due":
                    self._claimer.claim_on_hint(self._listener.connection)
                elif signal.kind == "cancel":
                    for run in self._runs.of_job(signal.subject):
                        run.stop(StopReason.CANCELLED)
        except Exception:
            self._close()
            raise
        return 0.0

    def run(self) -> None:
        super().run()
        self._close()

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

"""Plain functions, in the threads of the slots."""

import threading
import time

from evenbeat.domain.execution import Outcome
from evenbeat.engine.executor import arguments, completed, failed, stopped
from evenbeat.engine.run import Run, StopReason
from evenbeat.engine.runners.slots import SlotRunner


class ThreadRunner(SlotRunner):
    """A thread cannot be ended from outside. A run that is cancelled or times out is over for the
    job at once; its thread goes on until the function looks at `ctx.cancelled` and returns, and
    what it returns is thrown away."""

    place = "thread"

    def _mind(self, run: Run) -> None:
        timer = None
        try:
            timer = self._begin(run)
            outcome = stopped(run) if run.stop_reason else self._call(run)
        except BaseException as error:
            outcome = failed(run, error)
        if timer is not None:
            timer.cancel()
        self._end_once(run, outcome)

    def _begin(self, run: Run) -> threading.Timer | None:
        run.begin()
        run.interrupt = lambda: self._end_once(run, stopped(run))
        if run.job.timeout_seconds is None:
            return None
        timer = threading.Timer(run.job.timeout_seconds, run.stop, (StopReason.TIMEOUT,))
        timer.daemon = True
        timer.start()
        return timer

    def _call(self, run: Run) -> Outcome | None:
        begun = time.thread_time_ns()
        try:
            value = run.task.handler(**arguments(run))
        finally:
            run.cpu_ns += time.thread_time_ns() - begun
        return completed(run, value)

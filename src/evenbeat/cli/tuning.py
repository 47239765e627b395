"""Settings of the interpreter for a process that runs nothing but a worker."""

import gc
import sys

SWITCH_SECONDS = 0.0005


def tune_process() -> None:
    """Collect garbage less often, ignore what the imports created, and let threads take turns
    sooner. Call it when everything is loaded.

    Each run allocates some twenty small objects, and with Python's defaults the collector takes a
    fifth of a busy worker's time to find that they are gone already. A handler that writes to a
    file or a socket gives up the interpreter, and gets it back after another thread's turn: 5 ms by
    default, a hundred times what the handler took. A worker inside another program's process
    leaves that process as it is.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    sys.setswitchinterval(SWITCH_SECONDS)

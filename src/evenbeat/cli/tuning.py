"""What a process that is ours alone may set for itself."""

import gc
import sys

SWITCH_SECONDS = 0.0005


def settle_process() -> None:
    """Collect garbage less often, never again look through what the imports have left, and let
    threads take turns sooner. Call it when everything is loaded.

    A run leaves some twenty small objects, and the collector, as Python sets it, takes a fifth of
    a busy worker's time to find that they are gone already. A handler that writes to a file or a
    socket gives up the interpreter, and gets it back when whoever took it has had its turn: 5 ms
    as Python sets it, a hundred times what the handler took. A worker inside somebody else's
    process leaves that process as it is.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    sys.setswitchinterval(SWITCH_SECONDS)

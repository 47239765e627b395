"""What the feed reader does, whoever calls it; a port leaves it alone."""

from threading import Condition

_read: list[str] = []
_changed = Condition()


def read(what: str) -> None:
    with _changed:
        _read.append(what)
        _changed.notify_all()


def wait_until_read(what: str) -> None:
    """Not only once: again, if it was read before."""
    with _changed:
        _read.clear()
        if not _changed.wait_for(lambda: what in _read, timeout=60):
            raise TimeoutError(f"{what} is not read.")
    print(f"read {what}")

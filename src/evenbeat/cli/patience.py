"""For commands that look again and again: a service or database that is away comes back."""

from types import TracebackType

from evenbeat.cli.client import ApiError
from evenbeat.cli.output import say

_AWAY = 3


class Patience:
    """Lets a look fail when nobody answered. Says so once, and again when it is over."""

    def __init__(self) -> None:
        self.is_waiting = False

    def __enter__(self) -> None:
        """Look."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        is_away = isinstance(error, ApiError) and error.exit_code == _AWAY
        if is_away and not self.is_waiting:
            say(f"{error} Trying again; Ctrl-C ends it.")
        elif error is None and self.is_waiting:
            say("It answers again.")
        self.is_waiting = is_away
        return is_away

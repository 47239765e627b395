"""Who asks when a command uses the database itself: this machine's user, as admin."""

import getpass

from evenbeat.api.auth.tokens import Access, Principal, Role


class LocalAccess(Access):
    """Whoever can open the database could change anything in it anyway. The answer never leaves
    this process, so there is nothing to check; but what is done is noted under the user's name."""

    can_issue = False
    is_quick = True

    def __init__(self) -> None:
        """Needs neither tables nor keys."""

    def authenticate(self, token: str) -> Principal:  # noqa: ARG002 - none is needed
        return Principal(user_name(), Role.ADMIN)


def user_name() -> str:
    """Who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "command line"  # a user without a name, as in some containers

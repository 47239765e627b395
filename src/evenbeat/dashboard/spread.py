"""The distribution as pages show it in passing: a few seconds old, and hardly ever waited for.

Reading it anew walks over every recurring job, which takes seconds where there are a million. So it
is made aside: a visitor gets the last one, and the first visitor a page that looks again soon.
"""

import logging
import threading
import time
from weakref import WeakKeyDictionary

from evenbeat.api.dependencies import Service
from evenbeat.app import Evenbeat
from evenbeat.errors import EvenbeatError
from evenbeat.placement.distribution import Distribution

logger = logging.getLogger(__name__)

FRESH_SECONDS = 10.0
PATIENCE_SECONDS = 0.1


class _Kept:
    """One application's distribution, and the one thread at a time that makes the next."""

    def __init__(self) -> None:
        self._told: Distribution | None = None
        self._made_at = 0.0
        self._opening = threading.Lock()
        self._making: threading.Thread | None = None

    def get(self, app: Evenbeat) -> Distribution | None:
        if self._told is None or time.monotonic() - self._made_at > FRESH_SECONDS:
            making = self._make_aside(app)
            if self._told is None:
                making.join(PATIENCE_SECONDS)
        return self._told

    def wait(self, app: Evenbeat) -> Distribution:
        """The last one; the first one is waited for, and its trouble is the caller's."""
        return self.get(app) or self.renew(app)

    def renew(self, app: Evenbeat) -> Distribution:
        """Make it here and now."""
        told = app.balancer.distribution()
        self._told, self._made_at = told, time.monotonic()
        return told

    def _make_aside(self, app: Evenbeat) -> threading.Thread:
        with self._opening:
            if self._making is None or not self._making.is_alive():
                self._making = threading.Thread(
                    target=self._make, args=(app,), name="evenbeat-distribution", daemon=True
                )
                self._making.start()
            return self._making

    def _make(self, app: Evenbeat) -> None:
        try:
            self.renew(app)
        except EvenbeatError as error:
            logger.warning("The distribution could not be read anew", extra={"error": str(error)})


_kept: WeakKeyDictionary[Evenbeat, _Kept] = WeakKeyDictionary()
_opening = threading.Lock()


def recent_distribution(service: Service) -> Distribution | None:
    """How even the schedule is, or was some seconds ago; None while it is made the first time."""
    return _of(service).get(service.app)


def present_distribution(service: Service) -> Distribution:
    """The same for pages about nothing else: the first one is waited for."""
    return _of(service).wait(service.app)


def renew_distribution(service: Service) -> None:
    """After a change that visitors should see at once."""
    _of(service).renew(service.app)


def _of(service: Service) -> _Kept:
    with _opening:
        return _kept.setdefault(service.app, _Kept())

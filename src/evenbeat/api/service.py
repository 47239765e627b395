"""What every endpoint stands on: the application and who may use it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request

from evenbeat.api.access import Access
from evenbeat.app import Evenbeat
from evenbeat.engine.worker import Worker


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of one serving process. The worker is None where none runs beside the API."""

    app: Evenbeat
    access: Access
    worker: Worker | None = None

    @property
    def now(self) -> datetime | None:
        """The application's own time when it has one (tests travel), else None: the database's."""
        return None if self.app.clock is None else self.app.clock.override()


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(_service)]

"""What older clients speak, over the ordinary API: `/api/admin`, and older words in jobs; and in
`scheduler.py` what older workers register.

Nothing else imports this package; `asgi.py` adds it to the service.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI


def install(api: "FastAPI") -> None:
    """Add the routes to a service made by `evenbeat.api.app.create`."""
    # Here, so that a worker with `scheduler.py` does not load the API.
    from evenbeat.compat import jobs, scheduled_jobs  # noqa: PLC0415

    api.include_router(jobs.router)
    api.include_router(scheduled_jobs.router)

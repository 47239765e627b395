"""What older clients speak, over the ordinary API: `/api/admin`, and older words in jobs.

Nothing else imports this package; `asgi.py` adds it to the service.
"""

from fastapi import FastAPI

from evenbeat.api.requests import DIALECTS
from evenbeat.api.responses import JOB_EXTRAS
from evenbeat.compat import jobs, scheduled_jobs
from evenbeat.compat.words import modern_fields, older_fields

DIALECTS.append(modern_fields)
JOB_EXTRAS.append(older_fields)


def install(api: FastAPI) -> None:
    """Add the routes to a service made by `evenbeat.api.app.create`."""
    api.include_router(jobs.router)
    api.include_router(scheduled_jobs.router)

"""`/api/admin`: the compatibility API that the seeds' clients speak, over the ordinary one.

Nothing else imports this package; `asgi.py` adds it to the service.
"""

from fastapi import FastAPI

from evenbeat.compat import jobs, scheduled_jobs


def install(api: FastAPI) -> None:
    """Add the routes to a service made by `evenbeat.api.app.create`."""
    api.include_router(jobs.router)
    api.include_router(scheduled_jobs.router)

"""The dashboard: pages over the service's own objects, rendered on the server.

`install(api)` adds them to the service. They work under any prefix, need no build, and run no
script but `static/evenbeat.js`, which only fetches pages and swaps parts of them; without it every
link and form still works. `CONTRIBUTING.md` says how to add a screen.
"""

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from evenbeat.api.problems import problem_for
from evenbeat.dashboard import (
    audit,
    batches,
    distribution,
    event_link,
    job,
    job_form,
    jobs,
    overview,
    pages,
    reference,
    rendering,
    runs,
    settings,
    sign_in,
    timeline,
    webhooks,
    workers,
)
from evenbeat.plugins import provided

_SCREENS = (
    sign_in,
    event_link,
    overview,
    jobs,
    job_form,  # before `job`, whose /jobs/{job_id} would take /jobs/new for an id
    job,
    batches,
    runs,
    distribution,
    timeline,
    workers,
    webhooks,
    settings,
    audit,
    reference,
    rendering,
)


def install(api: FastAPI) -> None:
    """Add the pages to a service made by `evenbeat.api.app.create`."""
    before = len(api.router.routes)
    for router in (*(screen.router for screen in _SCREENS), *provided("screen")):
        api.include_router(router)
    # To the front, so that no path of the API shadows a page.
    routes = api.router.routes
    routes[:] = routes[before:] + routes[:before]

    async def unknown_path(request: Request, error: Exception) -> Response:
        """A browser gets a page, everything else the problem document."""
        wants_page = "text/html" in request.headers.get("accept", "")
        path = request.url.path.removeprefix(pages.PageRequest(request).root)
        if wants_page and not path.startswith("/api/"):
            return await pages.error_page(request, error)
        return problem_for(request, error)

    api.add_exception_handler(HTTPException, unknown_path)

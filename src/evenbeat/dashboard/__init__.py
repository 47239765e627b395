"""The dashboard: pages over the service's own objects, rendered on the server.

`install(api)` adds them to the service. They work under any prefix, need no build, and run no
script but `static/evenbeat.js`, which only fetches pages and swaps parts of them; without it every
link and form still works.

How to add a screen
-------------------
1. A view module with `router = pages.router()` and plain `def` endpoints that name their guard:

       @router.get("/timeline", name="timeline")
       def timeline(page: PageDep, _: Viewer) -> Response:
           return page.render("timeline.html", rows=page.store.…)

   The route's name is its key in `pages.NAV`; an entry shows as soon as the route exists.
   Add the module to `_SCREENS` below.
2. A template that extends `base.html`: set `{% set here = "timeline" %}`, `{% block title %}`,
   `{% block head %}` (the heading row; buttons go in `<div class="actions">`) and
   `{% block content %}`. Cards are `<section class="card">`, tables
   `<div class="scroll"><table class="table">`, figures the macro `figure` of `macros.html`.
   Addresses come from `url("route", id=…, query={…})`, moments from `x|when`, `x|relative`,
   `x|day`, `x|exact`, durations from `ms|duration`, `s|seconds`, charts from `charts.…()|svg`.
3. Changes are `<form method="post" action="{{ url('…') }}" data-enhance>`; their endpoint takes
   `Operator` (or `Admin`) and `form: FormDep`, and returns `page.back(to, Notice("…"))`. Errors may
   just be raised. `Notice(text, "done", "Undo", path)` offers a follow-up button.
   Show controls only `{% if can_operate %}`.
4. Live: an element with an `id` and `data-live` is fetched again from the page's own address when
   an event arrives, and swapped; open `<details id>`, ticked boxes and the focus survive. It is
   left alone while a dialog is open over it. `data-live-for="UUID"` on it narrows to one job's
   events; `data-pending` in it means that it should be refreshed very soon.
5. Dialogs: a link or form with `data-dialog` shows the element with `data-dialog-content` of the
   page that it leads to in a modal dialog. Without script it is just that page. A form inside of it
   is sent the same way; a button or link with `data-close` closes it. A POST whose response has
   such an element opens it too (confirmations). With a child of class `dialog-wide` it is wide.
6. Filters: `<form method="get" action="…" data-filter="#results">` fetches while the user types and
   swaps that element (or several: "#a,#b").
7. A form with `data-preview="URL"` and an element `data-preview-target` inside of it posts its
   fields to the URL while the user types, and swaps in the response (a fragment).
8. A button with `data-copy="#id"` copies that element's text. A switch between views of a screen is
   the macro `segments`.
9. Neither inline script nor inline style: the content security policy forbids both. Attributes of
   SVG (`fill="…"`) are fine; icons are `m.icon("name")`, drawn in `templates/icons.html`.

`tests/dashboard/conftest.py` has the browser, `tests/dashboard/screenshots.py` the pictures.
"""

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from evenbeat.api.problems import problem_for
from evenbeat.dashboard import (
    distribution,
    job,
    job_form,
    jobs,
    overview,
    pages,
    reference,
    rendering,
    settings,
    sign_in,
    timeline,
    webhooks,
    workers,
)
from evenbeat.plugins import provided

_SCREENS = (
    sign_in,
    overview,
    jobs,
    job_form,  # before `job`, whose /jobs/{job_id} would take /jobs/new for an id
    job,
    distribution,
    timeline,
    workers,
    webhooks,
    settings,
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
            return pages.error_page(request, error)
        return problem_for(request, error)

    api.add_exception_handler(HTTPException, unknown_path)

"""The page behind a link that sends an event: it asks a person, who needs no account."""

from typing import Any

from fastapi import Response

from evenbeat.api.dependencies import check_origin
from evenbeat.api.event_links import read_link
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import FormDep, PageDep, PageRequest
from evenbeat.errors import Conflict, NotAuthenticated, NotFound

router = pages.router()


@router.get("/event", name="event_link")
def ask(page: PageDep, link: str = "") -> Response:
    """Opening a link does nothing yet: programs that look at mails open them, too."""
    page.request.scope["query_string"] = b""  # servers log the address when the response starts
    return _answer(page, link)


@router.post("/event", name="send_event_link")
def send(page: PageDep, form: FormDep) -> Response:
    check_origin(page.request, browsers_only=True)
    return _answer(page, form.text("link"), send=True)


def _answer(page: PageRequest, link: str, *, send: bool = False) -> Response:
    event = job = None
    problem, status = "", 200
    try:
        event = read_link(page.service.app.settings, link)
        job = page.store.read.job(event.job_id)
        if send:
            by, now = f"link {event.id}", page.service.now
            page.store.steps.send_event(
                job.id, event.name, event.payload, sent_by=by, once=True, now=now
            )
    except Conflict as error:
        problem, status = str(error), 409
    except (NotAuthenticated, NotFound):
        problem, status = "This link is not good, or not any more.", 404
    values: dict[str, Any] = {"event": event, "job": job, "link": link, "problem": problem}
    return _private(page.render("event_link.html", status=status, is_sent=send, **values))


def _private(response: Response) -> Response:
    response.headers["Referrer-Policy"] = "no-referrer"
    return response

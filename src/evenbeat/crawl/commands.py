"""`evenbeat documents`: crawled pages, searched."""

import html
from typing import Annotated

from rich.text import Text

from evenbeat.cli.client import path_segment
from evenbeat.cli.output import relative, say
from evenbeat.cli.session import (
    ApiSession,
    CommandGroup,
    LimitOption,
    OffsetOption,
    argument,
    option,
)
from evenbeat.humanize import count

documents_cli = CommandGroup(
    "Crawled pages: search them, show one, and the sources they come from."
)

DocumentArgument = Annotated[str, argument("ID", "As the search with --json shows.")]


@documents_cli.api_command()
def search(
    session: ApiSession,
    words: Annotated[
        list[str] | None,
        argument(
            "WORDS", "What to look for; an argument with spaces is a phrase. Without: the newest."
        ),
    ] = None,
    source: Annotated[str | None, option("ID", "Only of this source; see `sources`.")] = None,
    limit: Annotated[int, option("N", "Show at most N.", min=1, max=100)] = 10,
    offset: OffsetOption = 0,
) -> None:
    """Search crawled pages, the best first.

    `evenbeat documents search moon landing` finds pages with both words, `"moon landing"` pages
    with the words side by side.
    """
    phrases = [
        f'"{word}"' if len(word.split()) > 1 and '"' not in word else word for word in words or []
    ]
    page = session.client.get(
        "/api/v1/documents",
        q=" ".join(phrases) or None,
        source_id=source,
        limit=limit,
        offset=offset,
    )
    hits = []
    for document in page["documents"]:
        changed = relative(document["changed_at"], session.client.now())
        hit = Text(document["title"] or document["url"], style="bold")
        hit.append(f"\n  {document['url']}", style="not bold cyan")
        hit.append(f"  changed {changed}\n  ", style="not bold dim")
        for part, matches in parts(document["snippet"]):
            hit.append(part.replace("\n", " "), style="bold yellow" if matches else "not bold")
        hits.append(hit)
    session.show(page, *hits)
    if not session.as_json:
        say(f"{count(page['total'], 'page')} found.")


@documents_cli.api_command()
def show(session: ApiSession, document: DocumentArgument) -> None:
    """Show the text of a crawled page."""
    page = session.client.get(f"/api/v1/documents/{path_segment(document)}")
    session.show(page, Text(f"{page['title']}\n{page['url']}\n"), Text(page["text"]))


@documents_cli.api_command()
def delete(session: ApiSession, document: DocumentArgument) -> None:
    """Remove a crawled page; a later crawl that finds it adds it again."""
    session.client.delete(f"/api/v1/documents/{path_segment(document)}")
    say("Removed.")


@documents_cli.api_command()
def sources(session: ApiSession, limit: LimitOption = 100, offset: OffsetOption = 0) -> None:
    """List what is crawled, longest ago first."""
    page = session.client.get("/api/v1/sources", limit=limit, offset=offset)
    session.show_list(
        page,
        "sources",
        {
            "source…": "id",
            "url…": "url",
            "crawled": lambda one: relative(one["crawled_at"], session.client.now()) or "never",
            "pages": "items_crawled",
            "changed": "items_indexed",
        },
        "Nothing was crawled yet. Add a crawl: evenbeat job add crawl url=https://example.com",
    )


def parts(snippet: str) -> list[tuple[str, bool]]:
    """The pieces of a snippet as plain text, and whether each is a matching word."""
    pieces: list[tuple[str, bool]] = []
    for piece in snippet.split("<mark>"):
        marked, ended, rest = piece.partition("</mark>")
        pieces += [(marked, bool(ended)), (rest, False)]
    return [(html.unescape(text), matches) for text, matches in pieces if text]

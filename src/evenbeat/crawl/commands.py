"""`evenbeat documents`: crawled pages, searched."""

import html
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from evenbeat.cli.client import Client, Document, path_segment
from evenbeat.cli.output import relative, say, table
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.humanize import count

documents_cli = typer.Typer(
    help="Crawled pages: search them, show one, and the sources they come from.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@documents_cli.command()
@api_command
def search(
    session: ApiSession,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORDS",
            help="What to look for; an argument with spaces is a phrase. Without: the newest.",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="ID", help="Only of this source; see `sources`.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100)] = 10,
    offset: Annotated[int, typer.Option(metavar="N", min=0, help="Leave out the first N.")] = 0,
) -> None:
    """Search crawled pages, the best first.

    `evenbeat documents search moon landing` finds pages with both words, `"moon landing"` pages
    with the words side by side.
    """
    found = session.client.get(
        "/api/v1/documents",
        q=" ".join(map(_phrase, words or [])) or None,
        source_id=source,
        limit=limit,
        offset=offset,
    )
    session.show(found, *(_hit(one, session.client) for one in found["documents"]))
    if not session.as_json:
        say(f"{count(found['total'], 'page')} found.")


@documents_cli.command()
@api_command
def show(
    session: ApiSession,
    document: Annotated[str, typer.Argument(metavar="ID", help="As the search with --json shows.")],
) -> None:
    """Show the text of a crawled page."""
    found = session.client.get(f"/api/v1/documents/{path_segment(document)}")
    session.show(found, Text(f"{found['title']}\n{found['url']}\n"), Text(found["text"]))


@documents_cli.command()
@api_command
def delete(
    session: ApiSession,
    document: Annotated[str, typer.Argument(metavar="ID", help="As the search with --json shows.")],
) -> None:
    """Remove a crawled page; a crawl that comes by it again adds it again."""
    session.client.delete(f"/api/v1/documents/{path_segment(document)}")
    say("Removed.")


@documents_cli.command()
@api_command
def sources(
    session: ApiSession,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000)] = 100,
    offset: Annotated[int, typer.Option(metavar="N", min=0, help="Leave out the first N.")] = 0,
) -> None:
    """List what is crawled, longest ago first."""
    found = session.client.get("/api/v1/sources", limit=limit, offset=offset)
    if found["sources"] or session.as_json:
        session.show(found, lambda: _source_table(found["sources"], session.client))
    else:
        say("Nothing was crawled yet. Add a crawl: evenbeat job add crawl url=https://example.com")


def _phrase(argument: str) -> str:
    spaced = len(argument.split()) > 1 and '"' not in argument
    return f'"{argument}"' if spaced else argument


def _hit(found: Document, client: Client) -> RenderableType:
    hit = Text(found["title"] or found["url"], style="bold")
    hit.append(f"\n  {found['url']}", style="not bold cyan")
    hit.append(f"  changed {relative(found['changed_at'], client.now())}\n  ", style="not bold dim")
    for part, is_found in parts(found["snippet"]):
        hit.append(part.replace("\n", " "), style="bold yellow" if is_found else "not bold")
    return hit


def parts(snippet: str) -> list[tuple[str, bool]]:
    """The pieces of a snippet as plain text, and whether each is what was found."""
    pieces: list[tuple[str, bool]] = []
    for piece in snippet.split("<mark>"):
        marked, ended, rest = piece.partition("</mark>")
        pieces += [(marked, bool(ended)), (rest, False)]
    return [(html.unescape(text), is_found) for text, is_found in pieces if text]


def _source_table(sources: list[Document], client: Client) -> RenderableType:
    made = table("source…", "url…", "crawled", "pages", "changed", right=("pages", "changed"))
    for one in sources:
        crawled = relative(one["crawled_at"], client.now()) if one["crawled_at"] else "never"
        made.add_row(
            Text(one["id"]), Text(one["url"]), crawled,
            f"{one['items_crawled']:,}", f"{one['items_indexed']:,}",
        )  # fmt: skip
    return made

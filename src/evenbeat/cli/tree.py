"""`evenbeat job tree`: a job with what it waits for, what waits for it, and its batch."""

from typing import Any

from rich.text import Text
from rich.tree import Tree

from evenbeat.cli.batch import far
from evenbeat.cli.client import ApiError, Client, Document
from evenbeat.cli.output import safe, status
from evenbeat.cli.session import ApiSession, JobArgument, api_command, find
from evenbeat.cli.views import label

_MOST = 20
"""How many jobs side by side are shown."""
_DEEPEST = 10


@api_command
def tree(session: ApiSession, job: JobArgument) -> None:
    """Show what a job waits for, what runs after it, and its batch, as a tree."""
    client = session.client
    first = find(client, "job", job)
    first = client.get(f"/api/v1/jobs/{first['id']}")
    root = Tree(_job(first))
    document: Document = {"job": first}
    if first["batch_id"] is not None:
        batch = document["batch"] = client.get(f"/api/v1/batches/{first['batch_id']}")
        root.add(_batch(batch))
    for title, key in (("waits for", "after"), ("then runs", "dependents")):
        if first.get(key):
            branch = root.add(Text(title, "dim"))
            document[key] = _Branches(client, key).grow(branch, first)
    session.show(document, root)


class _Branches:
    """The jobs of one direction, each followed once."""

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._key = key
        self._seen: set[str] = set()

    def grow(self, parent: Tree, job: Document, depth: int = 1) -> list[Document]:
        """Add the jobs next to a job, and those next to them."""
        self._seen.add(job["id"])
        ties, grown = job.get(self._key) or [], list[Document]()
        for tie in ties[:_MOST]:
            is_batch = bool(tie.get("batch"))
            try:
                one = self._client.get(f"/api/v1/{'batches' if is_batch else 'jobs'}/{tie['job']}")
            except ApiError as error:
                if error.status != 404:
                    raise
                parent.add(Text(f"{tie['job']} (deleted)"))
                continue
            line = _batch(one) if is_batch else _job(one)
            if tie["on"] != "success":
                line.append(f"  on {tie['on']}", "dim")
            branch, node = parent.add(line), dict[str, Any](job=one)
            if not is_batch and one["id"] not in self._seen and depth < _DEEPEST:
                node[self._key] = self.grow(branch, one, depth + 1)
            grown.append(node)
        if len(ties) > _MOST:
            parent.add(Text(f"and {len(ties) - _MOST:,} more", "dim"))
        return grown


def _job(job: Document) -> Text:
    return Text.assemble(safe(label(job)), "  ", status(job["status"]), (f"  {job['id']}", "dim"))


def _batch(batch: Document) -> Text:
    name = safe(batch["name"] or batch["id"])
    return Text.assemble(f"batch {name}  ", status(batch["status"]), (f"  {far(batch)}", "dim"))

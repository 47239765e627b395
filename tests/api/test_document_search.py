"""Crawled pages over HTTP and on the command line."""

import json
import re
from typing import NamedTuple
from uuid import UUID, uuid4

import pytest
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.cli import main
from evenbeat.crawl.commands import parts
from evenbeat.crawl.documents import Documents, Lease, marked
from evenbeat.domain.job import JobSpec, NewJob


class Page(NamedTuple):
    key: str
    title: str
    text: str
    depth: int = 1

    @property
    def url(self) -> str:
        return f"https://{self.key}"


HOSTILE = '<script>alert("fox")</script> & <img src=x onerror=steal()> a fox <b>in</b> a box'


@pytest.fixture
def pages(app: Evenbeat) -> Lease:
    """Three crawled pages of one source."""
    store = app.store
    store.add(NewJob(JobSpec("crawl"), {"url": "https://a.b"}))
    (job,) = store.claim(UUID(int=1), 1)
    assert job.lock_token is not None
    lease = Lease(job.id, job.lock_token)
    Documents(store.database).begin(lease, "news", "https://a.b", "News")
    Documents(store.database).save(
        lease,
        "news",
        [
            Page("a.b/1", "One", "The moon landing was long ago."),
            Page("a.b/2", "Two", "Landing a plane by the light of the moon."),
            Page("a.b/3", "<i>Three</i>", HOSTILE),
        ],
    )
    return lease


def found(client: TestClient, **query: object) -> dict:
    answer = client.get("/api/v1/documents", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_search(client_for, pages):
    viewer = client_for("viewer")
    both = found(viewer, q="moon landing")
    assert both["total"] == 2
    assert [document["title"] for document in both["documents"]] == ["One", "Two"]
    assert both["documents"][0]["rank"] > both["documents"][1]["rank"]
    exact = found(viewer, q='"moon landing"', source_id="news")
    (one,) = exact["documents"]
    assert "<mark>moon</mark> <mark>landing</mark> was long" in one["snippet"]
    assert (one["source_id"], one["url"], one["depth"]) == ("news", "https://a.b/1", 1)
    assert found(viewer, q="moon", limit=1, offset=1)["total"] == 2
    assert found(viewer, q="moon", source_id="other") == {
        "documents": [], "total": 0, "limit": 20, "offset": 0,
    }  # fmt: skip


def test_without_words_the_newest(client_for, pages):
    everything = found(client_for("viewer"))
    assert everything["total"] == 3
    assert {document["rank"] for document in everything["documents"]} == {None}
    assert found(client_for("viewer"), q="  ") == everything


def test_snippets_are_safe(client_for, pages):
    for query in ({"q": "fox"}, {"q": "box"}, {}):
        documents = found(client_for("viewer"), **query)["documents"]
        (snippet,) = [d["snippet"] for d in documents if d["url"].endswith("/3")]
        left = snippet.replace("<mark>", "").replace("</mark>", "")
        assert "<" not in left
        assert '"' not in left


def test_marks_are_set_after_escaping():
    assert marked("<a> & \ue000b\ue001") == "&lt;a&gt; &amp; <mark>b</mark>"
    assert parts("&lt;a&gt; <mark>b &amp; c</mark> d") == [
        ("<a> ", False), ("b & c", True), (" d", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "query", ["q=" + "x" * 501, "limit=0", "limit=x", "offset=-1", "page=2", "q=%00"]
)
def test_wrong_queries(client: TestClient, query: str):
    assert client.get(f"/api/v1/documents?{query}").status_code == 422


def test_one_document(client_for, pages):
    viewer, admin = client_for("viewer"), client_for("admin")
    id_ = found(viewer, q="plane")["documents"][0]["id"]
    document = viewer.get(f"/api/v1/documents/{id_}").json()
    assert document["text"] == "Landing a plane by the light of the moon."
    assert client_for("operator").delete(f"/api/v1/documents/{id_}").status_code == 403
    assert admin.delete(f"/api/v1/documents/{id_}").status_code == 204
    assert admin.delete(f"/api/v1/documents/{id_}").status_code == 404
    assert viewer.get(f"/api/v1/documents/{id_}").status_code == 404
    assert viewer.get(f"/api/v1/documents/{uuid4()}").status_code == 404


def test_sources(client_for, pages):
    answer = client_for("viewer").get("/api/v1/sources").json()
    (source,) = answer["sources"]
    assert (source["id"], source["name"], source["crawled_at"]) == ("news", "News", None)
    assert source["job_id"] == str(pages.job_id)
    assert answer["total"] == 1


def test_the_command_line(app: Evenbeat, pages, monkeypatch, capsys, tmp_path):
    url = app.settings.database_url
    assert url is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", url.get_secret_value())
    monkeypatch.setenv("EVENBEAT_DATA_DIR", str(tmp_path))

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["documents", *arguments])
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        return re.sub(r"changed (now|.*? ago)", "changed", out + err)  # it takes a while

    said = run("search", '"moon landing"')
    assert "moon landing was long" in said
    assert "https://a.b/1" in said
    assert said.endswith("1 page found.\n")
    assert run("search", "moon landing") == said
    assert run("search", "moon", "landing").endswith("2 pages found.\n")
    assert run("search", "--", "moon", "-plane").endswith("1 page found.\n")
    document = json.loads(run("search", "plane", "--json"))["documents"][0]
    assert "light of the moon" in run("show", document["id"])
    assert "Removed." in run("delete", document["id"])
    assert "0 pages found." in run("search", "plane", "--source", "news")
    assert "<i>Three</i>" in run("search")
    assert "never" in run("sources")

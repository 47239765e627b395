"""`evenbeat distribution`, `rebalance` and `simulate --live`, on a real database."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import pytest

from evenbeat.cli import main
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.store.store import Store

HOUR = timedelta(hours=1)


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


Evenbeat = Callable[..., Said]


@pytest.fixture
def evenbeat(database_url, tmp_path, monkeypatch, capsys) -> Evenbeat:
    """Runs a command in this process, on the test's database and in its directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", database_url)
    monkeypatch.setenv("EVENBEAT_DATA_DIR", str(tmp_path / "data"))

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return Said(int(ended.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def bunch(store: Store) -> list[UUID]:
    """Ten jobs of six hours that all run at the same moment, and a cron job."""
    now = datetime.now(UTC).replace(microsecond=0)
    every = Interval(6 * HOUR, anchor=now - 2 * HOUR)
    ids = [store.add(NewJob(JobSpec("sync", schedule=every), name=f"sync {n}")) for n in range(10)]
    apart = Cron(f"{(now.minute + 20) % 60} 9 * * *")
    store.add(NewJob(JobSpec("report", schedule=apart), name="report"))
    with store.database.connect() as connection:
        connection.execute("UPDATE evenbeat.jobs SET placed_at = NULL")
    return [job.id for job in ids]


def planned(store: Store, ids: list[UUID]) -> list[datetime | None]:
    return [store.read.job(job_id).next_run_at for job_id in ids]


def test_distribution_shows_the_peak_and_what_to_do(evenbeat, bunch):
    said = evenbeat("distribution")
    assert said.code == 0
    assert said.out.startswith("Starts per hour, the coming 24 hours (UTC)\n  00 ")
    assert said.out.count("<- peak") == 1
    assert "11 jobs: needs 10 workers at once, 1 would suffice (score 0.10)" in said.out
    assert "Preview a rebalance to see what moving jobs gains" in said.out
    told = evenbeat("distribution", "--json").json
    assert (told["total_jobs"], told["workers_needed"]) == (11, 10)
    assert len(told["week_load"]) == 672


def test_preview_changes_nothing(evenbeat, store, bunch):
    before = planned(store, bunch)
    said = evenbeat("rebalance", "--max-moves", "3")
    assert "3 jobs would move" in said.out
    assert ", where 10 run at once" in said.out
    assert "1 stay: 1 cron" in said.out
    assert "Workers needed 10 -> 7 (1 would suffice)" in said.out
    assert planned(store, bunch) == before


def test_apply_and_undo(evenbeat, store, bunch):
    before = planned(store, bunch)
    done = evenbeat("rebalance", "--apply", "--yes", "--json").json
    assert len(done["moved"]) == 9
    assert done["after"]["expected_peak"] == 1
    assert planned(store, bunch) != before
    again = evenbeat("rebalance", "--apply", "--yes")
    assert "No job moved." in again.out
    undone = evenbeat("rebalance", "--undo", done["id"], "--yes")
    assert undone.out == "9 jobs put back\n"
    assert planned(store, bunch) == before
    assert evenbeat("rebalance", "--undo", done["id"], "--yes").code == 1


def test_nothing_moves_where_nobody_can_confirm(evenbeat, store, bunch):
    before = planned(store, bunch)
    said = evenbeat("rebalance", "--apply")
    assert said.code == 1
    assert "Move 9 jobs? Nobody is here to confirm it: give --yes." in said.err
    assert planned(store, bunch) == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--apply", "--preview"], "Give one of --preview, --apply and --undo ID."),
        (["--undo", str(UUID(int=1)), "--max-moves", "2"], "--max-moves does not go with --undo"),
        (["--undo", "yesterday"], "--undo"),
        (["--max-moves", "0"], "--max-moves"),
    ],
)
def test_wrong_options_are_refused(evenbeat, options, says):
    said = evenbeat("rebalance", *options)
    assert said.code == 2
    assert says in said.err
    assert said.out == ""


def test_an_unknown_rebalance_cannot_be_undone(evenbeat):
    said = evenbeat("rebalance", "--undo", str(UUID(int=1)), "--yes")
    assert said.code == 4
    assert str(UUID(int=1)) in said.err


def test_simulate_reads_the_live_database(evenbeat, bunch):
    told = evenbeat("simulate", "--live", "--json").json
    assert (told["total_jobs"], told["placed"]) == (11, 10)
    assert [kept["name"] for kept in told["kept"]] == ["report"]
    assert (told["before"]["workers_needed"], told["after"]["workers_needed"]) == (10, 1)


def test_simulate_of_an_empty_database_says_so(evenbeat):
    said = evenbeat("simulate", "--live")
    assert said.code == 2
    assert "There is no recurring job to simulate" in said.err

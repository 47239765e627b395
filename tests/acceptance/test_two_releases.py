"""The last landed release beside the present one on one database, as during a rolling deploy."""

import io
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from real_processes import Running, Start

from evenbeat.store.migrate import migrations, schema_version
from evenbeat.store.store import Store
from waiting import wait_for

LANDED = "eb69d16665657933f17bc2374dee8fb4146637cf"
ROOT = Path(__file__).parents[2]
JOBS = 300

APP = """
import os, time
from evenbeat import Context, Evenbeat

app = Evenbeat(name="shop")

@app.task
def note(n: int, *, ctx: Context) -> str:
    time.sleep(0.02)
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(f"{n} {os.environ['RELEASE']}\\n")
    return os.environ["RELEASE"]

@app.every("1s", placement="grid")
def tick() -> None: ...
"""

ENQUEUE = """
import sys
from shop import app, note

app.enqueue_many([note.job(n=n) for n in range(int(sys.argv[1]), int(sys.argv[2]))])
app.close()
"""


@pytest.fixture
def landed(tmp_path: Path) -> Path:
    """The source of the last landed release."""
    archive = subprocess.run(
        ["git", "archive", LANDED, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"no history of the project here: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tmp_path / "landed", filter="data")
    return tmp_path / "landed" / "src"


def test_both_work_on_one_database_and_lose_and_double_nothing(
    landed: Path, start: Start, tmp_path: Path, empty_database_url: str
):
    (tmp_path / "shop.py").write_text(APP)
    ledger = tmp_path / "ledger"

    def run(release: str, source: Path, *arguments: str) -> Running:
        return start(
            *arguments,
            EVENBEAT_DATABASE_URL=empty_database_url,
            EVENBEAT_THREADS="4",
            PYTHONPATH=f"{source}:{tmp_path}",
            LEDGER=str(ledger),
            RELEASE=release,
        )

    def worker(release: str, source: Path) -> Running:
        running = run(release, source, "-m", "evenbeat", "worker", "--app", "shop:app")
        running.wait_for_line("Serving")
        return running

    def enqueue(release: str, source: Path, first: int, end: int) -> None:
        caller = run(release, source, "-c", ENQUEUE, str(first), str(end))
        assert caller.exit_code() == 0, caller.text

    old = worker("old", landed)
    with psycopg.connect(empty_database_url) as connection:
        assert schema_version(connection, "evenbeat") < migrations()[-1].version
    enqueue("old", landed, 0, JOBS)
    wait_for(lambda: ledger.exists() and ledger.read_text(), "the old release is at work")
    new = worker("new", ROOT / "src")
    enqueue("old", landed, JOBS, 2 * JOBS)
    enqueue("new", ROOT / "src", 2 * JOBS, 3 * JOBS)
    store = Store(empty_database_url)
    wait_for(lambda: store.read.counts_by_status()["completed"] == 3 * JOBS, "all are done")

    lines = [line.split() for line in ledger.read_text().splitlines()]
    assert Counter(int(n) for n, _ in lines) == Counter(range(3 * JOBS))
    assert {release for _, release in lines} == {"old", "new"}
    tick = store.read.job_by_name("tick")
    runs = tick.run_count
    wait_for(lambda: store.read.job(tick.id).run_count > runs + 2, "the schedule goes on")
    store.close()
    for running in (old, new):
        assert running.stop() == 0
        assert "Traceback" not in running.text
        assert "ERROR" not in running.text.upper()

"""The examples, run as their first lines say."""

import re
import signal
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import httpx
import psutil
import psycopg
import pytest
from real_processes import Running, Start, without_failed_runs

from evenbeat.api.auth.tokens import Access, Role
from evenbeat.domain.states import JobStatus
from evenbeat.settings import Settings
from evenbeat.store.lists import JobFilter
from evenbeat.store.store import Store
from waiting import PATIENCE, wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRET = "a secret of the tests that is long enough"  # noqa: S105


# -- schedules.py --------------------------------------------------------------------------------


def completed(store: Store, task: str) -> int:
    jobs = store.read.jobs(JobFilter(tasks=[task], statuses=[JobStatus.COMPLETED])).jobs
    return len(jobs)


def test_schedules_runs_until_ctrl_c(start: Start, store: Store, database_url: str):
    running = start(str(EXAMPLES / "schedules.py"), EVENBEAT_DATABASE_URL=database_url)

    wait_for(lambda: completed(store, "import_catalogue") == 1, "the import")
    wait_for(lambda: completed(store, "send_email") >= 2, "mail")
    assert store.read.job_by_name("sync_inventory").interval_seconds == 10
    assert store.read.job_by_name("morning_report").timezone == "Europe/Berlin"

    running.signal(signal.SIGINT)
    assert running.exit_code() == 0
    assert "INFO Catalogue imported" in running.text
    assert "Traceback" not in without_failed_runs(running.text)


def test_schedules_can_be_served_by_the_command(start: Start, database_url: str):
    running = start(
        *("-m", "evenbeat", "worker", "--app", str(EXAMPLES / "schedules.py:app")),
        EVENBEAT_DATABASE_URL=database_url,
    )

    assert "schedules=2" in running.wait_for_line("Serving")
    running.wait_for_line("Starting interval scheduler")
    assert running.stop() == 0


def test_make_run_serves_them(start: Start, store: Store, database_url: str):
    makefile = (EXAMPLES.parent / "Makefile").read_text()
    command = re.search(r"^run:.*\n\t\$\(BIN\)/evenbeat (.+)$", makefile, re.MULTILINE)
    assert command
    running = start(
        *("-m", "evenbeat", *command[1].replace("examples/", f"{EXAMPLES}/").split()),
        *("--port", "0"),
        EVENBEAT_DATABASE_URL=database_url,
        EVENBEAT_AUTH_SECRET=SECRET,
    )
    dashboard = running.wait_for_line("Dashboard").split()[-1]
    assert httpx.get(f"{dashboard}healthz", trust_env=False).status_code == 200
    assert store.read.job_by_name("sync_inventory").interval_seconds == 10
    assert running.stop() == 0


# -- fastapi_app.py ------------------------------------------------------------------------------


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def service(start: Start, database_url: str, port: int) -> Iterator[Running]:
    """uvicorn with two workers; its children end with it."""
    running = start(
        *("-m", "uvicorn", "--app-dir", str(EXAMPLES), "fastapi_app:api"),
        *("--workers", "2", "--port", str(port)),
        EVENBEAT_DATABASE_URL=database_url,
        EVENBEAT_AUTH_SECRET=SECRET,
    )
    yield running
    children = psutil.Process(running.process.pid).children() if running_still(running) else []
    running.signal()
    running.exit_code()
    for child in children:
        child.wait(PATIENCE)
    with psycopg.connect(database_url) as connection:
        connection.execute("DROP TABLE IF EXISTS orders")


def running_still(running: Running) -> bool:
    return running.process.poll() is None


def test_fastapi_app_runs_each_job_once_in_two_workers(service: Running, store: Store, port: int):
    wait_for(lambda: service.text.count("Application startup complete") == 2, "both workers")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        answers = [client.post("/orders", json={"item": f"tea {n}"}) for n in range(20)]
        assert {answer.status_code for answer in answers} == {201}
        made = [answer.json() for answer in answers]

        def receipts() -> list[int]:
            return [order["receipts"] for order in client.get("/orders").json()]

        wait_for(lambda: min(receipts()) > 0, "every receipt")
        assert receipts() == [1] * 20

    for order in made:
        job = store.read.job(UUID(order["job_id"]))
        assert job.status == JobStatus.COMPLETED
        assert (job.payload, job.run_count) == ({"order_id": order["id"]}, 1)
    assert len({worker.pid for worker in store.upkeep.workers()}) == 2
    schedules = store.read.jobs(JobFilter(created_by="code:orders")).jobs
    assert [job.name for job in schedules] == ["forget_old_orders"]

    with httpx.Client(base_url=f"http://127.0.0.1:{port}/evenbeat", trust_env=False) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/api/v1/jobs").status_code == 401
        page = client.get("/", follow_redirects=True)
        assert (page.status_code, page.url.path) == (200, "/evenbeat/login")
        headers = {"Authorization": f"Bearer {operator_token(store)}"}
        body = {"task": "forget_old_orders", "delay": "1h"}
        added = client.post("/api/v1/jobs", json=body, headers=headers)
        assert added.headers["location"] == f"/evenbeat/api/v1/jobs/{added.json()['id']}"
        assert store.read.job(UUID(added.json()["id"])).created_by == "a test"


def operator_token(store: Store) -> str:
    access = Access.of(Settings(auth_secret=SECRET), store)
    return access.issue(Role.OPERATOR, timedelta(minutes=5), subject="a test").token


# -- flask_app.py --------------------------------------------------------------------------------


def test_flask_app_leaves_its_jobs_to_a_worker(start: Start, database_url: str, port: int):
    settings = {"EVENBEAT_DATABASE_URL": database_url, "FLASK_PRICE": "8"}
    app = str(EXAMPLES / "flask_app.py")
    site = start("-m", "flask", "--app", app, "run", "--port", str(port), **settings)
    worker = start("-m", "evenbeat", "worker", "--app", f"{app}:jobs", **settings)
    site.wait_for_line("Running on")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        answer = client.post("/orders", data={"item": "tea"})
        assert answer.status_code == 201

        def receipt() -> str | None:
            return client.get(f"/receipts/{answer.json()['job_id']}").json()["receipt"]

        assert wait_for(receipt, "the receipt") == "The corner shop: one tea, 8 EUR"
    assert worker.stop() == 0


# -- django_shop ---------------------------------------------------------------------------------


def test_django_shop_adds_an_order_and_its_job_in_one_transaction(
    start: Start, store: Store, database_url: str, port: int
):
    manage = str(EXAMPLES / "django_shop" / "manage.py")
    shop = {"DATABASE_URL": database_url}
    assert start(manage, "migrate", "--run-syncdb", **shop).exit_code() == 0
    site = start(manage, "runserver", "--noreload", f"127.0.0.1:{port}", **shop)
    worker = start(manage, "evenbeat", "worker", **shop)
    site.wait_for_line("Quit the server")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        assert client.post("/orders", data={"item": "milk", "fail": "1"}).status_code == 500
        made = client.post("/orders", data={"item": "tea"}).json()
        answer = wait_for(
            lambda: (said := client.get(f"/orders/{made['order']}").json())["receipt"] and said,
            "the receipt",
        )
    assert answer == {"item": "tea", "receipt": "one tea"}
    added = store.read.jobs(JobFilter(tasks=["print_receipt"])).jobs
    assert [str(job.id) for job in added] == [made["job"]]
    assert store.read.job_by_name("forget_old_orders") is not None
    assert worker.stop() == 0
    with psycopg.connect(database_url) as connection:
        connection.execute("DROP TABLE orders_order, django_migrations")

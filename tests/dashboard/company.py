"""A plausible company's schedule with a week of history, for screenshots and for looking around.

Jobs go in through the store; their past is written as rows, since nobody waits a week for a
picture.
"""

import random
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from evenbeat import Evenbeat
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobRecord, JobSpec, NewJob, recurring_of
from evenbeat.domain.schedule import parse_schedule


class Line(NamedTuple):
    """One job: name, task, queue, schedule, typical seconds, share of failures, tags, payload."""

    name: str
    task: str
    queue: str
    schedule: str
    seconds: float
    failing: float = 0.0
    tags: str = ""
    payload: Mapping[str, Any] = MappingProxyType({})


SHOPS = ("berlin", "lisbon", "oslo", "vienna", "dublin", "ghent", "turin", "krakow")
FEEDS = ("nordic-outdoor", "casa-verde", "paper-and-ink", "volt-tools", "kettle-co", "atlas-maps")

LINES = (
    *(Line(f"sync stock · {s}", "sync_stock", "shops", "@every 15m", 14, 0.01, "stock", {"shop": s}) for s in SHOPS),
    *(Line(f"import feed · {f}", "import_feed", "feeds", "@every 1h", 95, 0.03, "catalogue", {"feed": f}) for f in FEEDS),
    *(Line(f"close the till · {s}", "close_till", "shops", "30 21 * * *", 48, 0.02, "finance", {"shop": s}) for s in SHOPS),
    Line("exchange rates", "fetch_rates", "default", "@every 30m", 2.1, 0.02, "finance", {"base": "EUR"}),
    Line("payment settlements", "settle_payments", "billing", "@every 1h", 62, 0.01, "finance"),
    Line("invoice run", "send_invoices", "billing", "0 6 * * mon-fri", 340, 0.0, "finance, mail", {"batch": 500}),
    Line("dunning letters", "send_dunning", "billing", "0 8 * * tue,thu", 75, 0.0, "finance, mail"),
    Line("refund queue", "process_refunds", "billing", "@every 10m", 6, 0.02, "finance"),
    Line("VAT check", "check_vat", "billing", "@every 2h", 33, 0.22, "finance", {"registry": "vies"}),
    Line("warehouse replication", "replicate", "data", "@every 5m", 21, 0.004, "warehouse"),
    Line("orders to warehouse", "load_table", "data", "@every 20m", 44, 0.01, "warehouse", {"table": "orders"}),
    Line("customers to warehouse", "load_table", "data", "@every 1h", 58, 0.01, "warehouse", {"table": "customers"}),
    Line("sessions to warehouse", "load_table", "data", "@every 30m", 71, 0.03, "warehouse", {"table": "sessions"}),
    Line("nightly models", "train_models", "data", "15 2 * * *", 1460, 0.05, "warehouse"),
    Line("recommendations", "build_recommendations", "data", "@every 6h", 610, 0.04, "catalogue"),
    Line("search index", "index_products", "search", "@every 10m", 17, 0.01, "catalogue"),
    Line("search synonyms", "index_synonyms", "search", "@daily", 26, 0.0, "catalogue"),
    Line("sitemap", "build_sitemap", "search", "0 4 * * *", 52, 0.0, "web"),
    Line("price watch", "watch_prices", "crawl", "@every 45m", 130, 0.08, "catalogue, crawl", {"competitors": 14}),
    Line("review harvest", "crawl", "crawl", "@every 3h", 240, 0.06, "crawl", {"url": "https://example.com/reviews"}),
    Line("newsletter", "send_newsletter", "mail", "0 9 * * wed", 890, 0.0, "mail, marketing"),
    Line("abandoned carts", "remind_carts", "mail", "@every 30m", 9, 0.01, "mail, marketing"),
    Line("delivery notices", "send_notices", "mail", "@every 5m", 4, 0.006, "mail"),
    Line("bounce handling", "read_bounces", "mail", "@every 20m", 5, 0.02, "mail"),
    Line("carrier tracking · parcel", "track_parcels", "shipping", "@every 15m", 38, 0.05, "shipping", {"carrier": "parcel"}),
    Line("carrier tracking · freight", "track_parcels", "shipping", "@every 1h", 41, 0.05, "shipping", {"carrier": "freight"}),
    Line("customs documents", "file_customs", "shipping", "@every 2h", 29, 0.02, "shipping"),
    Line("pick lists", "print_pick_lists", "shipping", "*/30 6-18 * * mon-sat", 7, 0.0, "shipping"),
    Line("loyalty points", "award_points", "default", "@every 30m", 11, 0.0, "marketing"),
    Line("coupon expiry", "expire_coupons", "default", "5 0 * * *", 8, 0.0, "marketing"),
    Line("session cleanup", "clean_sessions", "default", "@every 1h", 3, 0.0, "housekeeping"),
    Line("image thumbnails", "make_thumbnails", "media", "@every 10m", 24, 0.01, "catalogue"),
    Line("video transcodes", "transcode", "media", "@every 1h", 205, 0.03, "media"),
    Line("certificate check", "check_certificates", "default", "@daily", 12, 0.0, "housekeeping"),
    Line("backup · orders", "dump_database", "backup", "0 3 * * *", 720, 0.0, "backup", {"database": "orders"}),
    Line("backup · media", "dump_bucket", "backup", "30 3 * * sun", 2900, 0.0, "backup", {"bucket": "media"}),
    Line("restore drill", "drill_restore", "backup", "0 5 * * sun", 1800, 0.0, "backup"),
    Line("fraud scores", "score_orders", "risk", "@every 10m", 15, 0.01, "risk", {"model": "v7"}),
    Line("sanction lists", "fetch_lists", "risk", "0 1 * * *", 66, 0.12, "risk"),
    Line("board report", "build_report", "reports", "0 7 * * mon", 180, 0.0, "reports", {"to": "board"}),
    Line("sales report", "build_report", "reports", "30 6 * * *", 95, 0.0, "reports", {"to": "sales"}),
    Line("support digest", "build_report", "reports", "0 17 * * mon-fri", 22, 0.0, "reports", {"to": "support"}),
)  # fmt: skip

ERRORS = (
    ("TimeoutError", "registry.example.eu did not answer within 30 s", "client.py", "get"),
    (
        "ConnectionError",
        "Connection reset by peer while reading page 3 of 14",
        "session.py",
        "read",
    ),
    ("ValueError", "row 2118: price '12,9O' is not a number", "parse.py", "price_of"),
    ("RuntimeError", "HTTP 503 from the carrier: maintenance until 04:30", "carrier.py", "check"),
)


def application(url: str, **settings: Any) -> Evenbeat:
    """The company's tasks. They take their time, but touch nothing."""
    app = Evenbeat(url, name="company", **settings)

    def make(task: str) -> None:
        def handler(**given: Any) -> dict[str, int]:
            time.sleep(_SECONDS[task])
            return {"rows": random.randrange(10, 4000)}  # noqa: S311

        takes = next(line.payload for line in LINES if line.task == task)
        handler.__signature__ = Signature(  # type: ignore[attr-defined]
            [Parameter(name, Parameter.KEYWORD_ONLY) for name in takes]
        )
        handler.__annotations__ = {name: type(value) for name, value in takes.items()}
        handler.__doc__ = f"{task.replace('_', ' ').capitalize()}, in batches."
        app.task(name=task, queue=_QUEUES[task])(handler)

    for task in sorted({line.task for line in LINES} - {"crawl"}):
        make(task)
    return app


_SECONDS = {line.task: min(line.seconds, 45) for line in LINES}
_QUEUES = {line.task: line.queue for line in LINES}


def add_jobs(app: Evenbeat) -> list[JobRecord]:
    """Every line as a job, placed by the balancer."""
    news = [_new(line) for line in LINES]
    added = app.enqueue_many(news)
    return [app.store.read.job(one.id) for one in added]


def _new(line: Line) -> NewJob:
    spec = JobSpec(
        task=line.task,
        queue=line.queue,
        schedule=parse_schedule(line.schedule, timezone="UTC"),
        cost=timedelta(seconds=line.seconds),
    )
    metadata = {"tags": [tag.strip() for tag in line.tags.split(",")]} if line.tags else {}
    payload, by = dict(line.payload), "maria@example.com"
    return NewJob(spec, payload, name=line.name, metadata=metadata, created_by=by)


def write_past(
    url: str, jobs: list[JobRecord], now: datetime, *, days: int = 7, seed: int = 7
) -> int:
    """A week of runs up to now; returns how many."""
    chance = random.Random(seed)  # noqa: S311
    workers = [uuid7(now.timestamp() - 600_000) for _ in range(3)]
    rows: list[tuple[Any, ...]] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for job, line in zip(jobs, LINES, strict=True):
            since = now - timedelta(days=days)
            mine = list(_runs(job, line, (since, now), chance, workers))
            rows += mine
            if mine:
                _bring_up_to_date(connection, job, mine)
        rows.sort(key=lambda row: row[0])
        with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            for row in rows:
                copy.write_row(row)
        connection.execute("ANALYZE evenbeat.jobs; ANALYZE evenbeat.executions")
    return len(rows)


_COPY = """COPY evenbeat.executions (id, job_id, plan_time, started_at, completed_at, worker_id,
    duration_ms, wait_ms, execution_number, retry_attempt, status, error_code, error_message,
    stack_trace, result) FROM STDIN"""


def _runs(
    job: JobRecord,
    line: Line,
    period: tuple[datetime, datetime],
    chance: random.Random,
    workers: list[UUID],
) -> Iterator[tuple[Any, ...]]:
    schedule = recurring_of(job)
    assert schedule is not None
    (plan, now), number = period, 0
    while (plan := schedule.next_after(plan)) < now - timedelta(minutes=2):
        attempt = 0
        bad = 1.0 if _breaks(line, now - plan) else line.failing
        while True:
            number += 1
            started = plan + timedelta(seconds=attempt * 60 + chance.expovariate(1 / 0.08))
            took = (
                line.seconds
                * chance.lognormvariate(0, 0.22)
                * (1 + 0.35 * (plan.hour in (8, 9, 18)))
            )
            failed = chance.random() < bad
            kind, words, file, where = chance.choice(ERRORS)
            took = took * chance.uniform(0.1, 0.6) if failed else took
            if started + timedelta(seconds=took) >= now:
                return
            yield (
                uuid7(started.timestamp()), job.id, plan, started, started + timedelta(seconds=took),
                chance.choice(workers), took * 1000, chance.expovariate(1 / 40) + 3, number, attempt,
                "failed" if failed else "completed", kind if failed else None,
                words if failed else None, _trace(line.task, kind, words, file, where) if failed else None,
                None if failed else Jsonb({"rows": chance.randrange(10, 4000)}),
            )  # fmt: skip
            attempt += 1
            if not failed or attempt > 1:
                break


def _breaks(line: Line, ago: timedelta) -> bool:
    """What is going wrong just now."""
    hours = {"VAT check": 14, "price watch": 2, "import feed · volt-tools": 1.5}.get(line.name, 0)
    return ago < timedelta(hours=hours)


def liven(app: Evenbeat, jobs: list[JobRecord]) -> None:
    """A present to go with the past: some run, two are paused, and one waits for nobody."""
    named = {job.name: job.id for job in jobs}
    control = app.store.control
    control.pause([named["newsletter"], named["board report"]])
    control.run_now(
        [named[name] for name in ("video transcodes", "recommendations", "backup · orders")]
    )
    control.run_now([named["review harvest"]], now=app.store.clock() - timedelta(minutes=12))


def _trace(task: str, kind: str, words: str, file: str, where: str) -> str:
    return (
        "Traceback (most recent call last):\n"
        f'  File "/srv/shop/tasks/{task}.py", line 41, in {task}\n    rows = client.fetch(page)\n'
        f'  File "/srv/shop/lib/{file}", line 118, in {where}\n    raise {kind}(…)\n{kind}: {words}'
    )


def _bring_up_to_date(
    connection: psycopg.Connection[Any], job: JobRecord, runs: list[tuple[Any, ...]]
) -> None:
    last, good = runs[-1], [run[6] for run in runs if run[10] == "completed"]
    connection.execute(
        "UPDATE evenbeat.jobs SET run_count = %s, average_duration_ms = %s, started_at = %s, "
        "completed_at = %s, error_message = %s, created_at = %s WHERE id = %s",
        (
            len(runs), sum(good[-20:]) / max(1, len(good[-20:])), last[3], last[4], last[12],
            datetime.now(UTC) - timedelta(days=40), job.id,
        ),
    )  # fmt: skip

"""An ETL: each hour's orders of each shop are extracted, then loaded, then summed up.

    echo acme globex > shops.txt
    python examples/etl.py                        # begin with the last full hour; until Ctrl-C
    evenbeat serve --app examples/etl.py:app      # or hour by hour, with the dashboard

The staging files and the warehouse are in the working directory. Every step may run twice with the
same effect as once, as it may where machines die.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from evenbeat import Context, Evenbeat, Event, Scope

app = Evenbeat(name="etl")
HOUR = timedelta(hours=1)


def shops() -> Iterator[Scope]:
    """Asked again every minute: a shop that opens has its schedules a minute later."""
    for name in Path("shops.txt").read_text(encoding="utf-8").split():
        yield Scope("shop", name)


@app.every("1h", scopes=shops, placement="grid", schedule_delay="5m", catch_up="every_plan")
def extract(ctx: Context) -> str:
    """The orders of the hour that ended with the plan, however late the run is."""
    hour = last_full_hour(ctx.plan_time)
    orders = list(read_orders(ctx.scope.id, hour))
    good = []
    for number, order in enumerate(orders, start=1):
        ctx.progress(number, len(orders), "reading orders")
        if order["amount"] > 0:
            good.append(order)
    staging_file(ctx.scope.id, hour).write_text(json.dumps(good), encoding="utf-8")
    ctx.report(rows_affected=len(good), skipped=len(orders) - len(good))
    return hour.isoformat()


@app.after(extract, scopes=shops, max_retries=5, retry_backoff="10s")
def load(ctx: Context) -> None:
    """Into the warehouse, in place of what an earlier run has put there."""
    hour = last_full_hour(ctx.predecessor_plan_time or ctx.plan_time)
    orders = json.loads(staging_file(ctx.scope.id, hour).read_text(encoding="utf-8"))
    key = (ctx.scope.id, hour.isoformat())
    with closing(warehouse()) as database, database:
        database.execute("DELETE FROM orders WHERE shop = ? AND hour = ?", key)
        database.executemany(
            "INSERT INTO orders VALUES (?, ?, ?, ?)",
            [(*key, order["id"], order["amount"]) for order in orders],
        )
    ctx.report(rows_affected=len(orders))


@app.after(load, scopes=shops)
def sum_up(ctx: Context) -> dict[str, int]:
    """What one sees as the result of the run, in the dashboard or from Python."""
    with closing(warehouse()) as database:
        count, amount = database.execute(
            "SELECT count(*), coalesce(sum(amount), 0) FROM orders WHERE shop = ?", (ctx.scope.id,)
        ).fetchone()
    return {"orders": count, "amount": amount}


def last_full_hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0) - HOUR


def staging_file(shop: str, hour: datetime) -> Path:
    return Path(f"orders-{shop}-{hour:%Y%m%dT%H}.json")


def read_orders(shop: str, hour: datetime) -> Iterator[dict[str, Any]]:
    """What a shop's till would answer; one order in ten is broken."""
    for number in range(10 * len(shop)):
        yield {"id": f"{hour:%H}-{number}", "amount": number % 10}


def warehouse() -> sqlite3.Connection:
    database = sqlite3.connect("warehouse.sqlite")
    database.execute("CREATE TABLE IF NOT EXISTS orders (shop, hour, id, amount)")
    return database


@app.on("job:complete")
def tell(event: Event) -> None:
    print(f"{event.job.scope_id}: {event.job.task} gave {event.result}", flush=True)


def main() -> None:
    worker = app.worker()
    worker.start()
    for shop in shops():
        app.schedules.run_now("extract", scope=shop)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        worker.stop()
    finally:
        app.close()


if __name__ == "__main__":
    main()

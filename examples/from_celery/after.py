"""The shop of before.py on Evenbeat; what it needs is PostgreSQL, which it brings with it.

    export PYTHONPATH=examples
    evenbeat worker --app from_celery.after:app      # brings the schedules too: there is no beat
    python -m from_celery.after                      # in another terminal: order a few things

`delay` became `enqueue`, `apply_async` `options(...).enqueue`, `get` `result`. What `acks_late` and
`reject_on_worker_lost` ask for is how every task is run; a result is kept unless it is None.
"""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from evenbeat import Evenbeat, Job, JobFailed, Retry

from . import shop

app = Evenbeat(name="shop")


@app.task(
    retry_on=[ConnectionError],
    max_retries=5,
    retry_backoff="1s",
    retry_jitter=0,
    timeout="30s",
)
def count_stock(store: str) -> dict[str, int]:
    return shop.stock(store)


@app.task
def add_up(counts: list[UUID]) -> dict[str, int]:
    """Runs when all counts have completed, so that none of these results has to be waited for."""
    return shop.total([app.job(count).result() for count in counts])


def stock_report(stores: list[str]) -> Job[dict[str, int]]:
    counts = app.enqueue_many(count_stock.job(store) for store in stores)
    return add_up.options(after=counts).enqueue([count.id for count in counts])


@app.task(max_retries=5, rate_limit="100/s")  # of all workers together
def send_reminder(to: str, text: str) -> None:
    try:
        shop.send(to, text)
    except shop.MailboxBusy as busy:
        raise Retry(str(busy), after=busy.seconds) from busy


@app.task  # must be done, even if a worker dies of it
def close_till(day: str) -> None:
    shop.write(f"till closed for {day}")


@app.every("2s")
def check_freezer() -> None:
    shop.write("the freezer is cold")


@app.cron("0 7 * * mon-fri", timezone="Europe/Berlin", payload={"stores": list(shop.SHELVES)})
def morning_report(stores: list[str]) -> None:
    stock_report(stores)


def main() -> None:
    report = stock_report(["berlin", "paris", "rome"])
    send_reminder.options(delay="1s").enqueue("ann", "order tea")
    soon = datetime.now(UTC) + timedelta(seconds=2)
    send_reminder.options(run_at=soon, expires="1h").enqueue("bob", "call ann")
    close_till.enqueue("2030-01-31")
    print("in stock:", shop.listed(report.result(timeout="60s")))
    lost = count_stock.enqueue("atlantis")
    try:
        lost.result(timeout="60s")
    except JobFailed as error:
        print("failed:", error.error)
    print("later:", shop.listed(app.job(report.id).result()))
    app.close()


if __name__ == "__main__":
    main()

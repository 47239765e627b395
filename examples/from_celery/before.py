"""A shop on Celery: retries, a chord, a countdown, an ETA, results and a beat schedule.

    export PYTHONPATH=examples CELERY_BROKER_URL=sqla+sqlite:///broker.sqlite
    export CELERY_RESULT_BACKEND=db+sqlite:///results.sqlite
    celery --app from_celery.before worker --beat --pool threads
    python -m from_celery.before              # in another terminal: order a few things

after.py is the same on Evenbeat, task by task.
"""

from datetime import UTC, datetime, timedelta

from celery import Celery, Task, chord
from celery.result import AsyncResult
from celery.schedules import crontab

from . import shop

app = Celery("from_celery.before")
app.conf.timezone = "Europe/Berlin"
app.conf.broker_connection_retry_on_startup = True
app.conf.beat_schedule = {
    "check_freezer": {"task": "from_celery.before.check_freezer", "schedule": 2.0},
    "morning_report": {
        "task": "from_celery.before.morning_report",
        "schedule": crontab(minute="0", hour="7", day_of_week="mon-fri"),
        "kwargs": {"stores": list(shop.SHELVES)},
    },
}


@app.task(
    autoretry_for=(ConnectionError,),
    max_retries=5,
    retry_backoff=1,
    retry_jitter=False,
    time_limit=30,
)
def count_stock(store: str) -> dict[str, int]:
    return shop.stock(store)


@app.task
def add_up(stocks: list[dict[str, int]]) -> dict[str, int]:
    return shop.total(stocks)


def stock_report(stores: list[str]) -> AsyncResult:
    return chord(count_stock.s(store) for store in stores)(add_up.s())


@app.task(bind=True, max_retries=5, rate_limit="100/s")
def send_reminder(self: Task, to: str, text: str) -> None:
    try:
        shop.send(to, text)
    except shop.MailboxBusy as busy:
        raise self.retry(exc=busy, countdown=busy.seconds) from busy


@app.task(acks_late=True, reject_on_worker_lost=True)  # must be done, even if a worker dies of it
def close_till(day: str) -> None:
    shop.write(f"till closed for {day}")


@app.task(ignore_result=True)
def check_freezer() -> None:
    shop.write("the freezer is cold")


@app.task(ignore_result=True)
def morning_report(stores: list[str]) -> None:
    stock_report(stores)


def main() -> None:
    report = stock_report(["berlin", "paris", "rome"])
    send_reminder.apply_async(("ann", "order tea"), countdown=1)
    soon = datetime.now(UTC) + timedelta(seconds=2)
    send_reminder.apply_async(("bob", "call ann"), eta=soon, expires=soon + timedelta(hours=1))
    close_till.delay("2030-01-31")
    print("in stock:", shop.listed(report.get(timeout=60)))
    lost = count_stock.delay("atlantis")
    try:
        lost.get(timeout=60)
    except shop.UnknownStore as error:
        print("failed:", error)
    print("later:", shop.listed(AsyncResult(report.id, app=app).get(timeout=60)))


if __name__ == "__main__":
    main()

"""Tasks, schedules, retries, progress and events in one file.

    python examples/schedules.py                      # enqueue a few jobs, work until Ctrl-C
    evenbeat serve --app examples/schedules.py:app    # or with the dashboard and the API
    evenbeat worker --app examples/schedules.py:app   # or the worker alone

Nothing needs to be installed or started first: without EVENBEAT_DATABASE_URL, Evenbeat starts a
PostgreSQL server of its own, and your jobs are still there after a restart.
"""

import asyncio
import logging
import random
import threading

from evenbeat import Context, Evenbeat, Event, Retry

app = Evenbeat()


# A task is a function. Async ones share an event loop, plain ones run in threads.
@app.task(max_retries=5, retry_backoff="1s", timeout="30s")
async def send_email(to: str, subject: str) -> dict[str, str]:
    await asyncio.sleep(0.1)
    if random.random() < 0.3:
        raise ConnectionError("the mail server hung up")  # tried again after 1s, 2s, 4s …
    return {"sent_to": to, "subject": subject}


@app.task
def import_catalogue(ctx: Context, rows: int) -> None:
    for row in range(rows):
        if ctx.cancelled:  # somebody cancelled the job, or the worker is stopping
            return
        ctx.progress(row + 1, rows, "reading the catalogue")
    ctx.report(rows_affected=rows)
    ctx.logger.info("Catalogue imported", extra={"rows": rows})


# Schedules. A late or long run never shifts the rhythm: the next one is where it always was.
@app.every("10s")
def sync_inventory(ctx: Context) -> None:
    if ctx.attempt == 1 and random.random() < 0.2:
        raise Retry("the warehouse is busy", after="2s")


@app.cron("0 9 * * mon-fri", timezone="Europe/Berlin", priority=80)
async def morning_report(ctx: Context) -> str:
    return f"the report of {ctx.plan_time:%d %B}, however late it is made"


@app.on("job:retry")
def tell(event: Event) -> None:
    print(f"{event.job.task} is tried again at {event.next_run_at:%H:%M:%S}: {event.error}")


def main() -> None:
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    send_email.enqueue(to="ada@example.com", subject="Welcome")
    send_email.options(delay="5s", priority=90).enqueue("bob@example.com", "Five seconds later")
    import_catalogue.options(dedup_key="catalogue").enqueue(rows=1000)  # at most one at a time
    app.enqueue_many(send_email.job(f"user{n}@example.com", "News") for n in range(3))

    worker = app.worker()
    worker.start()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        worker.stop()  # lets running jobs finish; what does not is handed to other workers
    finally:
        app.close()


if __name__ == "__main__":
    main()

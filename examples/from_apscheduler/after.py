"""The feed reader of before.py on Evenbeat.

    PYTHONPATH=examples python -m from_apscheduler.after      # its jobs are in PostgreSQL

`add_job` became `app.schedule`, `modify_job` and `reschedule_job` one `app.schedules.update`. What
the job defaults said is how Evenbeat is by itself: missed runs are made up for by one, however late
(`catch_up_window` bounds it), and no job overlaps itself. Any number of processes share the jobs.
"""

from datetime import UTC, datetime, timedelta

from evenbeat import Evenbeat

from . import feeds

app = Evenbeat(name="feeds")


@app.task(catch_up_window="1h")
def read_feed(feed: str) -> None:
    feeds.read(feed)


@app.task(catch_up_window="1h")
def send_digest(reader: str) -> None:
    feeds.read(f"digest for {reader}")


def subscribe(reader: str, feed: str, seconds: int) -> None:
    app.schedule(read_feed, every=seconds, name=f"feed-{reader}", replace=True, feed=feed)


def daily_digest(reader: str, hour: int, timezone: str) -> None:
    app.schedule(
        send_digest,
        cron=f"0 {hour} * * mon-fri",
        timezone=timezone,
        name=f"digest-{reader}",
        replace=True,
        reader=reader,
    )


def digest_at(reader: str, when: datetime) -> None:
    app.schedule(send_digest, at=when, reader=reader)


def change(reader: str, feed: str, seconds: int) -> None:
    app.schedules.update(f"feed-{reader}", every=seconds, payload={"feed": feed})


def pause(reader: str) -> None:
    app.schedules.pause(f"feed-{reader}")


def resume(reader: str) -> None:
    app.schedules.resume(f"feed-{reader}")


def unsubscribe(reader: str) -> None:
    app.schedules.delete(f"feed-{reader}")
    app.schedules.delete(f"digest-{reader}")


def show() -> None:
    for job in app.schedules.list(task=["read_feed", "send_digest"], sort="name"):
        print(job.name, dict(job.payload), "paused" if job.is_paused else "runs")


def main() -> None:
    worker = app.worker()
    worker.start()
    subscribe("ann", "news", seconds=1)
    daily_digest("ann", 9, "Europe/Berlin")
    show()
    feeds.wait_until_read("news")
    change("ann", "sport", seconds=2)
    feeds.wait_until_read("sport")
    pause("ann")
    show()
    resume("ann")
    digest_at("ann", datetime.now(UTC) + timedelta(seconds=1))
    feeds.wait_until_read("digest for ann")
    unsubscribe("ann")
    show()
    worker.stop()
    app.close()


if __name__ == "__main__":
    main()

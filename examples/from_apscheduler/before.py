"""A feed reader on APScheduler 3, whose readers subscribe and change their minds while it runs.

    PYTHONPATH=examples python -m from_apscheduler.before     # its jobs are in jobs.sqlite

after.py is the same on Evenbeat, function by function.
"""

from datetime import UTC, datetime, timedelta

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from . import feeds

scheduler = BackgroundScheduler(
    jobstores={"default": SQLAlchemyJobStore("sqlite:///jobs.sqlite")},
    job_defaults={"coalesce": True, "misfire_grace_time": 3600, "max_instances": 1},
)


def read_feed(feed: str) -> None:
    feeds.read(feed)


def send_digest(reader: str) -> None:
    feeds.read(f"digest for {reader}")


def subscribe(reader: str, feed: str, seconds: int) -> None:
    scheduler.add_job(
        read_feed,
        "interval",
        seconds=seconds,
        id=f"feed-{reader}",
        replace_existing=True,
        kwargs={"feed": feed},
    )


def daily_digest(reader: str, hour: int, timezone: str) -> None:
    scheduler.add_job(
        send_digest,
        "cron",
        hour=hour,
        minute=0,
        day_of_week="mon-fri",
        timezone=timezone,
        id=f"digest-{reader}",
        replace_existing=True,
        kwargs={"reader": reader},
    )


def digest_at(reader: str, when: datetime) -> None:
    scheduler.add_job(send_digest, "date", run_date=when, kwargs={"reader": reader})


def change(reader: str, feed: str, seconds: int) -> None:
    scheduler.modify_job(f"feed-{reader}", kwargs={"feed": feed})
    scheduler.reschedule_job(f"feed-{reader}", trigger="interval", seconds=seconds)


def pause(reader: str) -> None:
    scheduler.pause_job(f"feed-{reader}")


def resume(reader: str) -> None:
    scheduler.resume_job(f"feed-{reader}")


def unsubscribe(reader: str) -> None:
    scheduler.remove_job(f"feed-{reader}")
    scheduler.remove_job(f"digest-{reader}")


def show() -> None:
    for job in sorted(scheduler.get_jobs(), key=lambda job: str(job.id)):
        print(job.id, dict(job.kwargs), "runs" if job.next_run_time else "paused")


def main() -> None:
    scheduler.start()
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
    scheduler.shutdown()


if __name__ == "__main__":
    main()

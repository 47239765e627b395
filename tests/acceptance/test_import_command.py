"""`evenbeat import` and `evenbeat export`, on a real database and over a real service."""

import json
import pickle
import random
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from apscheduler.triggers.cron import CronTrigger
from cronsim import CronSim
from said import Command, Said
from test_command_line import served

from evenbeat import Evenbeat
from evenbeat.api.app import create
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.cli import run_import
from evenbeat.domain.schedule import parse_schedule
from evenbeat.domain.schedule.cron import NAMED_CRON
from evenbeat.store.store import Store
from waiting import wait_for

SECRET = "a secret of the tests that is long enough"  # noqa: S105

DEBIAN = """\
# /etc/crontab: system-wide crontab
# Unlike any other crontab you don't have to run the `crontab'
# command to install the new version when you edit this file
# and files in /etc/cron.d. These files also have username fields,
# that none of the other crontabs do.

SHELL=/bin/sh
# You can also override PATH, but by default, newer versions inherit it from the environment
#PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin

# Example of job definition:
# .---------------- minute (0 - 59)
# |  .------------- hour (0 - 23)
# |  |  .---------- day of month (1 - 31)
# |  |  |  .------- month (1 - 12) OR jan,feb,mar,apr ...
# |  |  |  |  .---- day of week (0 - 6) (Sunday=0 or 7) OR sun,mon,tue,wed,thu,fri,sat
# |  |  |  |  |
# *  *  *  *  * user-name command to be executed
17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly
25 6\t* * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }
47 6\t* * 7\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.weekly; }
52 6\t1 * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.monthly; }
#
"""


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture
def service(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service of its own; commands ask it with an operator's token."""
    with Evenbeat(database_url, auth_secret=SECRET) as app:
        access = Access.of(app.settings, app.store)
        token = access.issue(Role.OPERATOR, timedelta(hours=1), subject="mover").token
        monkeypatch.setenv("EVENBEAT_TOKEN", token)
        with served(create(app, access=access)) as url:
            yield url


def done(said: Said) -> Said:
    assert said.code == 0, said.err
    return said


def actions(said: Said) -> dict[str, str]:
    """What becomes of each place of the source."""
    return {step["where"]: step["action"] for step in done(said).json["plan"]}


def jobs_of(evenbeat: Command) -> list[dict[str, Any]]:
    return done(evenbeat("job", "list", "--limit", "1000", "--json")).json["jobs"]


# -- what was imported fires when the original would ---------------------------------------------

START = datetime(2026, 1, 1, tzinfo=UTC)
YEAR_LATER = datetime(2027, 1, 1, tzinfo=UTC)


@cache
def original(expression: str, zone: str) -> list[datetime]:
    """A year by cronsim's own walk."""
    moments = []
    for moment in CronSim(NAMED_CRON.get(expression, expression), START.astimezone(ZoneInfo(zone))):
        if (plan := moment.astimezone(UTC)) > YEAR_LATER:
            return moments
        moments.append(plan)
    return moments


@cache
def imported(schedule: str, zone: str) -> list[datetime]:
    """A year of the job that stands in the database."""
    found, plan, moments = parse_schedule(schedule, timezone=zone), START, []
    while (plan := found.next_after(plan)) <= YEAR_LATER:
        moments.append(plan)
    return moments


def test_debians_own_crontab(evenbeat: Command, tmp_path: Path) -> None:
    (tmp_path / "crontab").write_text(DEBIAN)
    command = ("import", "crontab", "crontab", "--system", "--user", "root")
    shown = done(evenbeat(*command))
    assert "run-parts-report-cron.hourly" in shown.out
    assert "at minute 17 of every hour" in shown.out
    assert "line 7: SHELL=/bin/sh: given to the commands" in shown.out
    assert "4 to add. Dry run: --apply applies it." in shown.err
    assert "Times are read in UTC, the time zone of this machine" in shown.err
    assert jobs_of(evenbeat) == []

    added = done(evenbeat(*command, "--apply"))
    assert added.out.startswith("4 added.")
    jobs = {job["payload"]["command"]: job for job in jobs_of(evenbeat)}
    lines = [line.split("\t") for line in DEBIAN.splitlines() if "run-parts" in line]
    assert len(lines) == len(jobs) == 4
    for first, rest, user, line in lines:
        job = jobs[line]
        assert user == "root"
        assert job["task"] == "shell"
        assert job["payload"]["env"] == {"SHELL": "/bin/sh"}
        assert imported(job["schedule"], job["timezone"]) == original(f"{first} {rest}", "UTC")


def realistic_crontab() -> str:
    """Two hundred entries of the shapes that crontabs have, the same every time."""
    choose = random.Random(2026)  # noqa: S311 - no secret
    minute, hour = lambda: choose.randrange(60), lambda: choose.randrange(24)
    shapes = [
        lambda: f"{minute()} {hour()} * * *",
        lambda: f"{minute()} {hour()} * * {choose.choice(['1-5', 'mon-fri', 'Sun', '6,0', '7'])}",
        lambda: f"{minute()} {hour()} {choose.randrange(1, 29)} * *",
        lambda: f"{minute()} {hour()} {choose.choice(['1,15', '1-7', 'L', '*/2', '31'])} * *",
        lambda: f"{minute()} {hour()} 1 {choose.choice(['jan', '*/3', '1,4,7,10', 'JUN-AUG'])} *",
        lambda: f"{minute()} */{choose.choice([2, 3, 4, 6, 8, 12])} * * *",
        lambda: f"{minute()} {choose.choice(['8-18', '0-6/2', '9,12,15', '20-23'])} * * 1-5",
        lambda: f"{minute()} 2,3 * * *",  # where clocks change
        lambda: f"0 5 {choose.randrange(1, 8)} * {choose.randrange(7)}",  # either day counts
        lambda: f"0 5 */{choose.randrange(2, 9)} * {choose.randrange(7)}",  # both days count
        lambda: choose.choice(["@daily", "@weekly", "@monthly", "@hourly", "@yearly", "@midnight"]),
        lambda: choose.choice(["*/15 * * * *", "*/20 9-17 * * *", "7-59/30 * * * *"]),
    ]
    commands = [
        "/usr/local/bin/backup.sh --target db{n} >/dev/null 2>&1",
        "cd /srv/app{n} && php artisan schedule:run >> /dev/null 2>&1",
        "/usr/bin/pg_dump -Fc shop{n} > /backup/shop-$(date +\\%F).dump",
        "test -x /opt/tool{n} && /opt/tool{n} -q",
        "flock -n /tmp/job{n}.lock /opt/job.py --shard {n} 2>&1 | logger -t job{n}",
        "/usr/bin/find /var/tmp/{n} -mtime +7 -delete",
        "mail -s 'Report {n}' ops@example.org%Dear team,%all is well.",
        "/opt/venv/bin/python -m reports.daily --tenant={n}",
    ]
    lines = ["SHELL=/bin/sh", 'PATH="/usr/local/bin:/usr/bin:/bin"', "MAILTO=''", ""]
    for n in range(200):
        if n == 100:
            lines += ["", "# from here on as the people in the office read the clock",
                      "CRON_TZ=Europe/Berlin"]  # fmt: skip
        command = choose.choice(commands).format(n=n)
        space = choose.choice([" ", "  ", "\t"])
        lines.append(f"{shapes[n % len(shapes)]()}{space}{command}")
    return "\n".join([*lines, ""])


def test_two_hundred_lines_of_real_shapes(evenbeat: Command, tmp_path: Path) -> None:
    text = realistic_crontab()
    (tmp_path / "crontab").write_text(text)
    command = ("import", "crontab", "crontab", "--timezone", "UTC", "--json")
    plan = done(evenbeat(*command)).json
    assert len(plan["plan"]) == 200
    assert plan["needs_a_look"] == []
    assert done(evenbeat(*command, "--apply")).json["added"] == 200

    jobs = {job["description"]: job for job in jobs_of(evenbeat)}
    assert len({job["name"] for job in jobs.values()}) == len(jobs) == 200
    zone, checked, plans = "UTC", 0, 0
    for line in text.splitlines():
        if line.startswith("CRON_TZ"):
            zone = "Europe/Berlin"
        if (job := jobs.get(line.strip())) is not None:
            fields = 1 if line.startswith("@") else 5
            moments = original(" ".join(line.split()[:fields]), zone)
            assert imported(job["schedule"], job["timezone"]) == moments, line
            checked, plans = checked + 1, plans + len(moments)
    assert checked == 200
    assert plans > 100_000
    assert set(actions(evenbeat(*command)).values()) == {"unchanged"}


# -- importing again -----------------------------------------------------------------------------


def test_importing_again_adds_changes_and_keeps(evenbeat: Command, tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    command = ("import", "crontab", "crontab", "--json")
    file.write_text("0 1 * * * /opt/a\n0 2 * * * /opt/b\n0 3 * * * /opt/c\n")
    done(evenbeat(*command, "--apply"))
    names = {job["description"][-1]: job["name"] for job in jobs_of(evenbeat)}
    done(evenbeat("job", "edit", names["a"], "--priority", "70", "--tag", "mine", "--tag",
                  f"imported:crontab:{file}"))  # fmt: skip

    file.write_text("0 1 * * * /opt/a\n\n30 2 * * * /opt/b\n0 4 * * * /opt/d\n")
    shown = evenbeat(*command)
    assert actions(shown) == {"line 1": "unchanged", "line 3": "change", "line 4": "add"}
    assert shown.json["plan"][1]["changes"].keys() == {"schedule", "timezone", "description"}
    (gone,) = shown.json["needs_a_look"]
    assert gone["where"] == "gone"
    assert f"evenbeat job delete {names['c']}" in gone["why"]

    applied = done(evenbeat(*command, "--apply")).json
    assert (applied["added"], applied["changed"], applied["unchanged"]) == (1, 1, 1)
    jobs = {job["name"]: job for job in jobs_of(evenbeat)}
    assert len(jobs) == 4
    assert jobs[names["a"]]["priority"] == 70
    assert jobs[names["b"]]["schedule"] == "30 2 * * *"
    assert jobs[names["b"]]["description"] == "30 2 * * * /opt/b"
    assert set(actions(evenbeat(*command)).values()) == {"unchanged"}


def test_among_many_jobs_only_the_meant_ones_are_looked_up(
    evenbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_import, "_FEW", 0)
    (tmp_path / "crontab").write_text("@daily /opt/a\n@daily /opt/b\n")
    (tmp_path / "jobs.json").write_text(json.dumps([{"name": "n", "task": "t"}, {"task": "u"}]))
    for command in (("crontab", "crontab"), ("json", "jobs.json")):
        assert done(evenbeat("import", *command, "--apply")).out == "2 added.\n"
        assert done(evenbeat("import", *command, "--apply")).out == "2 unchanged.\n"
    (tmp_path / "crontab").write_text("@daily /opt/a\n")
    assert "gone: @daily /opt/b" in done(evenbeat("import", "crontab", "crontab")).out


def test_balance_and_back(evenbeat: Command, tmp_path: Path) -> None:
    (tmp_path / "crontab").write_text(
        "0 * * * * /opt/a\n0 0 * * * /opt/b\n0 */6 * * * /opt/c\n*/5 * * * * /opt/d\n"
        "30 9 * * 1-5 /opt/e\n"
    )
    command = ("import", "crontab", "crontab")
    shown = done(evenbeat(*command, "--balance"))
    assert "in a balanced place" in shown.out
    assert "stays cron: it names certain days" in shown.out
    done(evenbeat(*command, "--balance", "--apply"))
    every = {job["description"][-1]: job["interval_seconds"] for job in jobs_of(evenbeat)}
    minutes = {name: seconds and seconds // 60 for name, seconds in every.items()}
    assert minutes == {"a": 60, "b": 1440, "c": 360, "d": 5, "e": None}
    placed = [job["placement"] for job in jobs_of(evenbeat) if job["schedule_kind"] == "interval"]
    assert placed == ["balanced"] * 4
    assert len(set(actions(evenbeat(*command, "--balance", "--json")).values())) == 1
    assert list(actions(evenbeat(*command, "--json")).values()).count("change") == 4
    written = {job["description"][-1]: older_words(job) for job in jobs_of(evenbeat)}
    balanced = {
        "a": (60, "minutes", "0 * * * *"),
        "b": (1440, "minutes", "0 0 * * *"),
        "c": (360, "minutes", "0 */6 * * *"),
        "d": (5, "minutes", "*/5 * * * *"),
        "e": (None, None, "30 9 * * 1-5"),
    }
    assert written == balanced
    done(evenbeat(*command, "--apply"))
    assert {job["schedule_kind"] for job in jobs_of(evenbeat)} == {"cron"}
    assert {older_words(job)[:2] for job in jobs_of(evenbeat)} == {(None, None)}
    done(evenbeat(*command, "--balance", "--apply"))  # as a change it says the same
    written = {job["description"][-1]: older_words(job) for job in jobs_of(evenbeat)}
    assert written == balanced


def older_words(job: dict[str, Any]) -> tuple[Any, ...]:
    return job["interval_minutes"], job["interval_type"], job["schedule_time"]


def test_a_job_of_that_name_that_came_from_elsewhere_is_left_alone(
    evenbeat: Command, tmp_path: Path
) -> None:
    (tmp_path / "one").write_text("@daily /opt/a\n")
    (tmp_path / "two").write_text("@weekly /opt/a\n@daily /opt/b\n")
    done(evenbeat("import", "crontab", "one", "--apply"))
    shown = evenbeat("import", "crontab", "two", "--json", "--apply")
    assert actions(shown) == {"line 2": "add"}
    assert "was not imported from here" in shown.json["needs_a_look"][0]["why"]
    assert sorted(job["schedule"] for job in jobs_of(evenbeat)) == ["@daily", "@daily"]


@pytest.mark.timeout(30)
def test_yaml_that_multiplies_is_refused_at_once(evenbeat: Command, tmp_path: Path) -> None:
    lines = ["- &a0 {task: t, name: n}"]
    lines += [f"- &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 10)]
    (tmp_path / "jobs.yaml").write_text("\n".join(lines))
    said = evenbeat("import", "yaml", "jobs.yaml")
    assert said.code == 2
    assert "more than 2,000,000 parts" in said.err


def test_odd_lines_are_told_and_the_rest_is_imported(evenbeat: Command, tmp_path: Path) -> None:
    (tmp_path / "crontab").write_text("@reboot /opt/x\n61 * * * * /opt/y\n@daily /opt/z\n")
    said = done(evenbeat("import", "crontab", "crontab", "--apply"))
    assert said.out.startswith("1 added.")
    assert "Needs manual review\n  line 1: @reboot /opt/x\n" in said.out
    assert "line 2: 61 * * * * /opt/y" in said.out


def test_nothing_is_asked_of_wrong_input(evenbeat: Command, tmp_path: Path) -> None:
    (tmp_path / "crontab").write_text("@daily x\n")
    for arguments, told in (
        (("crontab", "none"), "none cannot be read: No such file"),
        (("crontab", "crontab", "--timezone", "Nowhere"), "'Nowhere' is not a time zone"),
        (("celery", "no_such_module"), "There is no module 'no_such_module'"),
        (("apscheduler", "sqlite:///x"), "If you know who can write into this store"),
        (("apscheduler", "sqlite:///x", "--trust"), "sqlite:///x cannot be read"),
        (("json", "crontab"), "crontab is not JSON"),
        (("yaml", "crontab"), "crontab is not YAML"),
    ):
        said = evenbeat("import", *arguments, "--apply")
        assert said.code == 2, arguments
        assert told in said.err


def ended_run(evenbeat: Command, job: str) -> dict[str, Any]:
    """The first run of a job, as soon as it is over."""

    def run() -> dict[str, Any] | None:
        runs = done(evenbeat("job", "logs", job, "--json")).json["executions"]
        return next((run for run in runs[:1] if run["status"] != "running"), None)

    return wait_for(run, f"a run of {job}") or {}


def test_an_imported_line_runs_as_cron_would_run_it(
    evenbeat: Command, tmp_path: Path, database_url: str
) -> None:
    (tmp_path / "crontab").write_text(
        "GREETING='hello  there'\nSHELL=/bin/bash\n"
        f'@daily cd {tmp_path} && [[ $0 = */bash ]] && (echo "$GREETING" 100\\%; cat) > out%a%b\n'
    )
    done(evenbeat("import", "crontab", "crontab", "--apply"))
    (job,) = jobs_of(evenbeat)
    with Evenbeat(
        database_url,
        allow_shell=True,
        shell_commands=("/bin/bash",),
        shell_variables=("GREETING", "SHELL"),
        poll_seconds=0.1,
    ) as app:
        app.include_builtins()
        worker = app.worker()
        worker.start()
        done(evenbeat("job", "run", job["name"], "--yes"))
        run = ended_run(evenbeat, job["name"])
        worker.stop(grace=0)
    assert run["status"] == "completed", run
    assert (tmp_path / "out").read_text() == "hello  there 100%\na\nb\n"


# -- Celery and APScheduler ----------------------------------------------------------------------

CELERY = """\
from celery import Celery
from celery.schedules import crontab

app = Celery("shop", broker="amqp://nobody@127.0.0.1:1//")

@app.task(shared=False)
def sync(source, full=False): ...

app.conf.beat_schedule = {
    "sync nightly": {
        "task": "shop_beat.sync", "schedule": crontab(hour=3, minute=0), "args": ("a",),
    },
    "sync hourly": {"task": "shop_beat.sync", "schedule": 3600.0, "kwargs": {"source": "b"}},
    "odd": {"task": "shop_beat.sync", "schedule": crontab(day_of_month=13, day_of_week=5)},
}
"""


def test_celery_needs_no_broker(evenbeat: Command, tmp_path: Path) -> None:
    (tmp_path / "shop_beat.py").write_text(CELERY)
    command = ("import", "celery", "shop_beat", "--json")
    shown = evenbeat(*command, "--apply")
    assert actions(shown) == {"sync hourly": "add", "sync nightly": "add"}
    assert [look["where"] for look in shown.json["needs_a_look"]] == ["odd"]
    jobs = {job["name"]: job for job in jobs_of(evenbeat)}
    assert jobs["sync nightly"]["payload"] == {"source": "a"}
    assert jobs["sync nightly"]["task"] == "shop_beat.sync"
    assert jobs["sync nightly"]["tags"] == ["imported:celery:shop_beat"]
    assert jobs["sync hourly"]["interval_seconds"] == 3600
    assert set(actions(evenbeat(*command, "--apply")).values()) == {"unchanged"}
    assert set(actions(evenbeat("import", "celery", "shop_beat.py:app", "--json")).values()) <= {
        "add"
    }  # another origin: nothing of the first is touched


def test_a_broken_module_is_shown_where_it_breaks(evenbeat: Command, tmp_path: Path) -> None:
    (tmp_path / "broken_beat.py").write_text("1 / 0\n")
    said = evenbeat("import", "celery", "broken_beat:app")
    assert said.code == 2
    assert "ZeroDivisionError" in said.err
    (tmp_path / "half_beat.py").write_text(
        "from celery import Celery\napp = Celery(config_source='no_such_settings')\n"
    )
    said = evenbeat("import", "celery", "half_beat:app")
    assert said.code == 2
    assert "half_beat cannot be imported, see above" in said.err


def test_apscheduler_only_with_trust(evenbeat: Command, tmp_path: Path) -> None:
    trigger = CronTrigger(hour=4, timezone="Europe/Berlin")
    state = {"func": "shop:sync", "trigger": trigger, "args": (), "kwargs": {"a": 1}, "name": "s"}
    store = sqlite3.connect(tmp_path / "jobs.sqlite")
    store.execute("CREATE TABLE my_jobs (id, next_run_time, job_state)")
    store.execute("INSERT INTO my_jobs VALUES ('nightly', 1, ?)", [pickle.dumps(state)])
    store.commit()
    store.close()
    command = ("import", "apscheduler", "sqlite:///jobs.sqlite", "--table", "my_jobs", "--json")
    assert evenbeat(*command).code == 2
    assert actions(evenbeat(*command, "--trust", "--apply")) == {"nightly": "add"}
    (job,) = jobs_of(evenbeat)
    assert (job["task"], job["payload"], job["schedule"], job["timezone"]) == (
        "sync", {"a": 1}, "0 4 * * *", "Europe/Berlin"
    )  # fmt: skip
    assert actions(evenbeat(*command, "--trust", "--apply")) == {"nightly": "unchanged"}


# -- there and back ------------------------------------------------------------------------------

EVERY_FIELD: list[dict[str, Any]] = [
    {
        "name": "all of it",
        "scope": {"kind": "tenant", "id": "7"},
        "description": "Größe\nzwei",
        "tags": ["a", "b"],
        "metadata": {"owner": {"team": 5}},
        "task": "t",
        "payload": {"deep": [1, {"er": None}], "text": "ä 🎉", "number": 1.5, "no": "off"},
        "queue": "slow",
        "priority": 70,
        "schedule": "0 9 * * mon-fri",
        "timezone": "Europe/Berlin",
        "window": "Mon-Fri 09:00-17:00 Europe/Berlin",
        "schedule_delay": "90s",
        "catch_up": "every_plan",
        "catch_up_window": "2h",
        "max_plans_per_tick": 3,
        "max_retries": 7,
        "retry_backoff": 5,
        "retry_cap": 50,
        "retry_jitter": 0.5,
        "retry_delays": ["10s", "1m"],
        "on_failure": "stop",
        "timeout": "1h",
        "lease": "2m",
        "heartbeat": "15s",
        "cost": "1.5s",
        "allow_stale_reentry": False,
        "paused": True,
    },
    {"name": "balanced", "task": "t", "schedule": "@every 1h"},
    {"name": "grid", "task": "t", "schedule": "@every 20m", "placement": "grid"},
    {"name": "pinned", "task": "t", "interval_minutes": 2, "interval_type": "days",
     "placement": "pinned", "anchor_at": "2026-01-01T03:04:05Z"},
    {"name": "named", "task": "t", "schedule": "@weekly"},
    {"task": "t", "payload": {"nameless": 1}, "run_at": "2100-01-01T00:00:00Z"},
    {"task": "t", "payload": {"nameless": 2}, "schedule": "@every 90s"},
    {"task": "t", "payload": {"nameless": 2}, "schedule": "@every 90s"},
    {"task": "t", "dedup_key": "k", "delay": "1d"},
    {"task": "t"},
]  # fmt: skip
RUN_TIME = {
    "id", "created_at", "updated_at", "placed_at", "paused_at", "next_run_at", "schedule_text",
}  # fmt: skip


def definition(job: dict[str, Any]) -> dict[str, Any]:
    """A job without what comes about by itself; a plan is asked for only where nothing recurs."""
    asked = job["schedule_kind"] == "once" and job["status"] != "pending"
    left_out = RUN_TIME if asked else RUN_TIME | {"plan_time"}
    return {name: value for name, value in job.items() if name not in left_out}


def definitions(evenbeat: Command) -> list[dict[str, Any]]:
    jobs = map(definition, jobs_of(evenbeat))
    return sorted(jobs, key=lambda job: json.dumps(job, sort_keys=True))


def emptied(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("TRUNCATE evenbeat.jobs")


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_is_exported_comes_back(
    evenbeat: Command, tmp_path: Path, database_url: str, form: str
) -> None:
    (tmp_path / "jobs.json").write_text(json.dumps(EVERY_FIELD))
    done(evenbeat("import", "json", "jobs.json", "--apply"))
    before = definitions(evenbeat)
    assert len(before) == len(EVERY_FIELD)
    whole = next(job for job in before if job["name"] == "all of it")
    assert (whole["retry_cap"], whole["retry_jitter"]) == (50, 0.5)
    assert (whole["heartbeat"], whole["lease"], whole["cost"]) == (15, 120, 1.5)
    with psycopg.connect(database_url) as connection:  # aging and running are no definition
        connection.execute("UPDATE evenbeat.jobs SET priority = 80, aging_bonus = 10, "
                           "run_count = 5 WHERE name = 'all of it'")  # fmt: skip
    said = done(evenbeat("export", "--format", form, "--out", "out"))
    assert "10 jobs written into out." in said.err
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0

    emptied(database_url)
    first = done(evenbeat("import", form, "out", "--apply"))
    assert first.out.startswith("10 added.")
    assert definitions(evenbeat) == before
    assert set(actions(evenbeat("import", form, "out", "--json")).values()) == {"unchanged"}
    again = done(evenbeat("import", form, "out", "--apply"))
    assert again.out == "10 unchanged.\n"
    assert definitions(evenbeat) == before
    assert done(evenbeat("export", "--format", form)).out == (tmp_path / "out").read_text()


def test_a_file_changes_what_it_says_and_no_more(evenbeat: Command, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(EVERY_FIELD[:2]))
    done(evenbeat("import", "json", "jobs.json", "--apply"))
    name, scope = EVERY_FIELD[0]["name"], EVERY_FIELD[0]["scope"]
    changed = {"name": name, "scope": scope, "task": "t", "schedule": "@every 2h",
               "timeout": "30m", "tags": ["c"], "paused": False}  # fmt: skip
    file.write_text(json.dumps([changed]))
    applied = done(evenbeat("import", "json", "jobs.json", "--apply", "--json")).json
    assert applied["changed"] == 1
    assert applied["plan"][0]["changes"].keys() == {"schedule", "timeout", "tags", "paused"}
    job = next(job for job in jobs_of(evenbeat) if job["name"] == name)
    assert (job["schedule"], job["timeout"], job["tags"]) == ("@every 2h", 1800, ["c"])
    assert (job["is_paused"], job["max_retries"], job["description"]) == (False, 7, "Größe\nzwei")
    assert actions(evenbeat("import", "json", "jobs.json", "--json")) == {"job 1": "unchanged"}


def test_one_wrong_job_keeps_all_out(evenbeat: Command, tmp_path: Path) -> None:
    for wrong, told in (
        ({"task": "t", "nmae": "x"}, "job 2: there is no field 'nmae'"),
        ({"name": "x"}, "job 2: A job needs a task"),
        ({"task": "t", "schedule": "often"}, "job 2: 'often' is not a schedule"),
        ({"task": "t", "priority": 101}, "job 2: priority: "),
        ({"task": "t", "schedule": "1h", "interval_seconds": 5}, "job 2: schedule and interval"),
        ({"task": "t", "payload": {"x": "\x00"}}, "job 2: payload: it contains"),
    ):
        (tmp_path / "jobs.json").write_text(json.dumps([{"task": "t"}, wrong]))
        said = evenbeat("import", "json", "jobs.json", "--apply")
        assert said.code == 2, wrong
        assert told in said.err
    assert jobs_of(evenbeat) == []


def test_export_leaves_out_what_has_ended_unless_asked(
    evenbeat: Command, tmp_path: Path, store: Store
) -> None:
    rows = [{"name": n, "task": "t", "schedule": "@every 1h", "tags": [n]} for n in "ab"]
    (tmp_path / "jobs.yaml").write_text(json.dumps(rows))
    done(evenbeat("import", "yaml", "jobs.yaml", "--apply"))
    done(evenbeat("job", "cancel", "b", "--yes"))

    def names(*options: str) -> list[str]:
        return [job["name"] for job in done(evenbeat("export", *options)).json["jobs"]]

    assert names() == ["a"]
    assert names("--status", "cancelled") == ["b"]
    assert names("--tag", "b", "--status", "cancelled,scheduled") == ["b"]
    assert names("--search", "nothing") == []
    assert evenbeat("export", "--format", "xml").code == 2
    said = evenbeat("export", "--out", "no/such/place")
    assert (said.code, "cannot be written: No such file" in said.err) == (2, True)


def test_a_file_larger_than_one_request(evenbeat: Command, tmp_path: Path) -> None:
    rows = [{"name": f"n{n}", "task": "t", "schedule": "@every 1h"} for n in range(1200)]
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": rows}))
    assert done(evenbeat("import", "json", "jobs.json", "--apply")).out == "1,200 added.\n"
    assert done(evenbeat("import", "json", "jobs.json", "--apply")).out == "1,200 unchanged.\n"
    assert len(done(evenbeat("export")).json["jobs"]) == 1200


# -- over a service ------------------------------------------------------------------------------


def test_the_same_over_a_service(evenbeat: Command, service: str, tmp_path: Path) -> None:
    (tmp_path / "crontab").write_text("0 1 * * * /opt/a\n0 2 * * * /opt/b\n")
    command = ("import", "crontab", "crontab", "--url", service, "--json")
    assert done(evenbeat(*command, "--apply")).json["added"] == 2
    (tmp_path / "crontab").write_text("0 1 * * * /opt/a\n5 2 * * * /opt/b\n")
    assert actions(evenbeat(*command, "--apply")) == {"line 1": "unchanged", "line 2": "change"}
    remote = done(evenbeat("export", "--url", service)).out
    assert remote == done(evenbeat("export")).out
    assert evenbeat("export", "--url", service, "--token", "wrong").code == 5

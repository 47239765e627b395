"""Crontabs: what each line becomes, and what is left to a person."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.api.requests import JobCreate, new_job
from evenbeat.domain.job import JobSpec
from evenbeat.domain.setting_kinds import check_name
from evenbeat.errors import InvalidInput
from evenbeat.importers.crontab import is_system, local_timezone, read_crontab, slug
from evenbeat.importers.source import Balance, ImportSource


def read(text: str, **options: Any) -> ImportSource:
    given = {"origin": "/home/ann/crontab", "timezone": "UTC", "user": "ann"} | options
    return read_crontab(text, **given)


def only(text: str, **options: Any) -> dict[str, Any]:
    source = read(text, **options)
    assert len(source.jobs) == 1, source
    return source.jobs[0].document


def look(text: str, **options: Any) -> str:
    source = read(text, **options)
    assert not source.jobs
    assert len(source.reviews) == 1, source.reviews
    return source.reviews[0].why


# -- lines ---------------------------------------------------------------------------------------


def test_a_line_becomes_a_job_of_the_shell_task() -> None:
    job = only("30 2 * * mon-fri  /opt/backup --all   --to  nas ")
    assert job.pop("name").startswith("backup-all-to-nas-")
    assert job == {
        "description": "30 2 * * mon-fri  /opt/backup --all   --to  nas",
        "tags": ["imported:crontab:/home/ann/crontab"],
        "task": "shell",
        "payload": {"command": "/opt/backup --all   --to  nas"},
        "schedule": "30 2 * * mon-fri",
        "timezone": "UTC",
        "max_retries": 0,
    }


@pytest.mark.parametrize(
    ("line", "schedule"),
    [
        ("@daily x", "@daily"),
        ("@Hourly x", "@hourly"),
        ("@midnight x", "@midnight"),
        ("\t*/5\t*\t*\t*\t*\tx", "*/5 * * * *"),
        ("0 4 1-7 * 0 x", "0 4 1-7 * 0"),
        ("0 4 * JAN,jul Sun x", "0 4 * JAN,jul Sun"),
        ("-*/15 * * * * x", "*/15 * * * *"),
        ("0 0 1 1 7 x\r", "0 0 1 1 7"),
    ],
)
def test_schedules_are_kept_as_they_are(line: str, schedule: str) -> None:
    assert only(line)["schedule"] == schedule


def test_comments_and_empty_lines_say_nothing() -> None:
    assert read("# m h dom mon dow command\n\n   # 0 * * * * x\n \t\n") == ImportSource(
        tag="imported:crontab:/home/ann/crontab"
    )
    assert only("0 0 * * * x # not a comment")["payload"]["command"] == "x # not a comment"


@pytest.mark.parametrize(
    ("command", "becomes", "reads"),
    [
        (r"date +\%F", "date +%F", None),
        ("mail ann%Hello%there", "mail ann", "Hello\nthere\n"),
        (r"wall%100\% done", "wall", "100% done\n"),
        ("cat%", "cat", "\n"),
    ],
)
def test_percent_signs_end_the_command(command: str, becomes: str, reads: str | None) -> None:
    payload = only(f"0 0 * * * {command}")["payload"]
    assert payload["command"] == becomes
    assert payload.get("stdin") == reads


def test_the_environment_holds_from_its_line_on() -> None:
    source = read(
        """\
0 0 * * * first
PATH=/usr/bin:/bin
 GREETING = "hello  world"
MAILTO=""
'QUOTED' = it
0 0 * * * second
PATH=/bin
0 0 * * * third
"""
    )
    first, second, third = (job.document["payload"].get("env") for job in source.jobs)
    assert first is None
    assert second == {"PATH": "/usr/bin:/bin", "GREETING": "hello  world", "QUOTED": "it"}
    assert third == second | {"PATH": "/bin"}
    assert [remark.where for remark in source.remarks] == [
        "line 2", "line 3", "line 4", "line 5", "line 7"
    ]  # fmt: skip
    assert not source.reviews


def test_another_shell_is_called_as_cron_calls_it() -> None:
    assert only("SHELL=/bin/bash\n0 0 * * * echo {1..3}")["payload"] == {
        "command": ["/bin/bash", "-c", "echo {1..3}"],
        "env": {"SHELL": "/bin/bash"},
    }
    assert only("SHELL=/bin/sh\n0 0 * * * x")["payload"]["command"] == "x"


def test_time_zones_hold_from_their_line_on_and_cron_tz_goes_first() -> None:
    source = read(
        """\
@daily a
TZ=:Asia/Tokyo
@daily b
CRON_TZ=Europe/Berlin
@daily c
TZ=America/Lima
@daily d
""",
        timezone="Europe/Paris",
    )
    zones = [job.document["timezone"] for job in source.jobs]
    assert zones == ["Europe/Paris", "Asia/Tokyo", "Europe/Berlin", "Europe/Berlin"]
    assert source.jobs[2].document["payload"]["env"] == {"TZ": ":Asia/Tokyo"}


def test_a_comment_tells_how_long_the_next_entry_takes() -> None:
    source = read("# duration: 5m\n@daily a\n@daily b")
    assert [job.document.get("cost") for job in source.jobs] == [300.0, None]


# -- needs manual review -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("@reboot /opt/warm-up", "@reboot asks for a run when the machine starts"),
        ("61 * * * * x", "its minute field is wrong, which allows 0-59"),
        ("0 0 30 2 * x", "a day that the chosen months have"),
        ("0 0 * * *", "is no crontab entry"),
        ("hello world", "is no crontab entry: five time fields and a command"),
        ("@fortnightly x", "is not a named schedule"),
        ("@every_minute x", "is not a named schedule"),
        ("0~59 3 * * * x", "asks for a random minute"),
        ("0 0 * * fri-mon x", "a range must ascend"),
        ("CRON_TZ=Mars/Base\n@daily x", "'Mars/Base' is not a time zone"),
        ("MAILTO=ops@example.org", "Evenbeat sends no mail"),
        ('"A B"=c', "'A B' is no variable"),
        ("# duration: soon", "soon"),
        ("0 0 * * * %only input", "no command before its first %"),
        ("0 0 * * * root /opt/x", "Is this a system crontab? Give --system"),
        ("0 0 * * * x\x00y", "U+0000"),
        ("X=\x00", "U+0000"),
    ],
)
def test_what_cannot_be_imported_is_told_with_its_line(text: str, why: str) -> None:
    assert why in look(text)
    number = 1 + text.count("\n")
    assert read(f"\n\n{text}").reviews[0].where == f"line {number + 2}"


def test_one_odd_line_keeps_no_other_from_being_read() -> None:
    source = read("61 * * * * a\n@daily b\n@reboot c\n@hourly d")
    assert [job.where for job in source.jobs] == ["line 2", "line 4"]
    assert [one.where for one in source.reviews] == ["line 1", "line 3"]


FIELD = st.text("0123456789*/-,LW#~ \tmonfriJAN", max_size=8)
LINE = st.one_of(
    st.text(max_size=60),
    st.builds(lambda fields, rest: " ".join([*fields, rest]), st.lists(FIELD), st.text()),
    st.builds(lambda name, value: f"{name}={value}", st.text(max_size=9), st.text(max_size=30)),
    st.builds(lambda name, rest: f"@{name} {rest}", st.sampled_from(["daily", "reboot", "x"]),
              st.text()),
)  # fmt: skip


@given(st.lists(LINE, max_size=6), st.booleans(), st.booleans())
def test_any_text_is_read_and_what_is_found_can_be_added(
    written: list[str], system: bool, balance: bool
) -> None:
    source = read("\n".join(written), system=system, balance=Balance(balance))
    for job in source.jobs:
        request = JobCreate.model_validate(job.document)
        assert new_job(request, JobSpec(task="shell"), {}, "import").name
    assert len({job.document["name"] for job in source.jobs}) == len(source.jobs)


# -- system crontabs -----------------------------------------------------------------------------


def test_lines_of_other_users_are_set_aside() -> None:
    text = "0 0 * * * root /opt/a\n@daily\twww-data\tphp  /opt/b"
    source = read(text, system=True, user="www-data")
    assert [job.document["payload"]["command"] for job in source.jobs] == ["php  /opt/b"]
    assert "It runs as root" in source.reviews[0].why
    assert "--user root" in source.reviews[0].why


def test_a_user_alone_is_no_command() -> None:
    assert "has a user or a command, but not both" in look("0 0 * * * backup", system=True)


def test_the_place_tells_system_crontabs() -> None:
    assert is_system(Path("/etc/crontab"))
    assert is_system(Path("/etc/cron.d/certbot"))
    assert not is_system(Path("/var/spool/cron/crontabs/ann"))


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("cd / && run-parts --report /etc/cron.hourly", "run-parts-report-cron.hourly"),
        ("test -x /a || { cd / && run-parts /etc/cron.daily; }", "run-parts-cron.daily"),
        ("[ -x /a ] && /opt/b -q >/dev/null 2>&1", "b-q"),
        ("/usr/bin/pg_dump -Fc shop > /backup/shop", "pg_dump-Fc-shop"),
        ("***", "command"),
        ("cd /x", "cd-x"),
        ("größe --neu", "größe-neu"),
        ("x" * 500, "x" * 48),
    ],
)
def test_names_say_what_a_command_does(command: str, words: str) -> None:
    assert slug(command) == words
    check_name("name", only(f"@daily {command}")["name"])


def test_names_depend_on_the_command_alone() -> None:
    name = only("0 1 * * * /opt/a")["name"]
    assert only("\n\n# more\nX=1\n30 5 * * sun /opt/a")["name"] == name
    assert only("0 1 * * * /srv/a")["name"] != name
    twice = [job.document["name"] for job in read("@daily /opt/a\n@weekly /opt/a").jobs]
    assert twice == [name, f"{name}-2"]


def test_a_comma_in_a_path_does_not_part_the_tag() -> None:
    assert read("", origin="/a,b").tag == "imported:crontab:/a_b"


def test_a_long_path_makes_a_tag_that_can_be_stored() -> None:
    tags = [read("", origin=f"/{'x' * 300}{end}").tag or "" for end in "ab"]
    assert len(set(tags)) == 2
    for tag in tags:
        check_name("tag", tag)


# -- balance -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "minutes"),
    [
        ("0 * * * *", 60),
        ("0 0 * * *", 1440),
        ("0 */6 * * *", 360),
        ("*/5 * * * *", 5),
        ("@hourly", 60),
        ("@daily", 1440),
        ("0,30 * * * *", 30),
        ("* * * * *", 1),
        ("@weekly", 7 * 1440),
    ],
)
def test_simple_cron_becomes_a_balanced_interval(expression: str, minutes: int) -> None:
    (job,) = read(f"{expression} x", balance=Balance(intervals=True)).jobs
    every = job.document["schedule"].removeprefix("@every ")
    units = {"m": 1, "h": 60, "d": 1440}
    assert int(every[:-1]) * units[every[-1]] == minutes
    assert "timezone" not in job.document
    assert job.remark == f"was {expression}"


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("30 9 * * *", "it names a time of day"),
        ("15 * * * *", "it names a minute of the hour"),
        ("0 0 * * 1-5", "it names certain days"),
        ("0 0 * * 3", "it names certain days"),
        ("@monthly", "it names certain days"),
        ("*/7 * * * *", "its runs are not evenly spaced, or do not start at midnight"),
    ],
)
def test_other_cron_stays_and_says_why(expression: str, why: str) -> None:
    (job,) = read(f"{expression} x", balance=Balance(intervals=True)).jobs
    assert job.document["schedule"] == expression
    assert job.remark == f"stays cron: {why}"


# -- this machine --------------------------------------------------------------------------------


def test_the_time_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert local_timezone() == "Europe/Berlin"
    monkeypatch.setenv("TZ", ":Etc/UTC")
    assert local_timezone() == "UTC"
    monkeypatch.setenv("TZ", "nowhere")
    noon = datetime(2026, 7, 1, tzinfo=UTC)
    assert noon.astimezone(ZoneInfo(local_timezone())) == noon


def test_a_wrong_time_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Nowhere"):
        read("@daily x", timezone="Nowhere")

"""Settings: where they come from, what they refuse, and what they say then."""

from pathlib import Path

import pytest

from evenbeat import Evenbeat
from evenbeat.errors import InvalidSettings
from evenbeat.settings import Settings, load_settings, setting_name


@pytest.fixture(autouse=True)
def _nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory and no variable of ours."""
    monkeypatch.chdir(tmp_path)
    for name in (*Settings.model_fields, "config"):
        monkeypatch.delenv(f"EVENBEAT_{setting_name(name).upper()}", raising=False)


def refusal(**overrides: object) -> str:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(**overrides)
    message = str(caught.value)
    assert "pydantic" not in message
    assert "Value error" not in message
    return message


def test_defaults() -> None:
    settings = load_settings()
    values = settings.model_dump(exclude={"data_dir"})
    assert values == {
        "database_url": None,
        "embedded": True,
        "db_schema": "evenbeat",
        "migrate": True,
        "read_url": None,
        "database_timeout_seconds": 30,
        "pooling": "auto",
        "listen_url": None,
        "lease_seconds": 30,
        "renew_seconds": 10,
        "concurrency": 100,
        "threads": 10,
        "child_processes": None,
        "recycle": (),
        "poll_seconds": 5,
        "reap_seconds": 5,
        "stop_seconds": 20,
        "retention_days": 30,
        "retention_executions": 100,
        "run_log_level": "info",
        "run_log_print": False,
        "run_log_days": 7,
        "audit_days": 365,
        "public_url": None,
        "smtp_url": None,
        "mail_from": "evenbeat@localhost",
        "balance_alert_score": 0.5,
        "catch_up_spread_seconds": 10_800,
        "max_payload_bytes": 262_144,
        "pool_size": 10,
        "auth_secret": None,
        "auth_public_key": None,
        "auth_issuer": None,
        "auth_audience": None,
        "auth_role_claim": "role",
        "trusted_proxies": ("127.0.0.1/32", "::1/128"),
        "metrics_public": False,
        "builtin_tasks": True,
        "allow_private_addresses": False,
        "allowed_networks": (),
        "http_header_variables": (),
        "crawl_user_agent": "Evenbeat",
        "crawl_processes": 4,
        "stale_days": 30,
        "allow_shell": False,
        "shell_commands": (),
        "shell_variables": (),
        "webhook_timeout_seconds": 15,
        "webhook_retry_delays": ("5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "24h"),
    }
    assert settings.data_dir.is_absolute()
    assert settings.server_dir == settings.data_dir / "postgres"


def test_arguments_beat_variables_beat_the_file_beats_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evenbeat.toml").write_text(
        'schema = "in_file"\nthreads = 1\npool_size = 2\npoll_seconds = 0.5\n'
    )
    monkeypatch.setenv("EVENBEAT_SCHEMA", "in_environment")
    monkeypatch.setenv("EVENBEAT_THREADS", "3")
    monkeypatch.setenv("EVENBEAT_POOL_SIZE", "")
    settings = load_settings(db_schema="as_argument", concurrency=None)
    assert settings.db_schema == "as_argument"
    assert settings.threads == 3
    assert settings.pool_size == 2
    assert settings.poll_seconds == 0.5
    assert settings.concurrency == 100
    assert load_settings().db_schema == "in_environment"
    assert load_settings(schema="short").db_schema == "short"
    monkeypatch.delenv("EVENBEAT_SCHEMA")
    assert load_settings().db_schema == "in_file"


def test_stale_days_go_by_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALE_DAYS", "7")
    assert load_settings().stale_days == 7
    monkeypatch.setenv("EVENBEAT_STALE_DAYS", "0")
    assert load_settings().stale_days == 0
    assert load_settings(stale_days=3).stale_days == 3
    monkeypatch.delenv("EVENBEAT_STALE_DAYS")
    monkeypatch.setenv("STALE_DAYS", "-1")
    with pytest.raises(InvalidSettings, match="STALE_DAYS=-1: it must be a whole number from 0"):
        load_settings()


def test_an_older_crawlers_minutes_are_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evenbeat.toml").write_text("lease_seconds = 50")
    monkeypatch.setenv("RESET_CRAWLING_AFTER_MIN", "")
    assert load_settings().lease_seconds == 50
    monkeypatch.setenv("RESET_CRAWLING_AFTER_MIN", "15")
    assert load_settings().lease_seconds == 900
    monkeypatch.setenv("EVENBEAT_LEASE_SECONDS", "40")
    assert load_settings().lease_seconds == 40
    monkeypatch.delenv("EVENBEAT_LEASE_SECONDS")
    for wrong in ("61", "0", "soon", "nan"):
        monkeypatch.setenv("RESET_CRAWLING_AFTER_MIN", wrong)
        assert refusal() == (
            f"RESET_CRAWLING_AFTER_MIN={wrong} (minutes of lease_seconds): it must be a number "
            "from 1 to 3600."
        )


def test_the_file_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "etc" / "beat.toml"
    elsewhere.parent.mkdir()
    elsewhere.write_text("threads = 7")
    (tmp_path / "evenbeat.toml").write_text("threads = 8")
    monkeypatch.setenv("EVENBEAT_CONFIG", str(elsewhere))
    assert load_settings().threads == 7
    monkeypatch.setenv("EVENBEAT_CONFIG", str(tmp_path / "missing.toml"))
    assert "missing.toml, the settings file, cannot be read: No such file" in refusal()


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    (tmp_path / "evenbeat.toml").write_text("threads: 7")
    assert refusal().startswith("evenbeat.toml, the settings file, is not TOML: ")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("pol_seconds = 1", "Did you mean poll_seconds?"),
        ('shema = "x"', "Did you mean schema?"),
        ("[worker]\nthreads = 1", "There are: database_url, embedded, schema, "),
    ],
)
def test_unknown_keys_in_the_file_are_refused(tmp_path: Path, line: str, hint: str) -> None:
    (tmp_path / "evenbeat.toml").write_text(line)
    message = refusal()
    assert "in evenbeat.toml, is not a setting" in message
    assert hint in message


def test_a_misspelt_variable_is_told_once_and_the_variables_of_others_are_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("evenbeat.settings._warned", set())
    for name in ("SERVICE_HOST", "PORT_80_TCP_ADDR", "URL", "JOB_ID", "DB_SCHEMA", "threads"):
        monkeypatch.setenv(f"EVENBEAT_{name}", "5")
    monkeypatch.setenv("EVENBEAT_DB_SCHEMA", "mine")
    monkeypatch.setenv("EVENBEAT_CONCURENCY", "5")
    for _ in range(2):
        load_settings()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "EVENBEAT_CONCURENCY" in record.getMessage()
    assert "Did you mean EVENBEAT_CONCURRENCY?" in record.getMessage()


def test_without_a_database_the_private_server_can_be_forbidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVENBEAT_EMBEDDED", "off")
    with pytest.raises(InvalidSettings) as caught:
        _ = Evenbeat().store
    assert "EVENBEAT_DATABASE_URL" in str(caught.value)
    assert "EVENBEAT_EMBEDDED is off" in str(caught.value)


def test_unknown_variables_are_ignored_and_unknown_arguments_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVENBEAT_TEST_DATABASE_URL", "postgresql://elsewhere/x")
    assert load_settings().database_url is None
    assert refusal(thread=1) == "thread, in an argument, is not a setting. Did you mean threads?"


def test_a_bad_value_is_named_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evenbeat.toml").write_text("poll_seconds = 'now'")
    rule = "it must be a number from 0.05 to 3600."
    assert refusal() == f"poll_seconds = now in evenbeat.toml: {rule}"
    monkeypatch.setenv("EVENBEAT_POLL_SECONDS", "often")
    assert refusal() == f"EVENBEAT_POLL_SECONDS=often: {rule}"
    assert refusal(poll_seconds=-1) == f"poll_seconds=-1: {rule}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", "1.5"),
        ("concurrency", "0"),
        ("threads", "1001"),
        ("lease_seconds", "nan"),
        ("reap_seconds", "inf"),
        ("stop_seconds", "-1"),
        ("retention_days", "0"),
        ("retention_executions", "-1"),
        ("max_payload_bytes", "10"),
        ("pool_size", "1"),
    ],
)
def test_bounds(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"EVENBEAT_{name.upper()}", value)
    assert refusal().startswith(f"EVENBEAT_{name.upper()}={value}: it must be a ")


@pytest.mark.parametrize("name", ["", "Evenbeat", "9lives", "a-b", "a" * 49, "pg_mine", 'x"; --'])
def test_a_schema_is_a_plain_identifier(name: str) -> None:
    assert "starting with a letter or _ and not with pg_" in refusal(db_schema=name)


def test_a_bad_schema_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("EVENBEAT_DB_SCHEMA", "EVENBEAT_SCHEMA"):
        monkeypatch.setenv(variable, "No")
        assert refusal().startswith(f"{variable}=No: it must be 1 to 48 of a-z")


def test_renewal_fits_into_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENBEAT_RENEW_SECONDS", "20")
    assert refusal().startswith(
        "EVENBEAT_RENEW_SECONDS=20 is too long for lease_seconds=30 (the default)"
    )
    assert load_settings(lease_seconds=41).renew_seconds == 20


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_database_url_hides_its_password(scheme: str) -> None:
    url = f"{scheme}://me:hunter2@db.example/app"
    settings = load_settings(database_url=url)
    assert settings.database_url
    assert settings.database_url.get_secret_value() == url
    assert "hunter2" not in f"{settings!r} {settings}"


def test_a_refused_database_url_stays_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evenbeat.toml").write_text('database_url = "mysql://me:hunter2@db/app"')
    in_file = refusal()
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", "mysql://me:hunter2@db/app")
    in_environment = refusal()
    assert in_environment.startswith("EVENBEAT_DATABASE_URL=…: it must be a URL such as postgresql")
    for message in (in_file, in_environment, refusal(database_url="mysql://me:hunter2@db/app")):
        assert "hunter2" not in message


def test_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENBEAT_DATA_DIR", "here")
    assert load_settings().data_dir == tmp_path / "here"
    assert load_settings(data_dir="~/beat").data_dir == Path.home() / "beat"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().threads = 3  # type: ignore[misc]


def test_every_setting_is_described() -> None:
    assert [name for name, info in Settings.model_fields.items() if not info.description] == []


@pytest.mark.parametrize(("written", "meant"), [("true", True), ("0", False), ("yes", True)])
def test_metrics_public_is_true_or_false(monkeypatch, written, meant):
    monkeypatch.setenv("EVENBEAT_METRICS_PUBLIC", written)
    assert load_settings().metrics_public is meant
    assert load_settings(metrics_public=not meant).metrics_public is not meant


def test_metrics_public_that_is_neither_says_what_it_may_be(monkeypatch):
    monkeypatch.setenv("EVENBEAT_METRICS_PUBLIC", "perhaps")
    with pytest.raises(InvalidSettings, match=r"METRICS_PUBLIC=perhaps: it must be true or false"):
        load_settings()

"""Every setting, and the only reader of the environment and of `evenbeat.toml`.

A value comes from the first place that has it: an argument of `load_settings`, a variable
`EVENBEAT_<NAME>`, the file (`EVENBEAT_CONFIG`, or `evenbeat.toml` in the working directory), the
default. An empty variable counts as not set.
"""

import difflib
import logging
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Le
from platformdirs import user_data_path
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.recycle import Recycle
from evenbeat.errors import InvalidSettings

logger = logging.getLogger(__name__)

PREFIX = "EVENBEAT_"
CONFIG_VARIABLE = "EVENBEAT_CONFIG"
CONFIG_FILE = "evenbeat.toml"

MIN_SECRET_BYTES = 32
"""HS256 requires a key of as many bytes as its hash has."""

# -- kinds of values -------------------------------------------------------------------------------


class Allowed(str):
    """What a kind of value may be, in words that follow "it must be"."""


def _require(is_valid: Callable[[Any], object]) -> AfterValidator:
    def check(value: Any) -> Any:
        if value is not None and not is_valid(value):
            raise ValueError  # what is allowed instead is said by the kind
        return value

    return AfterValidator(check)


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


DatabaseUrl = Annotated[
    SecretStr | None,
    _require(lambda url: url.get_secret_value().startswith(("postgresql://", "postgres://"))),
    Allowed(
        "a URL such as postgresql://user:password@localhost:5432/mydatabase, without '+psycopg' or "
        "the like after postgresql"
    ),
]
SmtpUrl = Annotated[
    SecretStr | None,
    _require(lambda url: re.match("smtps?://[^/]", url.get_secret_value())),
    Allowed("a URL such as smtp://user:password@mail.example.com:587, or smtps://"),
]
WebUrl = Annotated[
    str | None,
    _require(re.compile(r"https?://[^\s?#]+").fullmatch),
    AfterValidator(lambda url: url and url.rstrip("/")),
    Allowed("an http or https URL such as https://ops.example.com/evenbeat"),
]
Pooling = Annotated[
    Literal["auto", "session", "transaction"], Allowed("auto, session or transaction")
]
RunLogLevel = Annotated[
    Literal["off", "debug", "info", "warning", "error", "critical"],
    Allowed("off, debug, info, warning, error or critical"),
]
SchemaName = Annotated[
    str,
    _require(re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,47}").fullmatch),
    Allowed("1 to 48 of a-z, 0-9 and _, starting with a letter or _ and not with pg_"),
]
Directory = Annotated[
    Path, AfterValidator(lambda path: path.expanduser().absolute()), Allowed("a path")
]
SigningSecret = Annotated[
    SecretStr | None,
    _require(lambda secret: len(secret.get_secret_value().strip().encode()) >= MIN_SECRET_BYTES),
    Allowed(f"a text of at least {MIN_SECRET_BYTES} bytes, best a random one"),
]
PublicKey = Annotated[
    SecretStr | None, Allowed("a public key in PEM form, or the path of a file with one")
]
_SHORT = (Field(min_length=1, max_length=500), Allowed("a text of 1 to 500 characters"))
ShortText = Annotated[str, *_SHORT]
OptionalText = Annotated[str | None, *_SHORT]
NameList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Networks = Annotated[
    NameList,
    AfterValidator(lambda names: tuple(str(ip_network(name, strict=False)) for name in names)),
    Allowed("addresses or networks such as 10.1.0.0/16, separated by commas"),
]
VariableNames = Annotated[
    NameList,
    _require(
        lambda names: all(
            name.isidentifier() and not name.upper().startswith(PREFIX) for name in names
        )
    ),
    Allowed("names of variables, separated by commas, none of Evenbeat's own"),
]
CommandNames = Annotated[
    NameList,
    _require(lambda names: all("/" not in name or name.startswith("/") for name in names)),
    Allowed("names or absolute paths of commands, separated by commas, or *"),
]
Conditions = Annotated[
    NameList,
    _require(lambda names: Recycle.of(names) is not None),
    Allowed("held, memory=SIZE (at least 1MB) and runs=NUMBER, separated by commas"),
]
Delays = Annotated[
    NameList,
    Field(max_length=50),
    _require(lambda delays: all(parse_duration(one) <= timedelta(days=7) for one in delays)),
    Allowed("up to 50 durations of at most 7d, such as 5s,5m,30m,2h"),
]

# --------------------------------------------------------------------------------------------------


class Settings(BaseSettings):
    """The settings of an Evenbeat process. Made by `load_settings`, never changed."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    database_url: DatabaseUrl = None
    """The PostgreSQL database, as postgresql://user:password@host:port/name. Without it, an
    embedded server is started in data_dir."""
    embedded: bool = True
    """Whether the embedded server may stand in for a database URL. Turn it off in production, where
    a missing URL should be an error."""
    # `schema` is a method of every pydantic model, so the field needs a name of its own.
    db_schema: SchemaName = Field("evenbeat", validation_alias=f"{PREFIX}SCHEMA")
    """The PostgreSQL schema that holds Evenbeat's tables."""
    migrate: bool = True
    """Whether a process that needs a newer schema migrates it when it starts. If off, it does not
    start before `evenbeat migrate` was run."""
    database_timeout_seconds: float = Field(30, ge=0.1, le=3600)
    """How long a call waits for a database that is away before it fails."""
    pooling: Pooling = "auto"
    """What lies between Evenbeat and the server: auto finds out; transaction: a pooler such as
    PgBouncer in transaction mode, through which no settings or prepared statements outlast a
    transaction; session: nothing, or a pooler in session mode."""
    listen_url: DatabaseUrl = None
    """The database without the pooler in between, for the notifications that wake workers. Without
    it, workers behind a pooler look for due jobs every second."""
    read_url: DatabaseUrl = None
    """A replica of the database, for the lists and reports of the dashboard and the API and for
    metrics. While it does not answer or is more than 10 s behind, the database itself is read."""
    data_dir: Directory = Field(default_factory=lambda: user_data_path("evenbeat", appauthor=False))
    """The directory for this machine's data; the embedded server is in postgres/ below it. A
    relative path starts at the working directory. Default: the user's data directory."""

    lease_seconds: float = Field(30, ge=1, le=3600)
    """How long a claim holds without being renewed. RESET_CRAWLING_AFTER_MIN, in minutes, is read
    too."""
    renew_seconds: float = Field(10, ge=0.1, le=1800)
    """How often a worker renews its claims; less than half of lease_seconds."""
    concurrency: int = Field(100, ge=1, le=10_000)
    """How many jobs a worker runs at once, whatever their kind."""
    threads: int = Field(10, ge=1, le=1000)
    """How many of them may be plain functions, each in a thread."""
    child_processes: int | None = Field(None, ge=1, le=1000)
    """How many of them may be isolated, each in a process of its own. Default: one per CPU core."""
    recycle: Conditions = ()
    """When `evenbeat worker` and `serve` stop with grace and start anew by themselves: held (all
    threads belong to runs that were cancelled or timed out, whose functions have not returned),
    memory=2GB (the process has grown beyond that), runs=100000 (after so many), separated by
    commas. Default: never."""
    poll_seconds: float = Field(5, ge=0.05, le=3600)
    """How often a worker looks for due jobs when no notification wakes it."""
    reap_seconds: float = Field(5, ge=0.05, le=3600)
    """How often expired claims are looked for."""
    stop_seconds: float = Field(20, ge=0, le=86_400)
    """How long a stopping worker lets running jobs go on before it releases them. That takes a few
    seconds more; together they must be less than what the host allows (Kubernetes: 30 s)."""
    retention_days: int = Field(30, ge=1, le=36_500)
    """How long finished executions and one-off jobs are kept."""
    retention_executions: int = Field(100, ge=0, le=1_000_000)
    """How many executions of each job are kept however old they are."""
    run_log_level: RunLogLevel = "info"
    """From which level on what a run logs is kept with it: debug, info, warning, error, critical,
    or off."""
    run_log_print: bool = False
    """Whether what a run prints is kept with it, too."""
    run_log_days: int = Field(7, ge=1, le=36_500)
    """How long what runs logged is kept; at most retention_days."""
    audit_days: int = Field(365, ge=1, le=36_500)
    """How long the audit log keeps who changed what."""
    balance_alert_score: float = Field(0.5, ge=0, le=1)
    """The distribution score (0 to 1) below which balance:low is raised."""
    catch_up_spread_seconds: float = Field(10_800, ge=0, le=86_400)
    """How long recurring jobs that are late after an outage may take to start, the most urgent
    first, where they would otherwise be a herd; and by how much longer many jobs that fail with the
    same error may wait for their retries. 0: no spreading."""
    max_payload_bytes: int = Field(262_144, ge=1024, le=104_857_600)
    """The largest payload of a job, as JSON in bytes."""
    pool_size: int = Field(10, ge=2, le=1000)
    """How many database connections a process may open."""

    auth_secret: SigningSecret = None
    """The secret that signs tokens (HS256), at least 32 bytes, the same on all machines that
    serve. Without it, one is made in data_dir/secret."""
    auth_public_key: PublicKey = None
    """Instead of auth_secret: the public key of an identity provider, as PEM text or the path of a
    PEM file; RSA (RS256) or P-256 (ES256). Tokens are then only verified."""
    auth_issuer: OptionalText = None
    """The issuer (iss) that tokens must name."""
    auth_audience: OptionalText = None
    """The audience (aud) that tokens must name; a token with one is refused without this."""
    auth_role_claim: ShortText = "role"
    """The claim with the role, or a list of roles of which the highest counts; dots lead into
    nested claims (realm_access.roles)."""
    trusted_proxies: Networks = ("127.0.0.1", "::1")
    """The proxies in front of `evenbeat serve` whose X-Forwarded-Proto and X-Forwarded-For are
    believed, as addresses or networks (10.1.0.0/16), separated by commas. Behind TLS, cookies are
    Secure only if the proxy is listed. Default: 127.0.0.1,::1."""
    metrics_public: bool = False
    """Whether /metrics needs no token, for scrapers in a private network."""

    builtin_tasks: bool = True
    """Whether `evenbeat serve` and `worker` offer the built-in tasks."""
    allow_private_addresses: bool = False
    """Whether tasks may fetch from loopback and private addresses."""
    allowed_networks: Networks = ()
    """Networks that they may fetch from in any case, as addresses or CIDR (10.1.0.0/16), separated
    by commas. Default: none."""
    http_header_variables: VariableNames = ()
    """Variables that headers of http jobs may use as ${env:NAME}. Default: none."""
    crawl_user_agent: ShortText = Field("Evenbeat", pattern=r"^[\x20-\x7e]+$")
    """The name that crawls give to sites and look for in their robots.txt."""
    crawl_processes: int = Field(4, ge=1, le=100)
    """How many crawls a worker does at once, each in a process of its own."""
    stale_days: int = Field(
        30, ge=0, le=36_500, validation_alias=AliasChoices(f"{PREFIX}STALE_DAYS", "STALE_DAYS")
    )
    """How long a source may go without a successful crawl before it is queued again; 0: never.
    STALE_DAYS is read too."""
    allow_shell: bool = False
    """Whether this machine's workers run the shell task at all."""
    shell_commands: CommandNames = ()
    """The commands that it may run: names or absolute paths, separated by commas; sh also allows
    command lines, * allows everything. Default: none."""
    shell_variables: VariableNames = ()
    """Variables that a shell job may set for its command, separated by commas; any, where its
    commands include sh or *. Default: none."""
    public_url: WebUrl = None
    """The address at which people reach the dashboard, for links in chats and mails. Default: no
    links."""
    smtp_url: SmtpUrl = None
    """The server for webhooks by e-mail: smtp://user:password@mail.example.com:587 (with STARTTLS
    where that is offered), or smtps://."""
    mail_from: ShortText = "evenbeat@localhost"
    """The sender of these mails."""
    webhook_timeout_seconds: float = Field(15, ge=1, le=60)
    """How long a webhook's receiver may take to answer."""
    webhook_retry_delays: Delays = ("5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "24h")
    """The waits before each further attempt at a webhook message, as durations separated by
    commas. Default: nine, over 75 hours."""

    @property
    def server_dir(self) -> Path:
        """The directory of the embedded server, if there may be one."""
        if not self.embedded:
            raise InvalidSettings(
                f"No database is named, and {PREFIX}EMBEDDED is off. Set {PREFIX}DATABASE_URL to "
                "your PostgreSQL database, such as postgresql://user:password@host:5432/name.",
                field="database_url",
            )
        return self.data_dir / "postgres"

    @model_validator(mode="after")
    def _check_renewal(self) -> Self:
        if self.renew_seconds >= self.lease_seconds / 2:
            raise ValueError
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file_settings = InitSettingsSource(settings_cls, init_kwargs=dict(_read_file()))
        older = InitSettingsSource(settings_cls, init_kwargs=_older_variables())
        return init_settings, env_settings, older, file_settings


for _field in Settings.model_fields.values():
    _field.description = " ".join((_field.description or "").split())

_OTHER_NAMES = {
    "schema": "db_schema",
    f"{PREFIX}SCHEMA": "db_schema",
    f"{PREFIX}STALE_DAYS": "stale_days",
    "STALE_DAYS": "stale_days",
}
_LEASE_MINUTES = "RESET_CRAWLING_AFTER_MIN"
_SECRETS = frozenset({"database_url", "listen_url", "read_url", "auth_secret", "auth_public_key"})


def load_settings(**overrides: object) -> Settings:
    """The settings of this process; `overrides` come first, except those that are None.

    Raises InvalidSettings, naming the setting as and where it was written.
    """
    _warn_of_misspelt_variables()
    arguments = _by_field(
        {name: value for name, value in overrides.items() if value is not None}, "an argument"
    )
    try:
        return Settings(**arguments)  # type: ignore[arg-type]  # pydantic checks them
    except ValidationError as error:
        location = error.errors()[0]["loc"]
    if not location:
        renew, lease = (_as_written(f"{name}_seconds", arguments) for name in ("renew", "lease"))
        raise InvalidSettings(
            f"{renew} is too long for {lease}: a claim is renewed at least twice before it "
            "runs out, so renew_seconds must be less than half of lease_seconds."
        )
    field = _OTHER_NAMES.get(str(location[0]), str(location[0]))
    info = Settings.model_fields[field]
    rules: dict[type, Any] = {type(rule): rule for rule in info.metadata}
    if info.annotation is bool:
        allowed = "true or false"
    elif Allowed in rules:
        allowed = rules[Allowed]
    else:
        kind = "a whole number" if info.annotation is int else "a number"
        allowed = f"{kind} from {rules[Ge].ge} to {rules[Le].le}"
    raise InvalidSettings(f"{_as_written(field, arguments)}: it must be {allowed}.", field=field)


def private_directory(path: Path) -> None:
    """Make a directory, and what is missing above it, for its owner alone, whatever the umask."""
    if not path.exists():
        private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def setting_name(field: str) -> str:
    """What users call the field in the file and, in capitals after EVENBEAT_, as a variable."""
    return field.removeprefix("db_")


def _by_field(values: Mapping[str, object], place: str) -> dict[str, object]:
    """Values by field name; one that is no setting is refused, naming the place."""
    known = [setting_name(field) for field in Settings.model_fields]
    fields = {_OTHER_NAMES.get(name, name): value for name, value in values.items()}
    for name in fields:
        if name not in Settings.model_fields:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
            raise InvalidSettings(f"{name}, in {place}, is not a setting. {hint}", field=name)
    return fields


_warned: set[str] = set()


def _warn_of_misspelt_variables() -> None:
    """Say once what a variable was probably meant to be. One that is like no setting may be
    somebody else's: Kubernetes describes a service by the name of evenbeat in such."""
    known = [setting_name(field).upper() for field in Settings.model_fields]
    for variable in os.environ.keys() - _warned:
        name = variable.upper().removeprefix(PREFIX)
        is_ours = variable.upper().startswith((PREFIX + "TEST_", PREFIX + "DB_SCHEMA"))
        if not variable.upper().startswith(PREFIX) or is_ours or name in known:
            continue
        _warned.add(variable)
        if near := difflib.get_close_matches(name, known, n=2, cutoff=0.7):
            logger.warning(
                "%s is no setting, so it does nothing. Did you mean %s?",
                variable,
                " or ".join(PREFIX + one for one in near),
            )


def _older_variables() -> dict[str, object]:
    """Settings by variables of an older crawler that have another unit."""
    minutes = os.environ.get(_LEASE_MINUTES)
    try:
        return {"lease_seconds": 60 * float(minutes)} if minutes else {}
    except ValueError:
        return {"lease_seconds": minutes}  # is refused, as it was written


def _read_file() -> dict[str, object]:
    path = _file_path()
    if path is None:
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(
            f"{path}, the settings file, cannot be read: {error.strerror}."
        ) from None
    except ValueError as error:
        raise InvalidSettings(f"{path}, the settings file, is not TOML: {error}.") from None
    return _by_field(values, str(path))


def _file_path() -> Path | None:
    if path := os.environ.get(CONFIG_VARIABLE):
        return Path(path).expanduser()
    return Path(CONFIG_FILE) if Path(CONFIG_FILE).exists() else None


def _as_written(field: str, arguments: Mapping[str, object]) -> str:
    """The setting with its value, spelt as in the place that it comes from."""

    def shown(value: object) -> str:
        text = "…" if field in _SECRETS else str(value)
        return text if len(text) <= 60 else text[:59] + "…"

    if field in arguments:
        return f"{field}={shown(arguments[field])}"
    name = setting_name(field)
    variables = [PREFIX + name.upper(), PREFIX + field.upper()]  # pydantic reads either
    variables += [other for other, meaning in _OTHER_NAMES.items() if meaning == field]
    environment = {key.upper(): value for key, value in os.environ.items() if value}
    for variable in variables:
        if variable in environment:
            return f"{variable}={shown(environment[variable])}"
    if field == "lease_seconds" and (minutes := environment.get(_LEASE_MINUTES)):
        return f"{_LEASE_MINUTES}={shown(minutes)} (minutes of lease_seconds)"
    file = _read_file()
    if field in file:
        return f"{name} = {shown(file[field])} in {_file_path()}"
    return f"{name}={Settings.model_fields[field].get_default()} (the default)"

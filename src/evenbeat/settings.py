"""Every setting, and the only reader of the environment and of `evenbeat.toml`.

A value comes from the first place that gives it: an argument of `load_settings`, a variable
`EVENBEAT_<NAME>`, the file (`EVENBEAT_CONFIG`, or `evenbeat.toml` in the working directory), the
default. An empty variable counts as not set.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Self

from annotated_types import Ge, Le
from platformdirs import user_data_path
from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from evenbeat.domain.duration import parse_duration
from evenbeat.errors import InvalidSettings

PREFIX = "EVENBEAT_"
CONFIG_VARIABLE = "EVENBEAT_CONFIG"
CONFIG_FILE = "evenbeat.toml"

MIN_SECRET_BYTES = 32
"""What HS256 asks of its key: as many bytes as its hash has."""


def _split(value: object) -> object:
    """Several texts may be one text with commas."""
    return (
        tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value
    )


NameList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


class Settings(BaseSettings):
    """What an Evenbeat process is told from outside. Made by `load_settings`, never changed."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, populate_by_name=True, frozen=True, extra="ignore"
    )

    database_url: SecretStr | None = Field(
        default=None,
        description="The PostgreSQL database, as postgresql://user:password@host:port/name. "
        "Without it, an embedded server is started in data_dir.",
    )
    db_schema: str = Field(
        default="evenbeat",
        # `schema` is a method of every pydantic model, so the field needs a name of its own.
        validation_alias=f"{PREFIX}SCHEMA",
        description="The PostgreSQL schema that holds Evenbeat's tables.",
    )
    data_dir: Path = Field(
        default_factory=lambda: user_data_path("evenbeat", appauthor=False),
        description="Where this machine's data lies; the embedded server is in postgres/ below it. "
        "A relative path starts at the working directory. Default: the user's data directory.",
    )
    lease_seconds: float = Field(
        default=30, ge=1, le=3600, description="How long a claim holds without being renewed."
    )
    renew_seconds: float = Field(
        default=10,
        ge=0.1,
        le=1800,
        description="How often a worker renews its claims; less than half of lease_seconds.",
    )
    concurrency: int = Field(
        default=100, ge=1, le=10_000, description="How many jobs a worker runs at once."
    )
    threads: int = Field(
        default=10, ge=1, le=1000, description="How many of them may be plain functions."
    )
    poll_seconds: float = Field(
        default=5,
        ge=0.05,
        le=3600,
        description="How often a worker looks for due jobs when no notification wakes it.",
    )
    reap_seconds: float = Field(
        default=5, ge=0.05, le=3600, description="How often expired claims are looked for."
    )
    stop_seconds: float = Field(
        default=30,
        ge=0,
        le=86_400,
        description="How long a stopping worker lets running jobs go on before it releases them.",
    )
    retention_days: int = Field(
        default=30,
        ge=1,
        le=36_500,
        description="How long finished executions and one-off jobs are kept.",
    )
    retention_executions: int = Field(
        default=100,
        ge=0,
        le=1_000_000,
        description="How many executions of each job are kept however old they are.",
    )
    balance_alert_score: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="The distribution score (0 to 1) below which balance:low is raised.",
    )
    max_payload_bytes: int = Field(
        default=262_144,
        ge=1024,
        le=104_857_600,
        description="The largest payload of a job, as JSON in bytes.",
    )
    pool_size: int = Field(
        default=10, ge=2, le=1000, description="How many database connections a process may open."
    )

    auth_secret: SecretStr | None = Field(
        default=None,
        description="The secret that signs tokens (HS256), at least 32 bytes, the same on all "
        "machines that serve. Without it, one is made in data_dir/secret.",
    )
    auth_public_key: SecretStr | None = Field(
        default=None,
        description="Instead of auth_secret: the public key of an identity provider, as PEM text "
        "or the path of a PEM file; RSA (RS256) or P-256 (ES256). Tokens are then only verified.",
    )
    auth_issuer: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="The issuer (iss) that tokens must name.",
    )
    auth_audience: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="The audience (aud) that tokens must name; a token with one is refused "
        "without this.",
    )
    auth_role_claim: str = Field(
        default="role",
        min_length=1,
        max_length=500,
        description="The claim with the role, or a list of roles of which the highest counts; "
        "dots lead into nested claims (realm_access.roles).",
    )

    metrics_public: bool = Field(
        default=False,
        description="Whether /metrics needs no token, for scrapers in a private network.",
    )

    builtin_tasks: bool = Field(
        default=True, description="Whether `evenbeat serve` and `worker` offer the built-in tasks."
    )
    allow_private_addresses: bool = Field(
        default=False, description="Whether tasks may fetch from loopback and private addresses."
    )
    allowed_networks: NameList = Field(
        default_factory=tuple,
        description="Networks that they may fetch from whatever they are for, as addresses or "
        "CIDR (10.1.0.0/16), separated by commas. Default: none.",
    )
    http_header_variables: NameList = Field(
        default_factory=tuple,
        description="Variables that headers of http jobs may use as ${env:NAME}. Default: none.",
    )
    crawl_user_agent: str = Field(
        default="Evenbeat",
        min_length=1,
        max_length=500,
        pattern=r"^[\x20-\x7e]+$",
        description="Who crawls say they are, to sites and their robots.txt.",
    )
    crawl_processes: int = Field(
        default=4,
        ge=1,
        le=100,
        description="How many crawls a worker does at once, each in a process of its own.",
    )
    stale_days: int = Field(
        default=30,
        ge=0,
        le=36_500,
        validation_alias=AliasChoices(f"{PREFIX}STALE_DAYS", "STALE_DAYS"),
        description="How long a source may go without a crawl that succeeds before it is queued "
        "again; 0: never. STALE_DAYS is read too.",
    )
    allow_shell: bool = Field(
        default=False, description="Whether this machine's workers run the shell task at all."
    )
    shell_commands: NameList = Field(
        default_factory=tuple,
        description="The commands that it may run: names or absolute paths, separated by commas; "
        "sh also allows command lines, * allows everything. Default: none.",
    )

    webhook_timeout_seconds: float = Field(
        default=15, ge=1, le=60, description="How long a webhook's receiver may take to answer."
    )
    webhook_retry_delays: NameList = Field(
        default_factory=lambda: ("5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "24h"),
        max_length=50,
        description="The waits before each further attempt at a webhook message, as durations "
        "separated by commas. Default: nine, over 75 hours.",
    )

    @property
    def server_dir(self) -> Path:
        """Where the embedded server lives."""
        return self.data_dir / "postgres"

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans(cls, value: object, info: ValidationInfo) -> object:
        wanted = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and wanted is not bool:
            # Pydantic would take `true` for 1. (A TypeError would escape it.)
            raise ValueError("is true or false")
        return value

    @field_validator("allowed_networks")
    @classmethod
    def _check_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(ip_network(network, strict=False)) for network in networks)

    @field_validator("http_header_variables")
    @classmethod
    def _check_variables(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if any(name.upper().startswith(PREFIX) or not name.isidentifier() for name in names):
            raise ValueError("not a variable that may be given away")
        return names

    @field_validator("shell_commands")
    @classmethod
    def _check_commands(cls, commands: tuple[str, ...]) -> tuple[str, ...]:
        if any("/" in command and not command.startswith("/") for command in commands):
            raise ValueError("not a name or an absolute path")
        return commands

    @field_validator("webhook_retry_delays")
    @classmethod
    def _check_delays(cls, delays: tuple[str, ...]) -> tuple[str, ...]:
        if any(parse_duration(delay) > timedelta(days=7) for delay in delays):
            raise ValueError("too long")
        return delays

    @field_validator("database_url")
    @classmethod
    def _check_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url and not url.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("not a PostgreSQL URL")
        return url

    @field_validator("auth_secret")
    @classmethod
    def _check_secret(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret and len(secret.get_secret_value().strip().encode()) < MIN_SECRET_BYTES:
            raise ValueError("too short")
        return secret

    @field_validator("db_schema")
    @classmethod
    def _check_schema(cls, name: str) -> str:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", name) or name.startswith("pg_"):
            raise ValueError("not a schema name")
        return name

    @field_validator("data_dir")
    @classmethod
    def _make_absolute(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @model_validator(mode="after")
    def _check_renewal(self) -> Self:
        if self.renew_seconds >= self.lease_seconds / 2:
            raise ValueError("renews too seldom")
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
        in_file = InitSettingsSource(settings_cls, init_kwargs=dict(_read_file()))
        return init_settings, env_settings, in_file


def load_settings(**overrides: object) -> Settings:
    """The settings of this process; `overrides` come first, and one that is None is not given.

    Raises InvalidSettings, naming the setting as and where it was written.
    """
    given = {_field(name): value for name, value in overrides.items() if value is not None}
    _refuse_unknown(given, "an argument")
    try:
        return Settings(**given)  # type: ignore[arg-type]  # pydantic checks them
    except ValidationError as error:
        first = error.errors()[0]
        field = _field(str(first["loc"][0])) if first["loc"] else None
        raise InvalidSettings(_explain(field, given), field=field) from None


def _read_file() -> Mapping[str, object]:
    """The values of the settings file by field name; nothing when there is no file."""
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
    by_field = {_field(name): value for name, value in values.items()}
    _refuse_unknown(by_field, str(path))
    return by_field


def _file_path() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named).expanduser()
    return Path(CONFIG_FILE) if Path(CONFIG_FILE).exists() else None


def _field(setting: str) -> str:
    """The field that a setting's name means: `schema` and `EVENBEAT_SCHEMA` are `db_schema`."""
    return _OTHER_NAMES.get(setting, setting)


_OTHER_NAMES = {
    "schema": "db_schema",
    f"{PREFIX}SCHEMA": "db_schema",
    f"{PREFIX}STALE_DAYS": "stale_days",
    "STALE_DAYS": "stale_days",
}


def setting_name(field: str) -> str:
    """What users call the field in the file and, in capitals after EVENBEAT_, as a variable."""
    return field.removeprefix("db_")


def _refuse_unknown(names: Iterable[str], place: str) -> None:
    known = [setting_name(field) for field in Settings.model_fields]
    for name in names:
        if name not in Settings.model_fields:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
            raise InvalidSettings(f"{name}, in {place}, is not a setting. {hint}", field=name)


# -- explaining a refusal ------------------------------------------------------------------------


def _explain(field: str | None, given: Mapping[str, object]) -> str:
    if field is None:
        renew, lease = _as_written("renew_seconds", given), _as_written("lease_seconds", given)
        return (
            f"{renew} is too long for {lease}: a claim is renewed at least twice before it "
            "runs out, so renew_seconds must be less than half of lease_seconds."
        )
    return f"{_as_written(field, given)}: it must be {_allowed(field)}."


def _as_written(field: str, given: Mapping[str, object]) -> str:
    """The setting with its value, spelt as in the place that it comes from."""
    name = setting_name(field)
    variables = [PREFIX + name.upper(), PREFIX + field.upper()]  # pydantic reads either
    variables += [other for other, meant in _OTHER_NAMES.items() if meant == field]
    in_environment = {k.upper(): v for k, v in os.environ.items() if v}
    if field in given:
        return f"{field}={_shown(field, given[field])}"
    for variable in variables:
        if variable in in_environment:
            return f"{variable}={_shown(field, in_environment[variable])}"
    in_file = _read_file()
    if field in in_file:
        return f"{name} = {_shown(field, in_file[field])} in {_file_path()}"
    return f"{name}={Settings.model_fields[field].get_default()} (the default)"


_HIDDEN = frozenset({"database_url", "auth_secret", "auth_public_key"})


def _shown(field: str, value: object) -> str:
    """The value, cut to a readable length; what is or holds a secret is never shown."""
    if field in _HIDDEN:
        return "…"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"


_SHORT_TEXT = "a text of 1 to 500 characters"


def _allowed(field: str) -> str:
    """What the field takes, in words."""
    words = {
        "database_url": "a URL such as postgresql://user:password@localhost:5432/mydatabase",
        "db_schema": "1 to 48 of a-z, 0-9 and _, starting with a letter or _ and not with pg_",
        "data_dir": "a path",
        "auth_secret": f"a text of at least {MIN_SECRET_BYTES} bytes, best a random one",
        "auth_public_key": "a public key in PEM form, or the path of a file with one",
        "auth_issuer": _SHORT_TEXT,
        "auth_audience": _SHORT_TEXT,
        "auth_role_claim": _SHORT_TEXT,
        "crawl_user_agent": _SHORT_TEXT,
        "allowed_networks": "addresses or networks such as 10.1.0.0/16, separated by commas",
        "http_header_variables": "names of variables, separated by commas, none of Evenbeat's own",
        "shell_commands": "names or absolute paths of commands, separated by commas, or *",
        "webhook_retry_delays": "up to 50 durations of at most 7d, such as 5s,5m,30m,2h",
    }
    if Settings.model_fields[field].annotation is bool:
        return "true or false"
    return words.get(field) or _allowed_number(Settings.model_fields[field])


def _allowed_number(info: FieldInfo) -> str:
    low = next(rule.ge for rule in info.metadata if isinstance(rule, Ge))
    high = next(rule.le for rule in info.metadata if isinstance(rule, Le))
    kind = "a whole number" if info.annotation is int else "a number"
    return f"{kind} from {low} to {high}"

"""Who may do what: roles, tokens, and the one-time codes of login links.

A token is a JSON web token with `sub`, `role`, `iat`, `exp` and `jti`. Tokens made here are listed
in the database, so that they can be revoked; the tokens themselves are stored nowhere.
"""

import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from evenbeat.api.auth.signing import TokenKeys
from evenbeat.domain.duration import format_duration
from evenbeat.domain.ids import parse_id, uuid7
from evenbeat.errors import CannotIssue, InvalidInput, NotAuthenticated, NotFound, StoreError
from evenbeat.settings import Settings
from evenbeat.store.api_tables import AccessTables, Token
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

SESSION = timedelta(hours=12)
LOGIN_CODE = timedelta(minutes=10)
MAX_LIFETIME = timedelta(days=3650)
MAX_CODE_LIFETIME = timedelta(days=1)
MAX_SUBJECT = 200
FRESH_SECONDS = 2.0
"""How long the list of revoked tokens is cached, and so how long a token that was revoked in
another process still passes here. Also the pause after a database error."""


class Role(StrEnum):
    """What a caller may do: read; operate jobs; administer tokens and settings too."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: "Role") -> bool:
        """Whether this role may do all that `other` may."""
        return _RANK[self] >= _RANK[other]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True)
class Principal:
    """The caller. `token_id` is None for a token without `jti`, and where no token is needed."""

    subject: str
    role: Role
    token_id: str | None = None
    expires_at: datetime | None = None


EVERYONE = Principal("everyone", Role.ADMIN)
"""The caller where no token is needed."""


@dataclass(frozen=True)
class IssuedToken:
    """A new token: this answer is the only place where it can ever be seen."""

    token: str = field(repr=False)
    id: UUID
    subject: str
    role: Role
    expires_at: datetime


class RevokedTokens:
    """The ids of revoked tokens, read again from the database when the last reading is too old.

    While the database is down, the last known ids stand. Before the first reading there are none,
    and then nobody gets in.
    """

    def __init__(self, tables: AccessTables, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._tables = tables
        self._fresh_seconds = fresh_seconds
        self._ids: frozenset[str] | None = None
        self._fresh_until = 0.0
        self._lock = threading.Lock()

    def ids(self) -> frozenset[str]:
        """The ids (`jti`) of all revoked tokens; raises StoreError if none were ever read."""
        with self._lock:
            if self._ids is None or time.monotonic() >= self._fresh_until:
                # Before reading: a token that is revoked meanwhile makes the list stale again.
                self._fresh_until = time.monotonic() + self._fresh_seconds
                try:
                    self._ids = frozenset(map(str, self._tables.revoked_tokens()))
                except StoreError as error:
                    if self._ids is None:
                        raise
                    logger.warning(
                        "Revoked tokens cannot be read, the last known ones stand",
                        extra={"error": type(error).__name__},
                    )
            return self._ids

    def invalidate(self) -> None:
        """A token was revoked here: what was read so far, or is being read, is out of date."""
        self._fresh_until = 0.0


class Access:
    """Checks tokens, makes and revokes them, and signs people in."""

    is_open = False
    """Whether everyone is admin (`--no-auth`)."""

    has_tokens = True
    """Whether callers show tokens of this service, or of an identity provider."""

    reason = ""
    """Why they need none, if they do not."""

    def __init__(self, tables: AccessTables, keys: TokenKeys) -> None:
        self._tables = tables
        self._keys = keys
        self._revoked = RevokedTokens(tables)

    @staticmethod
    def of(settings: Settings, store: Store) -> "Access":
        """Access by tokens; the secret that signs them is made if there is none yet."""
        return Access(store.access, TokenKeys.load(settings))

    @staticmethod
    def open() -> "Access":
        """Access without tokens, for a loopback address only."""
        return OpenAccess()

    @property
    def can_issue(self) -> bool:
        """Whether tokens and login links can be made here."""
        return self._keys.signing is not None

    def authenticate(self, token: str) -> Principal:
        """The caller that the token stands for; raises NotAuthenticated if it is not valid."""
        claims = self._keys.verify(token)
        try:
            expires_at = datetime.fromtimestamp(int(claims["exp"]), UTC)
        except (ValueError, OverflowError, OSError):
            expires_at = None  # beyond the calendar
        principal = Principal(
            subject=claims["sub"][:MAX_SUBJECT],
            role=role_in(claims, self._keys.role_claim),
            token_id=claims.get("jti"),
            expires_at=expires_at,
        )
        if principal.token_id is not None and principal.token_id in self._revoked.ids():
            raise NotAuthenticated("The token was revoked. Get a new one.")
        return principal

    def issue(
        self, role: Role, expires: timedelta, *, subject: str, by: str = "command line"
    ) -> IssuedToken:
        """A new token. It is listed before anyone has it, so every token can be revoked."""
        check_lifetime(expires, MAX_LIFETIME, "expires")
        issued = self._sign(uuid7(), check_subject(subject), role, _from_now(expires))
        self._tables.add_token(
            issued.id,
            subject=issued.subject,
            role=role,
            created_by=by[:MAX_SUBJECT],
            expires_at=issued.expires_at,
        )
        return issued

    def tokens(self, *, active: bool = False, limit: int = 100, offset: int = 0) -> list[Token]:
        """The tokens made here, newest first; with `active`, only those that are still valid."""
        return self._tables.tokens(active=active, limit=limit, offset=offset)

    def count_tokens(self, *, active: bool = False) -> int:
        """How many there are."""
        return self._tables.count_tokens(active=active)

    def revoke(self, token_id: UUID) -> None:
        """End a token: here at once, in other processes within a few seconds."""
        if not self._tables.revoke_token(token_id):
            raise NotFound("token", token_id)
        self._revoked.invalidate()

    def login_code(
        self, role: Role, ttl: timedelta = LOGIN_CODE, *, subject: str = "login link"
    ) -> str:
        """A code that can be redeemed once, and soon, for a session."""
        self._keys.require_signing()
        check_lifetime(ttl, MAX_CODE_LIFETIME, "ttl")
        code = secrets.token_urlsafe(32)
        self._tables.add_login_code(_hash(code), subject=check_subject(subject), role=role, ttl=ttl)
        return code

    def redeem(self, code: str) -> IssuedToken:
        """The session that a code stands for; raises NotAuthenticated if the code is not valid."""
        self._keys.require_signing()
        token_id, expires_at = uuid7(), _from_now(SESSION)
        session = self._tables.redeem_login_code(_hash(code), token_id, expires_at=expires_at)
        if session is None:
            raise NotAuthenticated(
                "This login code is unknown, was used before or is too old. "
                "Make a new link with `evenbeat token login`."
            )
        subject, role = session
        return self._sign(token_id, subject, Role(role), expires_at)

    def end_session(self, principal: Principal) -> None:
        """Revoke the session of a sign-in by link. A token that was pasted in is not ours to end:
        it may be in use elsewhere."""
        token_id = parse_id(principal.token_id)  # None: an identity provider's
        if token_id is not None and self._tables.revoke_token(token_id, session_only=True):
            self._revoked.invalidate()

    def _sign(self, token_id: UUID, subject: str, role: Role, expires_at: datetime) -> IssuedToken:
        claims = {
            "sub": subject,
            self._keys.role_claim: role.value,
            "iat": int(time.time()),
            "exp": int(expires_at.timestamp()),
            "jti": str(token_id),
        }
        return IssuedToken(self._keys.sign(claims), token_id, subject, role, expires_at)


class TokenlessAccess(Access):
    """No tokens: something else says who the caller is."""

    has_tokens = False
    can_issue = False

    def __init__(self) -> None:
        """Needs neither database nor key."""

    def __getattr__(self, name: str) -> Any:
        if name in {"_tables", "_keys", "_revoked"}:
            raise CannotIssue(f"{self.reason}: it neither has nor needs tokens.")
        raise AttributeError(name)

    def tokens(self, *, active: bool = False, limit: int = 100, offset: int = 0) -> list[Token]:  # noqa: ARG002
        return []

    def count_tokens(self, *, active: bool = False) -> int:  # noqa: ARG002
        return 0


class OpenAccess(TokenlessAccess):
    """Every caller on this machine's loopback address is admin."""

    is_open = True
    reason = "This service runs with --no-auth"


# -- rules ---------------------------------------------------------------------------------------


def role_in(claims: Mapping[str, Any], claim: str) -> Role:
    """The role that the claims give; of several, the highest one. The claim is looked up by its
    whole name, which may hold dots; otherwise by walking down the dots."""
    value: Any = claims
    for part in [claim] if claim in claims else claim.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    names = value if isinstance(value, list) else [value]
    roles = [role for role in Role if role in names]
    if not roles:
        raise NotAuthenticated(
            f"The token has no known role in its claim {claim!r}. There are: {', '.join(Role)}."
        )
    return roles[-1]


def check_subject(subject: str) -> str:
    """The name of whom a token is for, trimmed."""
    trimmed = subject.strip()
    if not 1 <= len(trimmed) <= MAX_SUBJECT or not trimmed.isprintable():
        raise InvalidInput(
            f"A subject is a name of 1 to {MAX_SUBJECT} printable characters, such as "
            '"deploy-script" or "ann@example.org".',
            field="subject",
        )
    return trimmed


def check_lifetime(lifetime: timedelta, longest: timedelta, name: str) -> None:
    """Every token ends: not before it began, and not in the far future."""
    if not timedelta(seconds=1) <= lifetime <= longest:
        raise InvalidInput(
            f"{name} must be from 1s to {format_duration(longest)}, not "
            f"{format_duration(lifetime)}. Everything that gives access ends at some time.",
            field=name,
        )


def _from_now(lifetime: timedelta) -> datetime:
    """By this machine's clock, which is what checks it; whole seconds, as tokens have them."""
    return datetime.fromtimestamp(int(time.time()), UTC) + lifetime


def _hash(code: str) -> bytes:
    """Codes have 256 random bits: a plain hash is as hard to undo as the code is to guess."""
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()

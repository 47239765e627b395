"""Links by which a person sends an event to a job, without an account: signed, and good for once.

The key is made of the secret that signs tokens, so that neither can stand for the other.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from evenbeat.api.auth.signing import SECRET_FILE, TokenKeys, secret_from_file
from evenbeat.api.auth.tokens import check_lifetime
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import DurationLike
from evenbeat.domain.setting_kinds import check_name
from evenbeat.errors import NotAuthenticated
from evenbeat.settings import Settings
from evenbeat.store.rows import encode_json

MOST_BYTES = 2048
"""Of a link's payload: a browser must be able to carry it."""

LONGEST = timedelta(days=366)


class EventLink(NamedTuple):
    """What a link says."""

    id: str
    job_id: UUID
    name: str
    payload: Any


def sign_link(
    settings: Settings, job_id: UUID, name: str, payload: Any, expires: DurationLike
) -> tuple[str, datetime]:
    """The path and query of a link that sends this event, and until when it does."""
    check_name("name", name)
    encode_json("payload", payload, MOST_BYTES)
    lifetime = parse_duration(expires, field="expires")
    check_lifetime(lifetime, LONGEST, "expires")
    until = (datetime.now(UTC) + lifetime).replace(microsecond=0)
    claims = {"sub": str(job_id), "event": name, "payload": payload, "jti": str(uuid7())}
    signed = _keys(settings).sign({**claims, "exp": int(until.timestamp())})
    return f"/event?{urlencode({'link': signed})}", until


def read_link(settings: Settings, link: str) -> EventLink:
    """What a sound link says; raises NotAuthenticated for any other, or one that has expired."""
    claims: Mapping[str, Any] = _keys(settings).verify(link)
    try:
        return EventLink(claims["jti"], UUID(claims["sub"]), claims["event"], claims["payload"])
    except (KeyError, ValueError):
        raise NotAuthenticated("The link cannot be read.") from None


def _keys(settings: Settings) -> TokenKeys:
    if settings.auth_secret is not None:
        secret = settings.auth_secret.get_secret_value().strip().encode()
    else:
        secret = secret_from_file(settings.data_dir / SECRET_FILE)
    key = hmac.new(secret, b"evenbeat event link", hashlib.sha256).digest()
    return TokenKeys("HS256", key, key)

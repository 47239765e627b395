"""The key that tokens are checked with, and the one place that signs and verifies them.

The configuration fixes the algorithm; what a token says of itself is never trusted. It is either a
shared secret (HS256), which can also issue tokens, or the public key of an identity provider
(RS256 or ES256), which can only verify.
"""

import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from evenbeat.errors import CannotIssue, InvalidSettings, NotAuthenticated
from evenbeat.settings import MIN_SECRET_BYTES, Settings, private_directory

LEEWAY_SECONDS = 10
"""How far the clocks of two machines may be apart without a token being refused for it."""

SECRET_FILE = "secret"  # noqa: S105 - the name of the file
_LONGEST_TOKEN = 8192
_LEAST_RSA_BITS = 2048


@dataclass(frozen=True, repr=False)
class TokenKeys:
    """Signs and verifies claims; its `repr` shows no key. Without `signing` it only verifies."""

    algorithm: str
    verifying: Any
    signing: bytes | None = None
    issuer: str | None = None
    audience: str | None = None
    role_claim: str = "role"

    @classmethod
    def load(cls, settings: Settings) -> Self:
        """The key that the settings name; without one, the secret file, made when missing."""
        if settings.auth_secret is not None and settings.auth_public_key is not None:
            raise InvalidSettings(
                "Both auth_secret and auth_public_key are set, but one key decides. Leave one out.",
                field="auth_secret",
            )
        issued = (settings.auth_issuer, settings.auth_audience, settings.auth_role_claim)
        if settings.auth_public_key is not None:
            algorithm, key = _public_key(settings.auth_public_key.get_secret_value())
            return cls(algorithm, key, None, *issued)
        if settings.auth_secret is not None:
            secret = settings.auth_secret.get_secret_value().strip().encode()
        else:
            secret = secret_from_file(settings.data_dir / SECRET_FILE)
        return cls("HS256", secret, secret, *issued)

    def __repr__(self) -> str:
        return f"TokenKeys({self.algorithm})"

    def require_signing(self) -> bytes:
        """The key that signs; without one, CannotIssue says where tokens come from."""
        if self.signing is None:
            raise CannotIssue(
                "This service only verifies tokens, with EVENBEAT_AUTH_PUBLIC_KEY; it cannot make "
                "any. Get one from your identity provider, or set EVENBEAT_AUTH_SECRET instead."
            )
        return self.signing

    def sign(self, claims: Mapping[str, object]) -> str:
        """A token with these claims."""
        named = {"iss": self.issuer, "aud": self.audience}
        fixed = {name: value for name, value in named.items() if value is not None}
        return jwt.encode({**claims, **fixed}, self.require_signing(), algorithm=self.algorithm)

    def verify(self, token: str) -> dict[str, Any]:
        """The claims of a sound token; anything else raises NotAuthenticated, which says why in
        words that repeat nothing of the token."""
        if len(token) > _LONGEST_TOKEN:
            raise NotAuthenticated(f"The token is longer than {_LONGEST_TOKEN} characters.")
        try:
            return jwt.decode(
                token,
                self.verifying,
                algorithms=[self.algorithm],
                issuer=self.issuer,
                audience=self.audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "sub"]},
            )
        except jwt.MissingRequiredClaimError as error:
            raise NotAuthenticated(
                f"The token has no claim {error.claim!r}, which is required."
            ) from None
        except jwt.PyJWTError as error:
            # In our words: the library's may quote the token.
            reason = next(text for kind, text in _REASONS.items() if isinstance(error, kind))
            raise NotAuthenticated(reason.format(algorithm=self.algorithm)) from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            # A date beyond all calendars, a header nested without end.
            raise NotAuthenticated("The token cannot be read.") from None


_REASONS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "The token has expired. Get a new one.",
    jwt.ImmatureSignatureError: "The token is not valid yet. Is the clock of its issuer right?",
    jwt.InvalidIssuerError: "The token comes from another issuer than auth_issuer.",
    jwt.InvalidAudienceError: "The token is for another audience than auth_audience.",
    jwt.InvalidSignatureError: "The token was signed with another key, or it was changed.",
    jwt.InvalidAlgorithmError: "The token is not signed with {algorithm}, as it must be here.",
    jwt.PyJWTError: "The token cannot be read: it is no JSON web token, or a claim is malformed.",
}


# -- the secret file -----------------------------------------------------------------------------


def secret_from_file(path: Path) -> bytes:
    """The secret in the file, which is made on first use; once, however many processes start."""
    try:
        if not path.exists():
            _make_secret(path)
        return _read_secret(path)
    except OSError as error:
        raise InvalidSettings(
            f"{path}, the secret that signs tokens, cannot be had: {error.strerror}. Make its "
            "directory writable, or set EVENBEAT_AUTH_SECRET.",
            field="auth_secret",
        ) from None


def _make_secret(path: Path) -> None:
    """Written aside and linked into place: nobody reads half a secret, and the first one wins."""
    private_directory(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(48) + "\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        pass  # another process was first, and its secret stays
    finally:
        draft.unlink()


def _read_secret(path: Path) -> bytes:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        secret = file.read(65_536).strip()
    mode, problem = stat.S_IMODE(status.st_mode), ""
    if mode & 0o077:
        problem = f"its mode {mode:04o} lets others at it. If nobody has read it, chmod 600 it"
    elif status.st_uid not in {os.geteuid(), 0}:
        problem = "it belongs to another user. Set EVENBEAT_AUTH_SECRET"
    elif len(secret) < MIN_SECRET_BYTES:
        problem = f"it takes at least {MIN_SECRET_BYTES} bytes. Write a longer secret"
    if problem:
        raise InvalidSettings(
            f"{path} has the secret that signs tokens, but {problem}; or delete the file, and a "
            "new one is made, which ends all tokens.",
            field="auth_secret",
        )
    return secret


def _public_key(pem: str) -> tuple[str, RSAPublicKey | EllipticCurvePublicKey]:
    """The algorithm and the key of a PEM text, or of the file that it names."""
    reason = "it is of another kind, or too short"
    try:
        if not pem.lstrip().startswith("-----BEGIN"):
            pem = Path(pem).expanduser().read_text(encoding="ascii")
        key = load_pem_public_key(pem.strip().encode())
        if isinstance(key, RSAPublicKey) and key.key_size >= _LEAST_RSA_BITS:
            return "RS256", key
        if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
            return "ES256", key
    except OSError as error:
        reason = f"it is no PEM text, and as a file it cannot be read: {error.strerror}"
    except (ValueError, UnsupportedAlgorithm):
        reason = "it cannot be read as a public key"
    raise InvalidSettings(
        f"EVENBEAT_AUTH_PUBLIC_KEY cannot be used: {reason}. It must be a public key in PEM form "
        f"(-----BEGIN PUBLIC KEY-----), RSA of {_LEAST_RSA_BITS} bits or more for RS256 or P-256 "
        "for ES256, or the path of a file with one.",
        field="auth_public_key",
    )

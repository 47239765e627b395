"""The sender of a request, where an application signs people in itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller as the host of `app.asgi(auth=…)` knows them. The name appears wherever Evenbeat
    tells who did something; the role is "viewer", "operator" or "admin"."""

    name: str
    role: str

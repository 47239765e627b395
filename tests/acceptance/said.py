"""What a command of the command line said."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


Command = Callable[..., Said]

"""When a worker is to be replaced by a fresh one: the setting `recycle`."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from evenbeat.domain.setting_kinds import Size


class Recycle(NamedTuple):
    """When all its threads are held, when its process has this many bytes, after so many runs."""

    held: bool = False
    memory: int | None = None
    runs: int | None = None

    @classmethod
    def of(cls, conditions: Sequence[str]) -> Self:
        """From "held", "memory=2GB" and "runs=100000". Raises ValueError for anything else."""
        values: dict[str, bool | int] = {}
        for condition in conditions:
            name, _, text = condition.partition("=")
            if name == "held" and not text:
                values[name] = True
            elif name == "memory":
                values[name] = Size().parse(name, text)
            elif name == "runs" and text.isdecimal() and int(text):
                values[name] = int(text)
            else:
                raise ValueError(condition)
        return cls(**values)  # type: ignore[arg-type]  # each by its own name

"""The strip of a job's last outcomes, small enough for fifty of them on one page.

`charts.outcome_strip` tells each run on pointing at it, at 5 KB a strip. Here the runs of one
outcome are one path, and the strip tells its sum.
"""

from collections.abc import Sequence
from html import escape

_WORDS = {"completed": "ok", "failed": "failed"}
_STEP, _WIDE, _HIGH = 6, 4, 16


def strip(outcomes: Sequence[str], most: int) -> str:
    """Marks for the last runs, the newest on the right; failed ones are taller."""
    marks: dict[str, list[str]] = {}
    for place, outcome in enumerate(outcomes[-most:], start=most - len(outcomes[-most:])):
        name = _WORDS.get(outcome, "other")
        top = 0 if name == "failed" else 4
        marks.setdefault(name, []).append(f"M{place * _STEP + 1} {top}h{_WIDE}V{_HIGH}h-{_WIDE}z")
    paths = "".join(f'<path class="{name}" d="{"".join(d)}"/>' for name, d in marks.items())
    told = escape(_told(outcomes[-most:]))
    return (
        f'<svg class="strip" viewBox="0 0 {most * _STEP} {_HIGH}" role="img" aria-label="{told}">'
        f"<title>{told}</title>{paths}</svg>"
    )


def _told(outcomes: Sequence[str]) -> str:
    failed = sum(outcome == "failed" for outcome in outcomes)
    return (
        f"{len(outcomes)} runs, {failed} failed"
        if len(outcomes) != 1
        else f"1 run, {failed} failed"
    )

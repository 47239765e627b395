"""The tables of a job's settings in the documentation, made from their declaration.

`python tests/settings_docs.py` writes them; a test fails when they are out of date.
"""

import re
from pathlib import Path

from evenbeat.domain.job import SETTINGS, JobSpec, Setting
from evenbeat.domain.setting_kinds import Choice, Count, Duration, Durations, Flag, Rate, Share

DOCS = Path(__file__).parents[1] / "docs"
DEFAULTS = JobSpec(task="any")


WORDS = {
    Duration: 'a duration: `"1h30m"` or seconds',
    Durations: 'a list of durations: `["10s", "1m"]`',
    Flag: "yes or no",
    Rate: '`"10/s"`, `"100/min"`, `"5 per 30s"`',
    Share: "0 to 1",
}


def values_of(setting: Setting) -> str:
    """What a setting may be, in a few words."""
    kind = setting.kind
    if isinstance(kind, Choice):
        return ", ".join(f"`{word}`" for word in kind.words)
    if isinstance(kind, Count):
        return f"{kind.low} to {kind.high:,}"
    return WORDS.get(type(kind), "text")


def default_of(setting: Setting) -> str:
    value = setting.of(DEFAULTS)
    return "" if value in (None, ()) else f"`{setting.kind.to_text(value)}`"


def reference_table() -> str:
    rows = (f"| `{s.name}` | {s.help} | {values_of(s)} | {default_of(s)} |" for s in SETTINGS)
    return "\n".join(["| setting | meaning | values | default |", "|---|---|---|---|", *rows])


def option_table() -> str:
    rows = (f"| `--{s.name.replace('_', '-')}` | {s.help} |" for s in SETTINGS)
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


TABLES = {"reference.md": reference_table, "cli.md": option_table}


def with_table(name: str, text: str) -> str:
    """The document with its table made again."""
    marks = r"(<!-- settings -->\n).*?(<!-- end -->)"
    return re.sub(marks, lambda m: f"{m[1]}{TABLES[name]()}\n{m[2]}", text, flags=re.DOTALL)


if __name__ == "__main__":
    for name in TABLES:
        path = DOCS / name
        path.write_text(with_table(name, path.read_text(encoding="utf-8")), encoding="utf-8")

"""Any values of a job's settings, as JSON documents write them."""

from typing import Any

from hypothesis import strategies as st

from evenbeat.domain.job import SETTINGS, Setting
from evenbeat.domain.setting_kinds import (
    ArgumentNames,
    Choice,
    Count,
    Duration,
    Durations,
    ErrorNames,
    Flag,
    Rate,
    Share,
    Size,
    TimeOfDay,
    Window,
)

_NAMES = st.text("abcäßz-:7", min_size=1, max_size=20)


_OF_KIND: dict[type, st.SearchStrategy[Any]] = {
    ArgumentNames: st.lists(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), min_size=1, max_size=4),
    ErrorNames: st.lists(st.from_regex(r"[A-Za-z_.]{1,20}", fullmatch=True), max_size=4),
    Durations: st.lists(st.integers(0, 86_400), max_size=4),
    Flag: st.booleans(),
    Rate: st.sampled_from(["1/s", "10/m", "100/h", "5/30s"]),
    Share: st.sampled_from([0, 0.1, 0.25, 1]),
    Size: st.integers(Size.least, Size.most),
    TimeOfDay: st.sampled_from(["08:00 Europe/Berlin", "23:59 UTC", "0:05 Asia/Kolkata"]),
    Window: st.sampled_from(["Mon-Fri 22:00-06:00 Europe/Berlin", "08:00-18:00 UTC", "off_peak"]),
}


def _values(setting: Setting) -> st.SearchStrategy[Any]:
    kind = setting.kind
    if isinstance(kind, Choice):
        return st.sampled_from([str(word) for word in kind.words])
    if isinstance(kind, Count):
        return st.integers(kind.low, min(kind.high, 1_000_000))
    if isinstance(kind, Duration):
        most = int(min(kind.most.total_seconds(), 10**8))
        least = 1 if kind.least else 0
        return st.integers(least, most * 1000).map(lambda thousandths: thousandths / 1000)
    return _OF_KIND.get(type(kind), _NAMES)


def settings_strategy() -> st.SearchStrategy[dict[str, Any]]:
    """Some of the settings, each with a value that it may have."""
    each = {setting.name: _values(setting) for setting in SETTINGS}
    return st.fixed_dictionaries({}, optional=each).filter(
        lambda some: (
            some.get("retry_cap", 10**9) >= some.get("retry_backoff", 60)
            and len(some.keys() & {"unique_for", "throttle", "debounce"}) < 2
            and some.get("debounce_max", 10**9) >= some.get("debounce", 10**9)
        )
    )

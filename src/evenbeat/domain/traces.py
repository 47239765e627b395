"""A traceback as its reader wants it: own frames told from those of libraries, the one that decides
first."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_FRAME = re.compile(r'[\s|+-]*File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')
_OTHERS = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3|^<")
_OURS = f"{Path(__file__).parent.parent}/"
_HEADER = "Traceback (most recent call last):"


class TraceFrame(NamedTuple):
    """A place in the code that an exception came by."""

    path: str
    line: int
    function: str
    code: str
    is_own: bool
    """Whether it is the application's: neither a library's, nor Python's, nor Evenbeat's."""


class TracePart(NamedTuple):
    """A few lines of a traceback: those of a frame, or what stands between frames."""

    text: str
    frame: TraceFrame | None = None


def read_trace(text: str) -> list[TracePart]:
    """The parts of a traceback; joined with newlines they are the text again."""
    parts: list[TracePart] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        end = at + 1
        match = _FRAME.match(lines[at])
        if match:
            deeper = f"{lines[at].partition('File')[0]}  "
            while end < len(lines) and lines[end].startswith(deeper):
                end += 1
            path = match["path"]
            is_own = not (_OTHERS.search(path) or path.startswith(_OURS))
            code = lines[at + 1].strip(" |") if end > at + 1 else ""
            frame = TraceFrame(path, int(match["line"]), match["function"], code, is_own)
            parts.append(TracePart("\n".join(lines[at:end]), frame))
        elif parts and parts[-1].frame is None:
            parts[-1] = TracePart(f"{parts[-1].text}\n{lines[at]}")
        else:
            parts.append(TracePart(lines[at]))
        at = end
    return parts


def decisive_frame(parts: Sequence[TracePart]) -> TraceFrame | None:
    """Where the application's own code was last, on the way to the exception that ended the run; if
    it was not on that way, on the way to an earlier one."""
    own = None
    last = max((n for n, part in enumerate(parts) if _HEADER in part.text), default=0)
    for part in parts[last:] or parts:
        if part.frame is not None and part.frame.is_own:
            own = part.frame
    earlier = (part.frame for part in reversed(parts) if part.frame and part.frame.is_own)
    return own or next(earlier, None)

"""How tasks reach beyond Python: URLs under an address policy, commands in process groups; and how
much is kept of a text that may be endless."""

import json


def fitting(text: str, room: int) -> str:
    """As much of the text's beginning as takes at most `room` bytes of JSON.

    Every character takes at least one byte and at most twelve (a pair of escapes).
    """
    if len(text) * 12 <= room or len(json.dumps(text)) <= room:
        return text
    low, high = 0, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(json.dumps(text[:middle])) <= room else (low, middle - 1)
    return text[:low]


class HeadAndTail:
    """The first and the last bytes of a stream, and how many there were."""

    def __init__(self, most: int) -> None:
        self.total = 0
        self._head_room = most - most // 2
        self._tail_room = most // 2
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """More of the stream."""
        self.total += len(data)
        taken = self._head_room - len(self._head)
        if taken > 0:
            self._head += data[:taken]
            data = data[taken:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_room:
            del self._tail[: len(self._tail) - self._tail_room]

    def text(self) -> str:
        """What was kept; where something is missing, a line says how much."""
        tail = bytes(self._tail[-self._tail_room :]) if self._tail_room else b""
        missing = self.total - len(self._head) - len(tail)
        if not missing:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        head, end = (part.decode("utf-8", "replace") for part in (bytes(self._head), tail))
        return f"{head}\n… {missing:,} bytes left out …\n{end}"

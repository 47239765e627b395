"""Who this worker is, precisely enough that a neighbour can tell whether it still lives."""

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import psutil  # type: ignore[import-untyped]

from evenbeat.domain.ids import uuid7


def this_host() -> str:
    """A name that two workers share only if they can see each other's processes.

    The host's name alone is not enough: containers may be given the same one, and then a pid says
    nothing. The boot and the process namespace tell them apart.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")  # noqa: PTH115 - not a path
    except OSError:
        boot, namespace = f"{psutil.boot_time():.0f}", "0"
    return f"{socket.gethostname()}/{boot}/{namespace}"


def process_birth(pid: int) -> float:
    """When a process started: seconds that no change of the machine's clock can alter. Raises
    psutil.Error when there is no such process, or it cannot be looked at."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # no such process, or no such file system
        return float(psutil.Process(pid).create_time())
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Identity:
    """A worker: an id of its own, and the process it lives in."""

    id: UUID = field(default_factory=uuid7)
    host: str = field(default_factory=this_host)
    pid: int = field(default_factory=os.getpid)
    process_started_at: float = field(default_factory=lambda: process_birth(os.getpid()))

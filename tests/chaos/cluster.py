"""Two PostgreSQL servers under Patroni, with etcd and HAProxy: all real, all on this machine.

On loopback; or each server on a host of its own, which is a network namespace that can be cut off.
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from fleet import end, is_alive

from on_installed_postgres import find_programs, server_user
from waiting import wait_for

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PROGRAMS = {name: shutil.which(name, path=_PATH) for name in ("patroni", "etcd", "haproxy", "ip")}
POSTGRES = find_programs()

# A primary that is gone is replaced after 20 seconds; with Patroni's defaults, after 30.
PATRONI = {"ttl": 20, "loop_wait": 2, "retry_timeout": 5}


def what_is_missing(*, hosts: bool = False) -> str | None:
    """Why no cluster can be had here; None if it can."""
    wanted = [name for name in PROGRAMS if hosts or name != "ip"]
    missing = [name for name in wanted if PROGRAMS[name] is None]
    if missing or POSTGRES is None:
        return f"not installed: {', '.join(missing) or 'PostgreSQL'} (make patroni)"
    if hosts and os.geteuid() != 0:
        return "only root can make network namespaces"
    return None


@dataclass
class Node:
    """One server with its Patroni."""

    name: str
    address: str
    port: int
    rest_port: int
    home: Path
    within: list[str]
    """What to put before a command to run it on this node's host, as the server's user."""
    link: str | None
    patroni: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.address}:{self.port}/postgres"

    def ask(self, path: str, body: dict[str, str] | None = None) -> Any:
        """What Patroni answers; None while it does not."""
        request = urllib.request.Request(
            f"http://{self.address}:{self.rest_port}/{path}",
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=60 if body else 2) as answer:  # noqa: S310
                text = answer.read()
        except OSError:
            return None
        return json.loads(text) if text.startswith(b"{") else text

    def start(self) -> None:
        with (self.home / "log").open("ab") as log:
            self.patroni = subprocess.Popen(
                [*self.within, str(PROGRAMS["patroni"]), str(self.home / "patroni.yml")],
                stdout=log,
                stderr=log,
                cwd=self.home,
            )

    def kill(self) -> None:
        """`kill -9` of Patroni and of every process of the server."""
        pids = []
        with suppress(OSError, ValueError, IndexError, psutil.NoSuchProcess):
            server = psutil.Process(
                int((self.home / "data" / "postmaster.pid").read_text().splitlines()[0])
            )
            pids = [server.pid, *(child.pid for child in server.children(recursive=True))]
        if self.patroni is not None:
            end([self.patroni.pid, *pids])
            self.patroni.wait()
        wait_for(lambda: not any(map(is_alive, pids)), f"{self.name} is gone")

    def cut_off(self) -> None:
        """Nothing reaches this host or leaves it any more, and nobody is told."""
        subprocess.run([str(PROGRAMS["ip"]), "link", "set", str(self.link), "down"], check=True)


@dataclass
class Cluster:
    """Which of the nodes is the primary is Patroni's affair."""

    nodes: list[Node]
    proxy_port: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def multi_host_url(self) -> str:
        hosts = ",".join(f"{node.address}:{node.port}" for node in self.nodes)
        return f"postgresql://postgres@{hosts}/postgres"

    @property
    def proxy_url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.proxy_port}/postgres"

    def roles(self) -> dict[str, Node]:
        """Who is `leader` and who is `sync_standby`, as far as they say so."""
        for node in self.nodes:
            if answer := node.ask("cluster"):
                by_name = {node.name: node for node in self.nodes}
                return {
                    member["role"]: by_name[member["name"]]
                    for member in answer["members"]
                    if member["state"] in ("running", "streaming")
                }
        return {}

    def primary_and_standby(self) -> tuple[Node, Node]:
        """Once replication is synchronous."""
        roles = wait_for(
            lambda: (found := self.roles()).keys() >= {"leader", "sync_standby"} and found,
            "one primary, one synchronous standby",
            120,
        )
        assert roles
        return roles["leader"], roles["sync_standby"]

    def switch_over(self) -> None:
        """The planned kind."""
        primary, standby = self.primary_and_standby()
        body = {"leader": primary.name, "candidate": standby.name}
        wait_for(
            lambda: primary.ask("switchover", body) or self.roles().get("leader") is standby,
            "the switch-over is done",
        )

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        for process in self.processes:
            process.kill()
            process.wait()


@contextmanager
def cluster(*, hosts: bool = False) -> Iterator[Cluster]:
    """A cluster with synchronous replication. With `hosts`, each server has a host of its own."""
    user = server_user()
    change_user = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"]
    as_user = [] if user is None else change_user
    with (
        _network(hosts) as (here, places),
        tempfile.TemporaryDirectory(prefix="eb-patroni-", ignore_cleanup_errors=True) as directory,
    ):
        home, ports = Path(directory), _free_ports(7)
        nodes = [
            Node(name, address, ports.pop(), ports.pop(), home / name, [*within, *as_user], link)
            for name, (address, within, link) in zip("ab", places, strict=True)
        ]
        made = Cluster(nodes, ports[0])
        (home / "haproxy.cfg").write_text(_haproxy(made))
        for node in nodes:
            node.home.mkdir()
            (node.home / "patroni.yml").write_text(json.dumps(_patroni(node, f"{here}:{ports[1]}")))
        if user is not None:
            for path in (home, *(node.home for node in nodes)):
                shutil.chown(path, user)
        etcd, peers = f"http://{here}:{ports[1]}", f"http://127.0.0.1:{ports[2]}"
        try:
            made.processes += [
                _run(home, "etcd", "--data-dir", "etcd", "--listen-client-urls", etcd,
                     "--advertise-client-urls", etcd, "--listen-peer-urls", peers,
                     "--initial-advertise-peer-urls", peers,
                     "--initial-cluster", f"default={peers}"),
                _run(home, "haproxy", "-db", "-f", "haproxy.cfg"),
            ]  # fmt: skip
            for node in nodes:
                node.start()
            made.primary_and_standby()
            yield made
        finally:
            made.close()


def _run(home: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (home / f"{name}.log").open("wb") as log:
        command = [str(PROGRAMS[name]), *arguments]
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=home)


def _patroni(node: Node, etcd: str) -> dict[str, Any]:
    where = f"{node.address}:{node.port}"
    trust = "host all all 0.0.0.0/0 trust"
    return {
        "scope": "evenbeat",
        "name": node.name,
        "etcd3": {"host": etcd},
        "restapi": dict.fromkeys(
            ("listen", "connect_address"), f"{node.address}:{node.rest_port}"
        ),
        "bootstrap": {
            "dcs": PATRONI | {"synchronous_mode": True},
            "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}, "no-sync"],
        },
        "postgresql": {
            "listen": where,
            "connect_address": where,
            "data_dir": str(node.home / "data"),
            "bin_dir": str(POSTGRES),
            "pgpass": str(node.home / "pgpass"),
            "pg_hba": ["local all all trust", trust, trust.replace("all all", "replication all")],
            "authentication": {
                "superuser": {"username": "postgres"},
                "replication": {"username": "postgres"},
            },
            "parameters": {
                "unix_socket_directories": str(node.home),
                "max_connections": 200,
                "fsync": "off",  # the machine itself does not fail here
            },
        },
    }  # fmt: skip


def _haproxy(cluster: Cluster) -> str:
    servers = "".join(
        f"  server {node.name} {node.address}:{node.port} check port {node.rest_port}\n"
        for node in cluster.nodes
    )
    return (
        "defaults\n  mode tcp\n  timeout connect 3s\n  timeout client 30m\n  timeout server 30m\n"
        f"listen primary\n  bind 127.0.0.1:{cluster.proxy_port}\n"
        "  option httpchk OPTIONS /primary\n  http-check expect status 200\n"
        "  default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions\n" + servers
    )


@contextmanager
def _network(hosts: bool) -> Iterator[tuple[str, list[tuple[str, list[str], str | None]]]]:
    """The address of this side; and of each host: its address, how to run something there, and the
    link that leads there."""
    if not hosts:
        yield "127.0.0.1", [("127.0.0.1", [], None)] * 2
        return

    def ip(*arguments: str) -> None:
        subprocess.run([str(PROGRAMS["ip"]), *arguments], check=True)

    # Addresses that are reserved for tests; the bridge leads nowhere but to these two hosts.
    number = os.getpid() % 250
    bridge, subnet = f"ebbr{number}", f"198.18.{number}"
    places: list[tuple[str, list[str], str | None]] = []
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("address", "add", f"{subnet}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for last in (11, 12):
            host, link, address = f"ebns{number}-{last}", f"ebv{number}-{last}", f"{subnet}.{last}"
            mac = f"02:eb:00:00:{number:02x}:{last:02x}"
            ip("netns", "add", host)
            places.append((address, [str(PROGRAMS["ip"]), "netns", "exec", host], link))
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0",
               "address", mac, "netns", host)  # fmt: skip
            ip("link", "set", link, "master", bridge, "up")
            ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", host, "link", "set", device, "up")
            # Known for good, so that a host that is cut off is a black hole and not "no route".
            ip("neighbour", "replace", address, "lladdr", mac, "dev", bridge, "nud", "permanent")
        yield f"{subnet}.1", places
    finally:
        for _, within, link in places:
            ip("netns", "delete", within[-1])
            ip("link", "delete", str(link))  # it outlives its host while a connection lingers there
        ip("link", "delete", bridge)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [free.getsockname()[1] for free in sockets]
    for free in sockets:
        free.close()
    return ports

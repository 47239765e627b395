"""The built-in task `shell`: real commands, what is allowed, and how they are ended."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from evenbeat import Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.errors import Fail, InvalidInput
from evenbeat.external import HeadAndTail, fitting, processes
from evenbeat.external.processes import Launch, run
from evenbeat.tasks.builtin import shell
from evenbeat.tasks.builtin.shell import allowed_argv
from evenbeat.testing import Harness
from waiting import wait_for


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pids_in(file: Path, count: int) -> list[int]:
    wait_for(lambda: file.exists() and len(file.read_text().split()) == count, f"{count} processes")
    return [int(text) for text in file.read_text().split()]


@pytest.fixture
def perform(database_url):
    """Runs one shell job on a machine that allows these commands; its job and its execution."""

    def run(payload, *, commands="*", variables=""):
        allowed = {"shell_commands": commands, "shell_variables": variables}
        app = Evenbeat(database_url, allow_shell=True, **allowed)
        app.include_builtins()
        with Harness(app) as harness:
            added = app.add(NewJob(JobSpec("shell"), payload))
            assert harness.drain() == 1
            (execution,) = app.store.read.executions_of(added.id).executions
            return app.store.read.job(added.id), execution

    return run


# -- commands and their ends ---------------------------------------------------------------------


def test_a_command_its_input_its_directory_and_its_output(perform, tmp_path):
    script = 'cat; pwd; echo "$GREETING" >&2; echo "$1"'
    job, run = perform(
        {
            "command": ["sh", "-c", script, "sh", "$(not expanded)"],
            "stdin": "grüße\n",
            "cwd": str(tmp_path),
            "env": {"GREETING": "hi"},
        }
    )
    assert job.status == "completed"
    assert run.result == {
        "exit_code": 0,
        "stdout": f"grüße\n{tmp_path}\n$(not expanded)\n",
        "stderr": "hi\n",
        "stdout_bytes": len(f"grüße\n{tmp_path}\n$(not expanded)\n".encode()),
        "stderr_bytes": 3,
    }


def test_a_line_for_sh_as_crontabs_have_them(perform):
    _, run = perform(
        {"command": 'echo "$MAILTO" | tr a-z A-Z && exit 0', "env": {"MAILTO": "ops"}},
        commands="sh",
    )
    assert run.result["stdout"] == "OPS\n"


def test_the_workers_own_variables_stay_with_it(perform, monkeypatch):
    monkeypatch.setenv("EVENBEAT_AUTH_SECRET", "hush" * 10)
    monkeypatch.setenv("PGPASSWORD", "hush")
    job, run = perform({"command": ["env"]})
    names = {line.partition("=")[0] for line in run.result["stdout"].splitlines()}
    assert names - {"LANG", "LC_ALL", "TZ", "TMPDIR"} == {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "EVENBEAT_JOB_ID", "EVENBEAT_PLAN_TIME",
        "EVENBEAT_ATTEMPT",
    }  # fmt: skip
    assert f"EVENBEAT_JOB_ID={job.id}\n" in run.result["stdout"]
    assert "hush" not in run.result["stdout"]


def test_an_exit_code_is_an_error_code_and_is_tried_again(perform):
    job, run = perform({"command": "echo before; echo 'disk full' >&2; exit 3"})
    assert (job.status, run.status, run.error_code) == ("scheduled", "failed", "exit_3")
    assert run.error_message == ("The command ended with exit code 3. Its last words: disk full")
    assert (run.result["exit_code"], run.result["stdout"]) == (3, "before\n")


def test_an_expected_exit_code_is_a_success(perform):
    job, run = perform({"command": "exit 24", "expected_exit": [0, 24]})
    assert (job.status, run.result["exit_code"]) == ("completed", 24)


def test_a_signal_is_named(perform):
    job, run = perform({"command": "kill -KILL $$"})
    assert (job.status, run.error_code) == ("scheduled", "SIGKILL")
    assert (run.result["exit_code"], run.result["signal"]) == (None, "SIGKILL")


def test_the_beginning_and_the_end_of_long_output_are_kept(perform):
    line = "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo last"
    _, run = perform({"command": line, "max_output_bytes": 1000})
    out = run.result["stdout"]
    assert run.result["stdout_bytes"] == 3_000_011
    assert out.startswith("first\nxxx")
    assert out.endswith("xxx" + "last\n")
    assert "… 2,999,011 bytes left out …" in out
    assert len(out) < 1100


def test_output_of_any_kind_fits_in_the_result(perform):
    line = "head -c 100000 /dev/zero | tee /dev/stderr"
    _, run = perform({"command": line, "max_output_bytes": shell.MOST_KEPT})
    assert (run.result["stdout_bytes"], run.result["stderr_bytes"]) == (100_000, 100_000)
    assert "omitted" not in run.result


def test_what_a_command_leaves_in_the_background_goes_on(perform, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "DRAIN_SECONDS", 0.1)
    file = tmp_path / "pid"
    job, _ = perform({"command": f"sleep 30 & echo $! > {file}"})
    assert job.status == "completed"
    (left,) = pids_in(file, 1)
    assert alive(left)
    psutil.Process(left).kill()


# -- what is allowed -----------------------------------------------------------------------------


def test_without_the_operators_word_there_is_no_such_task():
    app = Evenbeat(shell_commands="*")
    assert app.include_builtins() == ["http", "crawl"]
    assert "shell" not in app.registry


@pytest.mark.parametrize(
    ("command", "commands", "code"),
    [
        (["echo", "hi"], "", "command_refused"),
        (["echo", "hi"], "cat,/bin/ls", "command_refused"),
        ("echo hi", "echo", "command_refused"),
        (["sh", "-c", "echo hi"], "echo", "command_refused"),
        (["/tmp/echo"], "echo", "command_not_found"),  # noqa: S108
        (["./echo"], "echo", "command_not_found"),
        (["no-such-command-here"], "*", "command_not_found"),
    ],
)
def test_what_is_not_listed_is_refused_for_good(perform, command, commands, code):
    job, run = perform({"command": command}, commands=commands)
    assert (job.status, run.error_code) == ("failed", code)


def test_names_and_paths_mean_the_same_program(tmp_path):
    def argv(command, *allowed, shell="/bin/sh"):
        return allowed_argv(command, allowed, os.environ["PATH"], shell)

    real = argv(["echo"], "echo")[0]
    assert argv([real, "a"], "echo") == [real, "a"]
    assert argv(["echo"], real) == [real]
    assert argv("a | b", "sh") == ["/bin/sh", "-c", "a | b"]
    assert argv("a | b", "sh", shell="/bin/cat") == ["/bin/cat", "-c", "a | b"]  # noqa: S604
    own = tmp_path / "echo"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    with pytest.raises(Fail, match="not allowed on this machine"):
        argv([str(own)], "echo")


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "TAR_OPTIONS", "SHELL", "GREETING"])
def test_only_variables_that_the_operator_lists_may_be_set(perform, name):
    payload = {"command": ["echo"], "env": {name: "/bin/sh"}}
    job, run = perform(payload, commands="echo", variables="LANGUAGE")
    assert (job.status, run.error_code) == ("failed", "variable_refused")
    assert run.error_message == (
        f"The variable {name} may not be set on this machine. An operator can allow it: "
        "EVENBEAT_SHELL_VARIABLES, now LANGUAGE."
    )


def test_a_listed_variable_is_set(perform):
    payload = {"command": ["env"], "env": {"GREETING": "hi"}}
    job, run = perform(payload, commands="env", variables="LANGUAGE,GREETING")
    assert job.status == "completed"
    assert "GREETING=hi\n" in run.result["stdout"]


def test_a_directory_that_is_not_there(perform):
    job, run = perform({"command": ["echo"], "cwd": "/no/such/directory"})
    assert (job.status, run.error_code) == ("failed", "command_failed")
    assert run.error_message.endswith("in /no/such/directory: No such file or directory.")


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({}, "'command' is missing"),
        ({"command": []}, "a command is a list"),
        ({"command": " "}, "a command is a list"),
        ({"command": ["a\0b"]}, "NUL"),
        ({"command": ["a"], "cwd": "there"}, "absolute path"),
        ({"command": ["a"], "env": {"A=B": "c"}}, "no variable that can be set"),
        ({"command": ["a"], "env": {"A": 1}}, "valid string"),
        ({"command": ["a"], "expected_exit": [256]}, "255"),
        ({"command": ["a"], "max_output_bytes": 10**7}, "max_output_bytes"),
        ({"command": ["a"], "shell": True}, "there is no argument 'shell'"),
    ],
)
def test_a_wrong_payload_is_refused_when_the_job_is_added(payload, says):
    signature = shell.definition(Evenbeat().settings).signature
    with pytest.raises(InvalidInput) as caught:
        signature.encode((), payload)
    assert says.lower() in str(caught.value).lower()


def test_a_sound_payload_is_stored_as_it_was_given():
    signature = shell.definition(Evenbeat().settings).signature
    for payload in ({"command": "a | b"}, {"command": ["a"], "env": {"A": "b"}, "cwd": "/"}):
        assert signature.encode((), payload) == payload


# -- ending them ---------------------------------------------------------------------------------

# A daemon: it leaves its session, its group and its parents, and forgets its environment.
DAEMON = """
import os, signal, sys, time
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a") as file:
    print(os.getpid(), file=file)
time.sleep(300)
"""
# A command, one that it starts, one that does not listen when it is asked to end, and a daemon.
FAMILY = """
trap '' HUP
sleep 300 & echo $! >> {file}
sh -c 'trap "" TERM; echo $$ >> {file}; while :; do sleep 300; done' &
echo $$ >> {file}
env -i {python} {daemon} {file}
wait
"""


@pytest.fixture
def family(tmp_path):
    """A line for sh that starts four processes, and the file where they write their numbers."""
    file, daemon = tmp_path / "pids", tmp_path / "daemon.py"
    daemon.write_text(DAEMON)
    return FAMILY.format(file=file, python=sys.executable, daemon=daemon), file


@pytest.mark.parametrize("how", ["cancelled", "timeout"])
def test_cancelling_and_timeouts_end_the_whole_family(database_url, family, how, monkeypatch):
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.3)
    app = Evenbeat(database_url, allow_shell=True, shell_commands="sh", poll_seconds=0.05)
    app.include_builtins()
    line, file = family
    spec = JobSpec("shell", timeout=timedelta(seconds=2.5) if how == "timeout" else None)
    with app:
        added = app.add(NewJob(spec, {"command": line}))
        worker = app.worker()
        worker.start()
        try:
            members = pids_in(file, 4)
            if how == "cancelled":
                assert all(map(alive, members))
                app.store.control.cancel([added.id])
            wait_for(lambda: not any(map(alive, members)), "the family to end")
            last = lambda: app.store.read.executions_of(added.id).executions[0]  # noqa: E731
            wait_for(lambda: last().error_code == how, "the run to end")
        finally:
            worker.stop(0)


def test_a_command_that_is_asked_to_end_gets_time_to_do_so(tmp_path):
    """The first process dies of the signal at once; the one that tidies up is waited for."""
    file = tmp_path / "pids"
    script = f"""
    sh -c 'trap "sleep 0.3; echo tidied > {file}.done; exit" TERM; echo $$ >> {file};
           while :; do sleep 0.05; done' &
    echo $$ >> {file}
    wait
    """

    async def cancel_it() -> None:
        running = asyncio.create_task(run(launch("sh", "-c", script)))
        await asyncio.to_thread(pids_in, file, 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel_it())
    assert Path(f"{file}.done").read_text() == "tidied\n"
    assert not any(alive(int(pid)) for pid in file.read_text().split())


def launch(*argv: str) -> Launch:
    return Launch([f"/bin/{argv[0]}", *argv[1:]], {"PATH": "/usr/bin:/bin"}, "/", None, 1000)


def test_running_commands_takes_no_thread():
    async def several() -> set[str]:
        runs = [asyncio.create_task(run(launch("sleep", "0.2"))) for _ in range(5)]
        await asyncio.sleep(0.1)
        names = {thread.name for thread in threading.enumerate()}
        assert [ended.ending.exit_code for ended in await asyncio.gather(*runs)] == [0] * 5
        return names

    before = {thread.name for thread in threading.enumerate()}
    assert asyncio.run(several()) == before


WORKER = """
import asyncio, sys
from evenbeat.external.processes import Launch, run
async def main():
    env = {"PATH": "/usr/bin:/bin"}
    await run(Launch(["/bin/sh", "-c", "exit 0"], env, "/", None, 10))
    lines = sys.argv[1], "echo $$ >> " + sys.argv[2] + "; sleep 300"
    await asyncio.gather(*(run(Launch(["/bin/sh", "-c", line], env, "/")) for line in lines))
asyncio.run(main())
"""


def test_commands_end_with_a_worker_that_is_killed(family):
    line, file = family
    worker = subprocess.Popen([sys.executable, "-c", WORKER, line, str(file)])
    try:
        members = pids_in(file, 5)
        assert all(map(alive, members))
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    wait_for(lambda: not any(map(alive, members)), "the commands to end with their worker")


def test_a_supervisor_that_is_killed_takes_its_command_along(tmp_path):
    file = tmp_path / "pids"
    command = f"echo $$ > {file}; sleep 1; kill -KILL $PPID; sleep 300"
    ended = asyncio.run(run(launch("sh", "-c", command)))
    assert ended.ending.exit_code == -signal.SIGKILL
    wait_for(lambda: not any(map(alive, pids_in(file, 1))), "the command to end")


# -- keeping some of it --------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3, 7, 100])
@pytest.mark.parametrize("most", [0, 1, 5, 10, 99, 100, 200])
def test_head_and_tail(step, most):
    data = bytes(range(48, 123)) + b"0123456789" * 3
    kept = HeadAndTail(most)
    for start in range(0, len(data), step):
        kept.add(data[start : start + step])
    assert kept.total == len(data)
    text, whole = kept.text(), data.decode()
    if most >= len(data):
        assert text == whole
    else:
        head, tail = whole[: most - most // 2], whole[len(whole) - most // 2 :]
        assert text == f"{head}\n… {len(data) - most} bytes left out …\n{tail}"


def test_fitting_counts_what_json_takes():
    assert fitting("abc", 100) == "abc"
    assert fitting("x" * 100, 12) == "x" * 10
    assert fitting("ä" * 100, 14) == "ää"
    assert fitting("\0" * 10, 2) == ""

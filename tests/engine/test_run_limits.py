"""`memory_limit` and `cpu_limit`: real processes that take too much are ended, with all that they
started, and what runs take is measured."""

import multiprocessing
import os
import subprocess
import sys
import time
from datetime import timedelta

import psutil
import pytest
from loopback_site import serving

from evenbeat import Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.errors import InvalidInput
from evenbeat.external.supervisor import Meter, kill_tree
from waiting import stretched, wait_for

# At the top level, as in a user's module: a child process finds its task by name.
app = Evenbeat(name="limited")

# A daemon: it leaves its session and its parents. Then it does as it is told.
DAEMON = """
import os, sys, time
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
with open(sys.argv[1], "a") as file:
    print(os.getpid(), file=file)
"""
BURN = "while True: pass\n"
GROW = "blocks = []\nwhile True:\n    blocks.append(b'x' * 2**22); time.sleep(0.01)\n"


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def daemon(file: str, script: str) -> None:
    subprocess.run([sys.executable, "-c", DAEMON + script, file], check=True)


@app.task(isolate=True, memory_limit="200MB", max_retries=1, retry_backoff=0)
def grow(step: int = 2**22) -> None:
    blocks = []
    while True:
        blocks.append(b"x" * step)
        time.sleep(0.01)


@app.task(isolate=True, cpu_limit="1s", max_retries=0)
def burn() -> None:
    while True:
        pass


@app.task(isolate=True, max_retries=0)
def leave(file: str, script: str) -> None:
    daemon(file, script)
    time.sleep(60)


@app.task(isolate=True, memory_limit="1GB", cpu_limit="1m")
def modest(megabytes: int, seconds: float) -> int:
    block = b"x" * (megabytes * 2**20)
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    time.sleep(0.3)
    return len(block)


@app.task(isolate=True, memory_limit="400MB")
def share(megabytes: int) -> int:
    """Four forks that read what their parent has, and change nothing."""
    block = b"x" * (megabytes * 2**20)
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=time.sleep, args=(1.5,)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return len(block)


@app.task
def in_thread() -> str:
    return "ran"


@app.task
async def on_loop() -> str:
    return "ran"


@pytest.fixture
def perform(evenbeat_harness):
    """Runs one isolated job; its executions, oldest first."""

    def run(task, *args, **settings):
        harness = evenbeat_harness(app)
        added = task.options(**settings).enqueue(*args)
        harness.drain()
        while app.store.read.job(added.id).status == "scheduled":
            harness.advance("1m")
        return app.store.read.executions_of(added.id).executions[::-1]

    return run


@pytest.fixture
def shell(evenbeat_harness):
    """Runs one command under limits; its execution."""

    def run(command, **settings):
        own = Evenbeat(allow_shell=True, shell_commands="*")
        own.include_builtins()
        harness = evenbeat_harness(own)
        spec = JobSpec("shell", **settings)
        added = own.add(NewJob(spec, {"command": command}))
        harness.drain()
        (execution,) = own.store.read.executions_of(added.id).executions
        return execution

    return run


# -- isolated runs -------------------------------------------------------------------------------


def test_an_isolated_run_that_takes_too_much_memory_is_ended_and_tried_again(perform):
    first, second = perform(grow)
    assert (first.status, first.error_code) == ("failed", "memory_limit")
    assert second.error_code == "memory_limit"
    assert first.cpu_time_ms > 50
    took = round(first.memory_peak_mb)
    assert 200 <= took < 2000  # on a busy machine looks are seconds apart
    assert first.error_message == (
        f"The run's processes took {took} MB of memory, more than its memory_limit of 200MB "
        "allows, and were ended. Raise the limit, or let a run do less at once."
    )


def test_a_run_that_takes_memory_fast_is_ended_soon(perform):
    run = perform(grow, 2**26, max_retries=0)[0]
    assert run.error_code == "memory_limit"
    assert run.memory_peak_mb < 3000
    assert run.duration_ms < 10_000


def test_an_isolated_run_that_uses_too_much_cpu_time_is_ended(perform):
    (run,) = perform(burn)
    assert (run.status, run.error_code) == ("failed", "cpu_limit")
    assert 1000 < run.cpu_time_ms < 2500
    assert f"used {run.cpu_time_ms / 1000:.2f} s of CPU time, more than its cpu_limit of 1s" in (
        run.error_message
    )


@pytest.mark.parametrize(
    ("script", "limit"),
    [(BURN, {"cpu_limit": "2s"}), (GROW, {"memory_limit": "250MB"})],
    ids=["cpu", "memory"],
)
def test_daemons_of_an_isolated_run_count_and_are_ended_with_it(perform, tmp_path, script, limit):
    file = tmp_path / "pids"
    (run,) = perform(leave, str(file), script, **limit)
    assert run.error_code == next(iter(limit))
    (left,) = map(int, file.read_text().split())
    assert not alive(left)


def test_a_run_within_its_limits_is_left_alone_and_measured(perform):
    (run,) = perform(modest, 300, 0.8)
    assert (run.status, run.result) == ("completed", 300 * 2**20)
    assert 300 < run.memory_peak_mb < 500
    assert 800 < run.cpu_time_ms < 5000


def test_memory_that_forks_share_counts_once(perform):
    (run,) = perform(share, 200)
    assert run.status == "completed", run.error_message
    assert run.memory_peak_mb < 400


# -- commands ------------------------------------------------------------------------------------


@pytest.mark.parametrize("free", [False, True], ids=["child", "daemon"])
@pytest.mark.parametrize("limit", ["cpu_limit", "memory_limit"])
def test_what_a_command_starts_counts_and_is_ended_with_it(shell, tmp_path, limit, free):
    file, program = tmp_path / "pids", tmp_path / "program.py"
    script = BURN if limit == "cpu_limit" else GROW
    begin = DAEMON if free else DAEMON.replace("range(2)", "range(0)")
    program.write_text(begin + script)
    value = timedelta(seconds=1) if limit == "cpu_limit" else "150MB"
    line = f"echo before; sh -c '{sys.executable} {program} {file}; sleep 60'"
    run = shell(line, **{limit: value})
    assert (run.status, run.error_code) == ("failed", limit)
    assert (run.result["stdout"], run.result["exit_code"]) == ("before\n", None)
    assert f"more than its {limit} of {'1s' if limit == 'cpu_limit' else '150MB'}" in (
        run.error_message
    )
    (pid,) = map(int, file.read_text().split())
    assert not alive(pid)
    if limit == "cpu_limit":
        assert 1000 < run.cpu_time_ms < 1000 + stretched(1500)
    else:
        assert 150 < run.memory_peak_mb < 150 + stretched(250)  # it grows until it is looked at


def test_many_short_processes_add_up(shell):
    burst = f"{sys.executable} -S -c 'import time\nwhile time.process_time() < 0.2: pass'"
    line = f"for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do {burst}; done"
    run = shell(line, cpu_limit=timedelta(seconds=1.5))
    assert run.error_code == "cpu_limit"
    assert 1500 < run.cpu_time_ms < 3000


def test_a_command_is_measured_without_a_limit(shell):
    script = 'import time\nb = b"x" * 150_000_000\nwhile time.process_time() < 0.5: pass'
    run = shell([sys.executable, "-c", script])
    assert run.status == "completed"
    assert 500 < run.cpu_time_ms < 1500
    assert 143 < run.memory_peak_mb < 250
    idle = shell("sleep 0.2")
    assert 0 < idle.cpu_time_ms < 100
    assert 0.5 < idle.memory_peak_mb < 20


def test_a_command_that_times_out_is_measured_too(shell):
    run = shell([sys.executable, "-c", BURN], timeout=timedelta(seconds=2))
    assert run.error_code == "timeout"
    assert 100 < run.cpu_time_ms < 6000


def test_a_command_within_its_limits_is_left_alone(shell):
    run = shell("sleep 0.5; echo done", memory_limit="100MB", cpu_limit=timedelta(seconds=1))
    assert (run.status, run.result["stdout"]) == ("completed", "done\n")


@pytest.mark.parametrize("limit", [{}, {"memory_limit": "30MB"}, {"cpu_limit": "100ms"}])
def test_a_crawl_is_measured_and_held_to_its_limits(evenbeat_harness, limit):
    own = Evenbeat(allow_private_addresses=True)
    own.include_builtins()
    with serving() as site:
        site.answers["/"] = (200, {"content-type": "text/html"}, b"<title>Home</title>Welcome")
        harness = evenbeat_harness(own)
        spec = {"cpu_limit": timedelta(seconds=0.1)} if "cpu_limit" in limit else limit
        added = own.add(NewJob(JobSpec("crawl", **spec), {"url": site.url, "delay": 0}))
        harness.drain()
    (run,) = own.store.read.executions_of(added.id).executions
    assert run.error_code == next(iter(limit), None)
    assert run.cpu_time_ms > 90
    assert run.memory_peak_mb > 20


# -- where limits cannot be kept -----------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"memory_limit": "1GB"}, {"cpu_limit": "1m"}])
@pytest.mark.parametrize(("task", "where"), [(in_thread, "in a thread"), (on_loop, "on the event")])
def test_a_limit_that_cannot_be_kept_is_refused(task, where, limit):
    name = next(iter(limit))
    with pytest.raises(InvalidInput, match=f"runs {where}.*isolate=True") as caught:
        Evenbeat().task(**limit)(task._function)
    assert caught.value.field == name
    with pytest.raises(InvalidInput, match=where):
        task.options(**limit).enqueue()
    with pytest.raises(InvalidInput, match=where):
        app.enqueue_many([task.options(**limit).job()])


@pytest.mark.parametrize("task", [in_thread, on_loop])
def test_a_run_whose_limit_cannot_be_kept_fails_for_good(evenbeat_harness, task):
    """The job comes from a process that does not have the task."""
    harness = evenbeat_harness(app)
    added = app.store.add(NewJob(JobSpec(task.name, memory_limit="1GB")), now=app.now())
    harness.drain()
    (run,) = app.store.read.executions_of(added.id).executions
    assert (run.status, run.error_code, run.result) == ("failed", "limit_not_kept", None)
    assert "isolate=True" in run.error_message
    assert app.store.read.job(added.id).status == "failed"


# -- measuring -----------------------------------------------------------------------------------


def test_children_that_nobody_waits_for_count(tmp_path):
    """Their parent ignores SIGCHLD, so the kernel adds their time to nobody's."""
    script = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(5):
    if os.fork() == 0:
        while time.process_time() < 0.5: pass
        time.sleep(3)  # to be seen, also where looks are far apart
        os._exit(0)
    time.sleep(0.8)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        meter = Meter(process.pid, None, 1.2)
        wait_for(meter.exceeded, "the limit to be exceeded")
    finally:
        kill_tree(process.pid)
        process.wait()


def test_looking_is_paced(monkeypatch):
    meter = Meter(os.getpid(), 2**30, None)
    assert meter.exceeded() is None
    assert 0.1 < meter.pause <= 2
    assert Meter(os.getpid(), None, None).pause == float("inf")

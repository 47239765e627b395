"""A process of ours sets its collector once, in itself and not in the tests' process."""

import subprocess
import sys


def test_what_the_imports_left_is_not_looked_through_again() -> None:
    script = (
        "import gc; from evenbeat.cli.processes import tune_process; tune_process();"
        "print(gc.get_freeze_count() > 1000, gc.get_threshold()[0], gc.isenabled())"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert shown.stdout.split() == ["True", "20000", "True"], shown.stderr

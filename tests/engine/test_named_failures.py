"""A handler may name its failure, and leave a result with it."""

import pytest

from evenbeat import Evenbeat, Fail, Retry
from evenbeat.testing import Harness


class Bare(Fail):
    """A failure that somebody derived without our `__init__`."""

    def __init__(self) -> None:
        Exception.__init__(self, "bare")


@pytest.mark.parametrize(
    ("error", "code", "result", "status"),
    [
        (Retry("later", code="no_stock", result={"left": 0}), "no_stock", {"left": 0}, "scheduled"),
        (Fail("never", code="no_stock", result=[1]), "no_stock", [1], "failed"),
        (Fail("never", code="nul\0 and \ud800"), "nul\ufffd and ?", None, "failed"),
        (Fail("never", code="x" * 500), "x" * 100, None, "failed"),
        (Retry("later"), "retry", None, "scheduled"),
        (Fail("never"), "fail", None, "failed"),
        (Fail(), "fail", None, "failed"),
        (Bare(), "fail", None, "failed"),
    ],
)
def test_the_code_and_the_result_of_a_failure_are_kept(database_url, error, code, result, status):
    app = Evenbeat(database_url)

    @app.task
    async def sell() -> None:
        raise error

    with Harness(app) as harness:
        added = sell.enqueue()
        assert harness.drain() == 1
        (run,) = app.store.read.executions_of(added.id).executions
        assert (run.error_code, run.result) == (code, result)
        assert app.store.read.job(added.id).status == status

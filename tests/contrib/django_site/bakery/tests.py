"""Run by Django's own runner, on the test database that it makes."""

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.dispatch import Signal
from django.test import TransactionTestCase

try:
    from django.tasks import TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_finished, task_started
except ImportError:
    from django_tasks import TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_finished, task_started

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest

from bakery.models import Loaf
from bakery.tasks import Burnt, abake, awatch, bake, burn, knead, watch
from evenbeat.contrib.django import app
from evenbeat.contrib.django.backend import EvenbeatBackend
from evenbeat.contrib.django.models import DjangoJob
from evenbeat.testing import Harness


class OnTheTestDatabase(TransactionTestCase):
    def test_jobs_go_to_the_test_database_and_take_part_in_its_transactions(self) -> None:
        database = connection.settings_dict["NAME"]
        assert database.startswith("test_")
        assert database in app.store.database.url
        with transaction.atomic():
            Loaf.objects.create(kind="rye")
            added = bake.options(connection=connection).enqueue("rye")
            transaction.set_rollback(True)
        assert not DjangoJob.objects.filter(pk=added.id).exists()
        with transaction.atomic():
            added = bake.options(connection=connection).enqueue("rye")
        assert DjangoJob.objects.get(pk=added.id).payload == {"kind": "rye"}

    def test_the_admin_shows_jobs_and_changes_none(self) -> None:
        User.objects.create_superuser("baker", password="bread")  # noqa: S106
        self.client.login(username="baker", password="bread")  # noqa: S106
        added = bake.options(name="daily rye").enqueue("rye")
        listed = self.client.get("/admin/evenbeat/djangojob/?status=pending&q=daily")
        self.assertContains(listed, "daily rye")
        self.assertNotContains(
            self.client.get("/admin/evenbeat/djangojob/?status=failed"), "daily rye"
        )
        page = f"/admin/evenbeat/djangojob/{added.id}/change/"
        shown = self.client.get(page)
        self.assertContains(shown, "rye")
        self.assertNotContains(shown, 'name="_save"')
        assert self.client.post(page, {"task": "x"}).status_code == 403
        for address in (
            "/admin/evenbeat/djangojob/add/",
            f"/admin/evenbeat/djangojob/{added.id}/delete/",
        ):
            assert self.client.get(address).status_code == 403

    def test_jobs_run_in_a_harness(self) -> None:
        with Harness(app) as harness:
            bake.enqueue("rye")
            abake.enqueue("oat")
            harness.drain()
        assert set(Loaf.objects.values_list("kind", flat=True)) == {"rye", "oat"}

    def test_tasks_of_django_are_run_and_their_results_kept(self) -> None:
        with Harness(app) as harness:
            kneaded = knead.enqueue("rye", minutes=7)
            watched = watch.using(queue_name="slow").enqueue("oat")
            counted = awatch.enqueue()
            burnt = burn.enqueue()
            assert kneaded.status == TaskResultStatus.READY
            harness.drain()
            for result in (kneaded, watched, counted, burnt):
                result.refresh()
        assert kneaded.return_value == "rye kneaded for 7 min"
        assert (kneaded.args, kneaded.kwargs) == (["rye"], {"minutes": 7})
        assert None not in (kneaded.enqueued_at, kneaded.started_at, kneaded.finished_at)
        assert watched.return_value == [3, "['oat']"]
        assert watched.attempts == 3
        assert [error.exception_class for error in watched.errors] == [Burnt, Burnt]
        assert counted.return_value == 1
        assert burnt.status == TaskResultStatus.FAILED
        assert burnt.attempts == 1
        assert burnt.errors[0].exception_class is Burnt
        assert "Burnt: black" in burnt.errors[0].traceback
        assert burn.get_result(burnt.id).is_finished
        with pytest.raises(TaskResultMismatch):
            knead.get_result(burnt.id)
        for unknown in (bake.enqueue("rye").id, uuid4(), "nonsense"):
            with pytest.raises(TaskResultDoesNotExist):
                knead.get_result(str(unknown))

    def test_django_s_signals_tell_of_each_try_and_of_the_end(self) -> None:
        told: dict[str, list[tuple[str, str, int]]] = defaultdict(list)

        def listen(signal: Signal, name: str) -> Callable[..., None]:
            def hear(sender: type, task_result: TaskResult, **_: object) -> None:
                assert sender is EvenbeatBackend
                told[task_result.id].append((name, task_result.status, task_result.attempts))

            signal.connect(hear)
            return hear

        heard = [listen(task_started, "started"), listen(task_finished, "finished")]
        try:
            with Harness(app) as harness:
                tasks = [knead.enqueue("rye"), watch.enqueue("oat"), awatch.enqueue()]
                tasks.append(burn.enqueue())
                harness.drain()
        finally:
            for hear in heard:
                task_started.disconnect(hear)
                task_finished.disconnect(hear)
        once = ("started", "RUNNING", 1)
        assert [told[task.id] for task in tasks] == [
            [once, ("finished", "SUCCESSFUL", 1)],
            [once, ("started", "RUNNING", 2), ("started", "RUNNING", 3),
             ("finished", "SUCCESSFUL", 3)],
            [once, ("finished", "SUCCESSFUL", 1)],
            [once, ("finished", "FAILED", 1)],
        ]  # fmt: skip

    def test_tasks_of_django_wait_in_their_order_until_they_are_due(self) -> None:
        with Harness(app) as harness:
            low = burn.using(priority=-100).enqueue()
            high = burn.using(priority=100).enqueue()
            later = burn.using(run_after=harness.clock.now() + timedelta(hours=1)).enqueue()
            priorities = [DjangoJob.objects.get(pk=one.id).priority for one in (low, later, high)]
            assert priorities == [0, 50, 100]
            harness.advance("59m")
            low.refresh()
            later.refresh()
            assert (low.is_finished, later.status) == (True, TaskResultStatus.READY)
            assert later.task.priority == 0
            harness.advance("2m")
            later.refresh()
            assert later.is_finished

    def test_a_task_of_django_belongs_to_the_transaction_that_is_open(self) -> None:
        with transaction.atomic():
            lost = burn.enqueue()
            transaction.set_rollback(True)
        with transaction.atomic():
            kept = burn.enqueue()
        assert not DjangoJob.objects.filter(pk=lost.id).exists()
        assert DjangoJob.objects.filter(pk=kept.id).exists()

    def test_no_migration_is_missing(self) -> None:
        call_command("makemigrations", "evenbeat", check=True, dry_run=True, verbosity=0)

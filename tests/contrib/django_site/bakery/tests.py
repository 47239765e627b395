"""Run by Django's own runner, on the test database that it makes."""

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import TransactionTestCase

from bakery.models import Loaf
from bakery.tasks import abake, bake
from evenbeat.contrib.django import app
from evenbeat.contrib.django.models import Job
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
        assert not Job.objects.filter(pk=added.id).exists()
        with transaction.atomic():
            added = bake.options(connection=connection).enqueue("rye")
        assert Job.objects.get(pk=added.id).payload == {"kind": "rye"}

    def test_the_admin_shows_jobs_and_changes_none(self) -> None:
        User.objects.create_superuser("baker", password="bread")  # noqa: S106
        self.client.login(username="baker", password="bread")  # noqa: S106
        added = bake.options(name="daily rye").enqueue("rye")
        listed = self.client.get("/admin/evenbeat/job/?status=pending&q=daily")
        self.assertContains(listed, "daily rye")
        self.assertNotContains(self.client.get("/admin/evenbeat/job/?status=failed"), "daily rye")
        page = f"/admin/evenbeat/job/{added.id}/change/"
        shown = self.client.get(page)
        self.assertContains(shown, "rye")
        self.assertNotContains(shown, 'name="_save"')
        assert self.client.post(page, {"task": "x"}).status_code == 403
        for address in ("/admin/evenbeat/job/add/", f"/admin/evenbeat/job/{added.id}/delete/"):
            assert self.client.get(address).status_code == 403

    def test_jobs_run_in_a_harness(self) -> None:
        with Harness(app) as harness:
            bake.enqueue("rye")
            abake.enqueue("oat")
            harness.drain()
        assert set(Loaf.objects.values_list("kind", flat=True)) == {"rye", "oat"}

    def test_no_migration_is_missing(self) -> None:
        call_command("makemigrations", "evenbeat", check=True, dry_run=True, verbosity=0)

"""Jobs as Django's ORM reads them. Nothing is written by it: what may change has verbs."""

from typing import Any

from django.db import models

from evenbeat.contrib.django import app
from evenbeat.domain.states import JobStatus


def table() -> str:
    """Where the jobs are; Django puts its quotes around the whole."""
    return f'{app.schema}"."jobs'


class JobManager(models.Manager["DjangoJob"]):
    """On the database that Evenbeat uses, once its tables are there."""

    def get_queryset(self) -> Any:
        app.store  # noqa: B018 - migrates on first use
        return super().get_queryset().using(app.database)


class DjangoJob(models.Model):
    """A row of Evenbeat's own table."""

    id = models.UUIDField(primary_key=True)
    task = models.TextField()
    name = models.TextField(null=True)
    queue = models.TextField()
    status = models.TextField(choices=[(status.value, status.value) for status in JobStatus])
    priority = models.IntegerField()
    created_at = models.DateTimeField()
    next_run_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    current_retry_count = models.IntegerField("retries so far")
    error_message = models.TextField("last error", null=True)
    payload = models.JSONField("arguments")
    metadata = models.JSONField()

    objects = JobManager()

    class Meta:
        managed = False
        db_table = table()
        ordering = ("-id",)
        verbose_name = "job"

    def __str__(self) -> str:
        return self.name or f"{self.task} {self.id}"

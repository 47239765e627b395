"""A list of jobs in Django's admin, to look at."""

from typing import Any

from django.contrib import admin

from evenbeat.contrib.django.models import DjangoJob


@admin.register(DjangoJob)
class JobAdmin(admin.ModelAdmin):
    """Whoever may view jobs sees them; nobody changes them here."""

    list_display = ("id", "task", "name", "queue", "status", "next_run_at", "current_retry_count")
    list_filter = ("status",)
    search_fields = ("task", "name")
    show_full_result_count = False

    def has_add_permission(self, *_: Any) -> bool:
        return False

    def has_change_permission(self, *_: Any) -> bool:
        return False

    def has_delete_permission(self, *_: Any) -> bool:
        return False

"""What Django finds by `INSTALLED_APPS`."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class EvenbeatConfig(AppConfig):
    """Imports the module `tasks` of every installed application."""

    name = "evenbeat.contrib.django"
    label = "evenbeat"
    verbose_name = "Evenbeat"

    def ready(self) -> None:
        autodiscover_modules("tasks")

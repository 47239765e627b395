"""`manage.py evenbeat …`: Evenbeat's command line, on Django's database and the project's tasks."""

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from evenbeat.cli import main
from evenbeat.contrib.django import app


class EvenbeatCommand(BaseCommand):
    """Passes everything on, and names the application to the commands that run jobs."""

    help = __doc__

    def run_from_argv(self, argv: list[str]) -> None:
        """Before Django looks for options of its own among ours."""
        self.handle(arguments=argv[2:])

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs="*", help="See evenbeat --help.")

    def handle(self, *_args: Any, arguments: list[str], **_options: Any) -> None:
        if (url := app.settings.database_url) is not None:
            os.environ.setdefault("EVENBEAT_DATABASE_URL", url.get_secret_value())
        os.environ.setdefault("EVENBEAT_SCHEMA", app.schema)
        if arguments[:1] in (["worker"], ["serve"]) and "--app" not in arguments:
            target = "evenbeat.contrib.django.service:app"
            arguments = [arguments[0], "--app", target, *arguments[1:]]
        main(arguments)


Command = EvenbeatCommand  # the name that Django looks for

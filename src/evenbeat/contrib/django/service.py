"""The application for processes that have yet to set up Django: those started by
`--app evenbeat.contrib.django.service:app`, and the children of isolated runs."""

import django
from django.apps import apps

from evenbeat.contrib.django import app

__all__ = ["app"]

if not apps.ready:
    django.setup()

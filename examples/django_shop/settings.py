"""The least that a Django project needs."""

import os

from psycopg.conninfo import conninfo_to_dict

_where = conninfo_to_dict(os.environ["DATABASE_URL"])
_names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}

SECRET_KEY = os.environ.get("SECRET_KEY", "only for a try")
DEBUG = True
USE_TZ = True
ROOT_URLCONF = "orders.urls"
INSTALLED_APPS = ["evenbeat.contrib.django", "orders"]
EVENBEAT = {"name": "shop"}
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        **{name: _where[part] for name, part in _names.items() if part in _where},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

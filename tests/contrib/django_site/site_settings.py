import os

from psycopg.conninfo import conninfo_to_dict

_parts = conninfo_to_dict(os.environ["SITE_DATABASE"])
SECRET_KEY = "only for tests"  # noqa: S105
DEBUG = False
USE_TZ = True
ROOT_URLCONF = "site_urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "evenbeat.contrib.django",
    "bakery",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts["dbname"],
        "USER": _parts.get("user", ""),
        "PASSWORD": _parts.get("password", ""),
        "HOST": _parts.get("host", ""),
        "PORT": _parts.get("port", ""),
        "CONN_MAX_AGE": None,  # kept for ever: nothing but care replaces a broken one
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TASKS = {
    "default": {"BACKEND": "evenbeat.contrib.django.backend.EvenbeatBackend"},
    "patient": {
        "BACKEND": "evenbeat.contrib.django.backend.EvenbeatBackend",
        "QUEUES": ["default", "slow"],
        "OPTIONS": {"max_retries": 2, "retry_backoff": 0},
    },
}
EVENBEAT = {"name": "bakery", "db_schema": "bakery_jobs"}

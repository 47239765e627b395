"""Background jobs of a Django project, in the database that it has anyway.

    export DATABASE_URL=postgresql://user:password@localhost:5432/shop
    python examples/django_shop/manage.py migrate --run-syncdb
    python examples/django_shop/manage.py runserver
    python examples/django_shop/manage.py evenbeat worker    # in another terminal

    curl -X POST localhost:8000/orders -d item=tea           # {"order": 1, "job": "…"}
    curl localhost:8000/orders/1                             # {"item": "tea", "receipt": "one tea"}

An order and the job that prints its receipt are added in one transaction: either both are there, or
neither. Workers find the tasks in orders/tasks.py, and look after Django's connections.
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    execute_from_command_line(sys.argv)

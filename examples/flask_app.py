"""Background jobs of a Flask application, in worker processes beside it.

    flask --app examples/flask_app run
    evenbeat worker --app examples/flask_app.py:jobs

    curl -X POST localhost:5000/orders -d item=tea       # {"job_id": "…"}
    curl localhost:5000/receipts/…                       # {"status": "completed", "receipt": "…"}

The site only enqueues. A job runs in an application context, so that its handler finds the
configuration and the extensions of the application as a request does.
"""

from typing import Any

from flask import Flask, current_app, request

from evenbeat import Evenbeat
from evenbeat.contrib.flask import use_app_context

jobs = Evenbeat(name="orders")


@jobs.task(max_retries=5, retry_backoff="2s")
def print_receipt(item: str) -> str:
    return f"{current_app.config['SHOP']}: one {item}, {current_app.config['PRICE']} EUR"


def create_app() -> Flask:
    site = Flask(__name__)
    site.config.from_mapping(SHOP="The corner shop", PRICE=7)
    site.config.from_prefixed_env()  # FLASK_PRICE=8 for the site and the workers

    @site.post("/orders")
    def make_order() -> tuple[dict[str, str], int]:
        return {"job_id": str(print_receipt.enqueue(item=request.form["item"]).id)}, 201

    @site.get("/receipts/<uuid:job_id>")
    def receipt(job_id: str) -> dict[str, Any]:
        job = jobs.job(job_id)
        status = job.status()
        return {"status": status, "receipt": job.result() if status == "completed" else None}

    return site


use_app_context(jobs, create_app)

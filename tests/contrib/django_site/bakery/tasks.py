from asgiref.sync import sync_to_async

from bakery.models import Loaf
from evenbeat.contrib.django import app


@app.task(max_retries=3, retry_backoff="100ms")
def bake(kind: str) -> int:
    return Loaf.objects.create(kind=kind).pk


@app.task(max_retries=3, retry_backoff="100ms")
async def abake(kind: str) -> int:
    return (await Loaf.objects.acreate(kind=kind)).pk


@app.task(isolate=True)
def bake_apart(kind: str) -> int:
    return Loaf.objects.create(kind=kind).pk


@app.every("1h", schedule_name="count loaves")
def count() -> int:
    return Loaf.objects.count()


@app.task
async def count_in_thread() -> int:
    return await sync_to_async(Loaf.objects.count)()

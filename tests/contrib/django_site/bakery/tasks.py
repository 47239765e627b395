from asgiref.sync import sync_to_async

from bakery.models import Loaf
from evenbeat.contrib.django import app

try:
    from django.tasks import TaskContext, task
except ImportError:
    from django_tasks import TaskContext, task


class Burnt(Exception):
    pass


@task
def knead(kind: str, *, minutes: int = 5) -> str:
    return f"{kind} kneaded for {minutes} min"


@task(takes_context=True, backend="patient")
def watch(context: TaskContext, kind: str) -> list[object]:
    if context.attempt < 3:
        raise Burnt(kind)
    return [context.attempt, str(context.task_result.args)]


@task(takes_context=True, priority=40)
async def awatch(context: TaskContext) -> int:
    return (await Loaf.objects.acount()) + context.attempt


@task
def burn() -> None:
    raise Burnt("black")


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

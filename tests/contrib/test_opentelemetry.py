"""Traces and metrics of runs, in OpenTelemetry's own in-memory exporters; on a working worker."""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from evenbeat import Context, Evenbeat
from evenbeat.contrib.opentelemetry import instrument
from waiting import wait_for


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


@pytest.fixture
def app(database_url: str, provider: TracerProvider) -> Iterator[Evenbeat]:
    app = Evenbeat(database_url, name="shop", concurrency=4, threads=2)
    instrument(app, tracer_provider=provider)
    yield app
    app.close()


def work_until(app: Evenbeat, *job_ids: UUID) -> None:
    """A worker, until these jobs are over."""

    def over() -> bool:
        return all(app.store.read.job(id_).status in ("completed", "failed") for id_ in job_ids)

    worker = app.worker()
    worker.start()
    try:
        wait_for(over, "the jobs to end")
    finally:
        worker.stop(grace=5)


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


async def _enqueue_over_http(api: FastAPI) -> UUID:
    transport = httpx.ASGITransport(app=api)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        answer = await client.post("/orders")
    return UUID(answer.json())


@pytest.mark.parametrize("route", ["plain", "async"])
@pytest.mark.parametrize("place", ["loop", "thread"])
def test_a_trace_leads_from_a_request_through_a_retried_job(app, provider, spans, route, place):
    tracer = trace.get_tracer("shop", tracer_provider=provider)

    def receipt(ctx: Context) -> None:
        with tracer.start_as_current_span("print receipt"):
            if ctx.attempt == 1:
                raise ConnectionError("no printer")

    if place == "loop":

        @app.task(name="send_receipt", max_retries=1, retry_backoff=0)
        async def send_receipt(ctx: Context) -> None:
            receipt(ctx)
    else:
        send_receipt = app.task(receipt, name="send_receipt", max_retries=1, retry_backoff=0)

    api = FastAPI()
    if route == "plain":

        @api.post("/orders")
        def make_order() -> UUID:
            return send_receipt.enqueue().id
    else:

        @api.post("/orders")
        async def make_order() -> UUID:
            return (await send_receipt.enqueue_async()).id

    FastAPIInstrumentor.instrument_app(api, tracer_provider=provider, exclude_spans=["send"])
    job_id = asyncio.run(_enqueue_over_http(api))
    work_until(app, job_id)

    (request,) = named(spans, "POST /orders")
    first, second = named(spans, "run send_receipt")
    assert first.parent.span_id == request.context.span_id
    assert first.context.trace_id == request.context.trace_id
    assert first.links == ()
    assert second.parent is None
    assert second.context.trace_id != request.context.trace_id
    assert [link.context.span_id for link in second.links] == [request.context.span_id]
    assert [link.context.trace_id for link in second.links] == [request.context.trace_id]

    # What the handler does is inside, and what it raised is told.
    parents = [span.parent.span_id for span in named(spans, "print receipt")]
    assert parents == [first.context.span_id, second.context.span_id]
    assert (first.status.status_code.name, second.status.status_code.name) == ("ERROR", "UNSET")
    assert first.events[0].attributes["exception.message"] == "no printer"
    assert first.kind is trace.SpanKind.CONSUMER
    assert first.attributes["messaging.message.id"] == str(job_id)
    assert [span.attributes["evenbeat.attempt"] for span in (first, second)] == [1, 2]


def test_a_job_that_nobody_traced_and_a_schedule_begin_traces_of_their_own(app, provider, spans):
    @app.every("1h", schedule_name="hourly")
    async def tick() -> None: ...

    @app.task
    async def child() -> None: ...

    with trace.get_tracer("shop", tracer_provider=provider).start_as_current_span("deploy"):
        app.sync_schedules()
    added = child.options(metadata={"traceparent": 5, "tracestate": "nonsense"}).enqueue()
    scheduled = app.store.read.job_by_name("hourly")
    assert scheduled.metadata == {}
    app.store.control.run_now([scheduled.id])
    worker = app.worker()
    worker.start()
    wait_for(lambda: named(spans, "run tick") and named(spans, "run child"), "both")
    worker.stop(grace=5)
    assert app.store.read.job(added.id).status == "completed"
    assert [span.parent for span in spans.get_finished_spans()] == [None] * 3


def test_a_job_that_a_run_enqueues_is_its_child(app, spans):
    @app.task
    def child() -> None: ...

    @app.task
    async def parent() -> str:
        return str((await child.enqueue_async()).id)

    added = parent.enqueue()
    worker = app.worker()
    worker.start()
    wait_for(lambda: named(spans, "run child"), "the child")
    worker.stop(grace=5)
    (outer,), (inner,) = named(spans, "run parent"), named(spans, "run child")
    assert inner.parent.span_id == outer.context.span_id
    assert outer.attributes["messaging.message.id"] == str(added.id)


def test_ends_and_durations_are_counted(database_url):
    reader = InMemoryMetricReader()
    app = Evenbeat(database_url, name="shop")
    instrument(app, meter_provider=MeterProvider([reader], shutdown_on_exit=False))

    @app.task(max_retries=1, retry_backoff=0, queue="mail")
    async def send(works: bool) -> None:
        if not works:
            raise ConnectionError

    with app:
        work_until(app, send.enqueue(True).id, send.enqueue(False).id)
    found: dict[str, Any] = {
        metric.name: metric.data.data_points
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    ends = {point.attributes["evenbeat.end"]: point.value for point in found["evenbeat.runs"]}
    assert ends == {"complete": 1, "retry": 1, "failed": 1}
    (durations,) = found["evenbeat.run.duration"]
    assert durations.count == 3
    assert dict(durations.attributes) == {
        "evenbeat.task": "send",
        "messaging.destination.name": "mail",
    }


# -- isolated: the child process has an exporter of its own, here to a file ------------------------


class FileExporter(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        with SPANS.open("a") as file:
            file.writelines(span.to_json(indent=None) + "\n" for span in spans)
        return SpanExportResult.SUCCESS


SPANS = (
    Path(tempfile.gettempdir())
    / f"evenbeat-spans-{os.environ.setdefault('SPANS', str(os.getpid()))}"
)
ISOLATED = Evenbeat(name="isolated")
BATCHING = TracerProvider(shutdown_on_exit=False)
BATCHING.add_span_processor(BatchSpanProcessor(FileExporter(), schedule_delay_millis=3_600_000))
instrument(ISOLATED, tracer_provider=BATCHING)


@ISOLATED.task(isolate=True)
def isolated() -> None: ...


def test_the_span_of_an_isolated_run_is_exported_before_its_process_ends(evenbeat_harness):
    harness = evenbeat_harness(ISOLATED)
    with trace.get_tracer("shop", tracer_provider=BATCHING).start_as_current_span(
        "request"
    ) as span:
        added = isolated.enqueue()
    harness.drain()
    (line,) = SPANS.read_text().splitlines()
    SPANS.unlink()
    told = json.loads(line)
    assert told["attributes"]["messaging.message.id"] == str(added.id)
    assert int(told["parent_id"], 16) == span.get_span_context().span_id

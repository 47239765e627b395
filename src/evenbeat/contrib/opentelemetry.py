"""OpenTelemetry: a span for each attempt, joined with the trace that enqueued the job; and metrics.

Needs the extra: `pip install 'evenbeat[opentelemetry]'`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import metrics, propagate, trace

from evenbeat.app import Evenbeat
from evenbeat.events import EVENT_OF_END, Event
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import RunnerKind

SYSTEM = "evenbeat"


def instrument(
    app: Evenbeat,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> None:
    """Trace and measure this application's runs, by the providers that OpenTelemetry has unless
    others are given. Call it once, where isolated runs see it too: beside the application."""
    tracer = trace.get_tracer("evenbeat", tracer_provider=tracer_provider)
    meter = metrics.get_meter("evenbeat", meter_provider=meter_provider)
    runs = meter.create_counter("evenbeat.runs", "{run}", "Runs that have ended, by how.")
    durations = meter.create_histogram("evenbeat.run.duration", "s", "How long handlers took.")

    @app.on_enqueue
    def trace_context() -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier

    @app.around
    @contextmanager
    def traced(ctx: Context) -> Iterator[None]:
        job = ctx.job
        context = propagate.extract({k: v for k, v in job.metadata.items() if isinstance(v, str)})
        links = []
        if ctx.attempt > 1:
            # A retry may come hours later: a trace of its own, which knows where it came from.
            enqueued = trace.get_current_span(context).get_span_context()
            links = [trace.Link(enqueued)] if enqueued.is_valid else []
            context = trace.set_span_in_context(trace.INVALID_SPAN, context)
        attributes: dict[str, str | int] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "run",
            "messaging.operation.type": "process",
            "messaging.destination.name": job.queue,
            "messaging.message.id": str(job.id),
            "evenbeat.task": job.task,
            "evenbeat.execution_id": str(ctx.execution_id),
            "evenbeat.attempt": ctx.attempt,
        }
        try:
            with tracer.start_as_current_span(
                f"run {job.task}",
                context,
                kind=trace.SpanKind.CONSUMER,
                attributes=attributes,
                links=links,
            ):
                yield
        finally:
            if app.registry.get(job.task).runs is RunnerKind.ISOLATED:
                # The child process is ended with its report, before any exporter's own rhythm.
                provider = tracer_provider or trace.get_tracer_provider()
                getattr(provider, "force_flush", lambda: None)()

    def measure(event: Event) -> None:
        labels = {"evenbeat.task": event.job.task, "messaging.destination.name": event.job.queue}
        runs.add(1, labels | {"evenbeat.end": event.kind.removeprefix("job:")})
        if event.duration_ms is not None:
            durations.record(event.duration_ms / 1000, labels)

    for kind in EVENT_OF_END.values():
        app.events.on(kind, measure)

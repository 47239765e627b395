"""Templates over HTTP: store definitions of jobs with parameters, and make jobs from them."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from evenbeat.api.dependencies import Operator, ServiceDep, Viewer
from evenbeat.api.fields import (
    MAX_DESCRIPTION,
    Json,
    Limit,
    Number,
    Offset,
    Page,
    RowDocument,
    fields_of,
    one_given,
)
from evenbeat.api.idempotency import KeyHeader
from evenbeat.api.jobs import CREATED, create
from evenbeat.api.requests import JobCreate, Request, new_job, task_of
from evenbeat.api.responses import JobDocument
from evenbeat.domain.job import JobSpec
from evenbeat.domain.templates import (
    LONGEST_NAME,
    LONGEST_PATTERN,
    MOST_PARAMETERS,
    PARAMETER_NAME,
    TEMPLATE_NAME,
    TYPES,
    check_template,
    check_template_name,
    fill,
    placeholders_in,
    read_parameters,
    stored_parameters,
)
from evenbeat.errors import InvalidInput, validation_message
from evenbeat.store.api_tables import NewTemplate, Template

router = APIRouter(prefix="/api/v1/templates", tags=["templates"])

Scalar = str | bool | int | float
_NAME = {"pattern": f"^{TEMPLATE_NAME.pattern}$"}
NamePath = Annotated[str, Path(max_length=LONGEST_NAME, json_schema_extra=_NAME)]


class ParameterFields(Request):
    """A parameter and its rules. `min` and `max` bound a number, or the length of a text."""

    type: str = Field("string", json_schema_extra={"enum": [*TYPES]})
    description: Annotated[str, Field(max_length=1000)] | None = None
    default: Scalar | None = Field(None, description="The value where none is given.")
    required: bool | None = Field(None, description="True unless there is a default.")
    enum: Annotated[list[Scalar], Field(min_length=1, max_length=100)] | None = None
    pattern: Annotated[str, Field(max_length=LONGEST_PATTERN)] | None = Field(
        None, description="A regular expression that the whole text must match."
    )
    min: int | float | None = None
    max: int | float | None = None


class TemplateFields(Request):
    """What a template consists of, besides its name."""

    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] | None = None
    parameters: Annotated[dict[str, ParameterFields], Field(max_length=MOST_PARAMETERS)] = Field(
        default_factory=dict,
        json_schema_extra={"propertyNames": {"pattern": f"^{PARAMETER_NAME.pattern}$"}},
    )
    body: Json = Field(
        description="A job as POST /api/v1/jobs takes it; strings may hold {{name}}.",
        examples=[{"task": "send_report", "payload": {"to": "a@b.c"}, "schedule": "@daily"}],
        json_schema_extra=one_given("task", "url"),
    )


class TemplateCreate(TemplateFields):
    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, json_schema_extra=_NAME)]


class TemplateUse(Request):
    parameters: Json = Field(
        default_factory=dict,
        max_length=MOST_PARAMETERS,
        description="The parameters' values.",
        examples=[{"n": 7}],
    )


class ParameterDocument(BaseModel):
    """A parameter and its rules."""

    type: str
    description: Annotated[str | None, BeforeValidator(lambda text: text or None)]
    default: Any
    required: bool
    enum: Annotated[list[Any] | None, BeforeValidator(lambda values: values or None)]
    pattern: str | None
    min: Number | None
    max: Number | None


@fields_of(Template)
class TemplateDocument(RowDocument):
    """A template as it is stored."""

    parameters: Annotated[dict[str, ParameterDocument], BeforeValidator(stored_parameters)]


class TemplateList(Page):
    templates: list[TemplateDocument]


class TemplatePreview(BaseModel):
    """The job that would be added, as POST /api/v1/jobs would take it."""

    job: Json
    parameters: Json
    schedule_text: str


@router.get("", summary="List templates")
def list_templates(
    service: ServiceDep,
    _principal: Viewer,
    search: Annotated[str | None, Query(max_length=200, description="In name or text.")] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> TemplateList:
    """A page of the templates, by name."""
    templates, total = service.store.templates.page(search=search, limit=limit, offset=offset)
    documents = [TemplateDocument.of(template) for template in templates]
    return TemplateList(templates=documents, total=total, limit=limit, offset=offset)


@router.post("", summary="Store a template", status_code=201)
def create_template(
    body: TemplateCreate, service: ServiceDep, principal: Operator
) -> TemplateDocument:
    """Store a new template. What can be checked without values is checked now."""
    new = _checked(body.name, body, principal.subject)
    return TemplateDocument.of(service.store.templates.add(new, now=service.now))


@router.get("/{name}", summary="Look at a template")
def get_template(name: NamePath, service: ServiceDep, _principal: Viewer) -> TemplateDocument:
    """The template of this name."""
    return TemplateDocument.of(service.store.templates.get(name))


@router.put("/{name}", summary="Store or replace a template")
def put_template(
    name: NamePath, body: TemplateFields, service: ServiceDep, principal: Operator
) -> TemplateDocument:
    """Store it under this name, replacing what was there. Jobs made from that stay as they are."""
    new = _checked(name, body, principal.subject)
    return TemplateDocument.of(service.store.templates.save(new, now=service.now))


@router.delete("/{name}", summary="Delete a template", status_code=204)
def delete_template(name: NamePath, service: ServiceDep, _principal: Operator) -> None:
    """Remove it; jobs made from it stay."""
    service.store.templates.delete(name)


@router.post("/{name}/preview", summary="Fill a template in")
def preview_template(
    name: NamePath, body: TemplateUse, service: ServiceDep, _principal: Viewer
) -> TemplatePreview:
    """The job that these values make; nothing is added."""
    document, request, used = _fill(service.store.templates.get(name), body.parameters)
    job = new_job(request, JobSpec(task=task_of(request)), {}, "preview")
    schedule_text = job.spec.schedule.describe()
    return TemplatePreview(job=document, parameters=used, schedule_text=schedule_text)


@router.post(
    "/{name}/jobs",
    summary="Add a job from a template",
    status_code=201,
    response_model=JobDocument,
    responses=CREATED,
)
def use_template(  # noqa: PLR0917 - FastAPI's own way
    name: NamePath,
    body: TemplateUse,
    request: HttpRequest,
    service: ServiceDep,
    principal: Operator,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Add the job that these values make. It is answered as POST /api/v1/jobs does, and its
    metadata names the template."""
    _, job, _ = _fill(service.store.templates.get(name), body.parameters)
    return create(job, request, service, principal, idempotency_key, asked=(name, body))


def _fill(template: Template, values: Json) -> tuple[Json, JobCreate, Json]:
    """The job as a document and checked, and the values that went into it."""
    document, used = fill(stored_parameters(template.parameters), template.body, values)
    metadata = document.get("metadata")
    if metadata is None or isinstance(metadata, dict):
        marks = {"template": template.name, "template_version": template.version}
        document["metadata"] = {**(metadata or {}), **marks}
    return document, _job(document), used


def _checked(name: str, body: TemplateFields, by: str) -> NewTemplate:
    """The template, if all that can be checked of its job without values is right: the whole job if
    defaults fill the placeholders, otherwise its fields without a placeholder."""
    check_template_name(name)
    rules = {
        parameter: one.model_dump(exclude_none=True, exclude_unset=True)
        for parameter, one in body.parameters.items()
    }
    parameters, document = read_parameters(rules), body.body
    check_template(parameters, document)
    if not any(one.required for one in parameters.values()):
        job = _job(fill(parameters, document, {})[0])
        new_job(job, JobSpec(task=task_of(job)), {}, "check")
    else:
        if document.get("task") is None and document.get("url") is None:
            task_of(_job({}))  # raises, and says what is missing
        _job({k: None if any(placeholders_in(v)) else v for k, v in document.items()})
    return NewTemplate(name, rules, document, body.description, by)


def _job(document: Json) -> JobCreate:
    try:
        return JobCreate.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = f"Filled in, this is no job: {place}: {validation_message(first)}"
        raise InvalidInput(message.rstrip(".") + ".", field=f"body.{place}") from None

"""The job of a spec, and Plan: what would be submitted, as `tagline train --plan --json` prints it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from tagline import gcp
from tagline import spec as specs
from tagline.data.columns import ResolvedSpec, resolve
from tagline.errors import SpecError
from tagline.jobs import places, prices, throughput, uploads
from tagline.jobs.launchers import Job
from tagline.jobs.prices import Price
from tagline.spec import Spec

NO_PROJECT, NO_BUCKET = "your-project", "your-bucket"
"""Placeholders in a plan whose spec names none."""


class PlannedPrice(BaseModel):
    """The estimated price of a job in US dollars."""

    model_config = ConfigDict(frozen=True)

    currency: str = Field("USD", description="Always USD.")
    per_hour: float | None = Field(description="All machines together for one hour; null where the table has no price.")
    hours: float | None = Field(description="How long the training is expected to take; null where that is not known.")
    expected: float | None = Field(description="`per_hour` times `hours`.")
    max_hours: float = Field(description="`vertex.max_hours`, after which the job is ended.")
    most: float | None = Field(description="`per_hour` times `max_hours`.")
    parts: dict[str, float | None] = Field(description="The price of an hour by kind of machine.")
    assumption: str = Field(description="The basis of `hours`.")
    remark: str = Field("", description="What is unknown about the price.")
    is_estimate: bool = Field(True, description="Always true.")
    date: str = Field(description="When the table of prices was written.")
    region: str = Field(description="The region whose prices the table has.")


class PlannedUpload(BaseModel):
    """A file or directory that is copied to the bucket, unless the same content is there."""

    model_config = ConfigDict(frozen=True)

    source: str = Field(alias="from", description="A path here; `hub:NAME` for an encoder of the Hugging Face hub.")
    address: str = Field(alias="to", description="The address in Cloud Storage.")


class Plan(BaseModel):
    """What a launcher would do: the request, its price, and the uploads it needs first."""

    model_config = ConfigDict(frozen=True)

    job: dict[str, Any] = Field({}, description="The CustomJob, as the REST API of Vertex AI takes it.")
    gcloud: str = Field("", description="The same job as a gcloud command; it needs nothing but the uploads.")
    price: PlannedPrice | None = Field(None, description="What it would cost.")
    parent: str = Field("", description="The project and region, as `projects/PROJECT/locations/REGION`.")
    uploads: tuple[PlannedUpload, ...] = Field((), description="What is copied to the bucket first.")
    packages: tuple[str, ...] = Field((), description="`vertex.packages`; left out where there are none.")

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Self:
        """Return the part of a launcher's plan that is printed; what the launcher does not plan is left out."""
        return cls.model_validate({key: plan[key] for key in cls.model_fields if key in plan})

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document, without what the launcher did not plan."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def price_of(job: Job) -> Price:
    """Return the estimated price of a job."""
    return prices.estimate_price(job.spec, training_rows=job.training_rows, rate=job.rate)


def make_job(
    spec: Spec,
    *,
    name: str,
    on: str,
    rows: int | None = None,
    runs: str = "",
    is_for_real: bool = False,
    command: str = "",
) -> Job:
    """Return the job of a spec, with the uploads that it needs.

    Its duration is estimated from earlier runs in `runs`. Unless it `is_for_real`, project and bucket may be missing.
    """
    default = places.BUCKET if on == places.REHEARSAL else "" if is_for_real else NO_BUCKET
    bucket = (spec.vertex.bucket or default).removeprefix(gcp.SCHEME)
    if not bucket:
        raise SpecError("vertex.bucket: needed on vertex, for data and run", hint="vertex.bucket=NAME")
    chosen = spec.vertex.project
    project = gcp.find_project(chosen) if is_for_real else gcp.find_configured_project(chosen) or NO_PROJECT
    place = spec.vertex.model_copy(update={"bucket": bucket.strip("/"), "project": project})
    staged, needed = uploads.stage_uploads(spec.model_copy(update={"vertex": place}), place.bucket)
    return Job(
        name,
        staged,
        f"{uploads.bucket_folder(place.bucket)}/runs",
        project=project,
        uploads=needed,
        training_rows=rows,
        rate=throughput.find_earlier_rate(spec, runs) if rows else None,
        command=command,
    )


def resolve_without_network(source: str, overrides: Sequence[str]) -> ResolvedSpec:
    """Resolve a spec for a plan, without reading remote data."""
    if source.endswith(".toml"):
        spec, _ = specs.try_parse(specs.read(Path(source), overrides))
        if spec and is_data_remote(spec):
            return ResolvedSpec(spec)
    return resolve(source, overrides)


def is_data_remote(spec: Spec) -> bool:
    """Return whether any of the data is remote."""
    data = spec.data
    return any(
        "://" in each
        for each in (*data.list_addresses("train"), *data.list_addresses("validation"), *data.list_addresses("test"))
    )

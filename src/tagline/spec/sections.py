"""The sections of a spec as strict models: every key with its type, limits and meaning."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SerializeAsAny,
    SkipValidation,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tagline import registry
from tagline.errors import PlaceError
from tagline.spec import secret_detection
from tagline.spec.toml_values import format_value

DEFAULT_FAMILY = "encoder"
RECORDED = {"recorded": True}
"""The validation context for the spec of an existing run: rules added since do not make it unreadable."""

Share = Annotated[float, Field(ge=0, lt=1)]
Gate = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""The range that every random generator in use accepts."""
Monitor = Literal[
    "accuracy", "macro_f1", "micro_f1", "weighted_f1", "balanced_accuracy", "mcc", "log_loss", "auroc",
    "subset_accuracy", "jaccard", "average_precision", "brier", "ece",
]  # fmt: skip


class Section(BaseModel):
    """One table of the spec: frozen, and strict about names and types."""

    # Defaults are checked too, so that one written as 0 and one read back as 0.0 are the same spec.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


class Data(Section):
    """Which texts and labels, and how they are split."""

    train: str | tuple[str, ...] = Field(
        description="a path, a glob, - for standard input, hf://...; or a list of them"
    )
    validation: str | tuple[str, ...] = Field("", description="else a share of train")
    test: str | tuple[str, ...] = Field("", description="else a share of train")
    text: str | tuple[str, ...] = Field("", description='a column; ["premise", "hypothesis"] makes a pair; "": guessed')
    labels: str | tuple[str, ...] = Field(
        "", description='a column; a list of 0/1 columns makes the task multi; "": guessed'
    )
    label_separator: str = Field(
        "", description='"|": several labels in one column, task multi; "list": each cell is a list, ["a", "b"]'
    )
    none_label: str = Field("", description="task multi: the name given to a row with no label")
    label_names: dict[str, str] | tuple[str, ...] = Field(
        {}, description='{ "0" = "negative", "1" = "positive" }, or a list for labels 0, 1, 2, ...: the names to use'
    )
    unlabelled: Literal["auto"] | tuple[str, ...] = Field(
        "auto", description='label values of rows to leave out; auto: "-" among words, -1 beside 0, 1, 2, ...; []: none'
    )
    split: str = Field("", description="a column that says train, validation or test for each row")
    split_values: dict[str, Literal["train", "validation", "test", "none"]] = Field(
        {}, description='what other words in that column mean: { holdout = "test" }; none: left out'
    )
    slices: tuple[str, ...] = Field((), description="columns by whose values the report looks for texts that do worse")
    format: Literal["auto", "csv", "tsv", "jsonl", "parquet", "lines", "automl"] = Field(
        "auto", description='or csv tsv jsonl parquet automl, or lines ("text<separator>label", split at the last one)'
    )
    separator: str = Field("", description='between fields; "": the format\'s own')
    header: bool | Literal["auto"] = Field("auto", description="false: columns are named column_1, column_2, ...")
    encoding: str = Field("auto", description="detected, or a name such as utf-8, latin-1, shift_jis")
    bad_rows: Literal["stop", "skip"] = Field("stop", description='or "skip": counted and named, never silent')
    validation_share: Share = Field(0.1, description="of train, where no validation data is given")
    test_share: Share = Field(0.1, description="of train, where no test data is given")
    fraction: float = Field(1.0, gt=0, le=1, description="of the rows of every split, for a quick try")
    learning_fraction: float = Field(
        1.0,
        gt=0,
        le=1,
        description="of the training and validation rows, test staying whole: a point of a learning curve",
    )
    seed: Seed = Field(42, description="of the split and the fraction")

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The text column, or the two columns of a pair."""
        return (self.text,) if isinstance(self.text, str) else self.text

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The label column, or the 0/1 columns."""
        return (self.labels,) if isinstance(self.labels, str) else self.labels

    @property
    def names_by_value(self) -> dict[str, str]:
        """`label_names` as a mapping from the values in the data to names."""
        if isinstance(self.label_names, dict):
            return self.label_names
        values = map(str, range(len(self.label_names))) if isinstance(self.labels, str) else self.labels
        return dict(zip(values, self.label_names, strict=False))

    def list_addresses(self, split: Literal["train", "validation", "test"]) -> tuple[str, ...]:
        """Return the files named for this split."""
        value: str | tuple[str, ...] = getattr(self, split)
        return ((value,) if value else ()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        wrong: list[str] = []
        if self.validation_share + self.test_share >= 1:
            wrong.append("validation_share and test_share leave nothing to train on")
        if not isinstance(self.text, str) and not 1 <= len(self.text) <= 2:
            wrong.append("text takes one column or the two of a pair")
        if not isinstance(self.labels, str) and (self.label_separator or not self.labels):
            wrong.append("labels takes one column with label_separator, or a list of 0/1 columns without it")
        named = [name for name in (*self.text_columns, *self.label_columns, self.split) if name]
        wrong += [f'the column "{name}" is named twice' for name in dict.fromkeys(named) if named.count(name) > 1]
        if not self.list_addresses("train"):
            wrong.append("train names no file")
        wrong += self._check_label_names()
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    def _check_label_names(self) -> Iterator[str]:
        """Yield the problems with `label_names` that can be found without reading any data."""
        names = list(self.label_names.values() if isinstance(self.label_names, dict) else self.label_names)
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            yield f"label_names gives {', '.join(map(format_value, twice))} to several labels"
        if not all(name.strip() == name != "" for name in names):
            yield "label_names has an empty name, or one with spaces around it"
        if isinstance(self.labels, str) or not names:
            return
        if isinstance(self.label_names, dict):
            if unknown := [key for key in self.label_names if key not in self.labels]:
                yield f"label_names names {', '.join(map(format_value, unknown))}, which is no column of labels"
        elif len(names) != len(self.labels):
            yield f"label_names has {len(names)} names for {len(self.labels)} columns of labels"


class Training(Section):
    """How the model learns."""

    epochs: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="times the training rows are seen; auto: 3 where the model is pretrained, else more"
    )
    batch_size: int = Field(32, ge=1, description="rows a step, over all workers")
    learning_rate: Annotated[float, Field(gt=0)] | Literal["auto"] = Field("auto", description="or a number")
    weight_decay: float = Field(0.01, ge=0, description="pull of the weights towards zero")
    warmup_share: float = Field(
        0.1, ge=0, le=1, description="share of the steps for warm-up, while the learning rate rises"
    )
    monitor: Monitor = Field("macro_f1", description="the validation figure that decides which model is kept")
    patience: int = Field(0, ge=0, description="evaluations without a gain before it stops; 0: never")
    class_weights: Literal["none", "balanced"] = Field("none", description='or "balanced": rare labels count more')
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] | Literal["auto"] = Field(
        "auto", description="share of the truth given to the other labels; auto: 0.1 for task single, else 0"
    )
    averaging: bool = Field(
        True, description="weight averaging: use a mean of the weights, which errs less than the last ones"
    )
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="what the device does best"
    )
    evaluate_every: int = Field(0, ge=0, description="steps between two evaluations; 0: each epoch")
    sharding: Literal["none", "full"] = Field("none", description='or "full": the model itself is split over workers')
    seed: Seed = Field(42, description="of everything random in training")
    max_minutes: float = Field(0, ge=0, description="a budget; 0: none")
    log_every: int = Field(50, ge=1, description="steps between two events")
    baseline: bool = Field(True, description="learn family linear too, from up to 10,000 rows, to compare with")
    export: bool = Field(True, description="make ONNX forms of a torch model too, so that it predicts without torch")


def changed_settings(section: Section) -> list[str]:
    """Return the keys of a section that are not at their defaults."""
    return [key for key, field in type(section).model_fields.items() if getattr(section, key) != field.default]


class Goal(Section):
    """The precision or recall that a threshold must reach, with as many answers as that allows, instead of F1."""

    precision: Share = 0.0
    recall: Share = 0.0

    @model_validator(mode="after")
    def _check_goal(self) -> Self:
        if bool(self.precision) == bool(self.recall):
            raise ValueError("name a precision or a recall, one of them")
        return self


Thresholds = Annotated[
    Annotated[Annotated[float, Field(gt=0, lt=1)] | Literal["tuned"], Tag("plain")] | Annotated[Goal, Tag("goal")],
    Discriminator(lambda value: "goal" if isinstance(value, Mapping | Goal) else "plain"),
]


class Decisions(Section):
    """How scores become answers."""

    calibrate: bool = Field(True, description="make a score of 0.8 right 8 times in 10, on the validation split")
    thresholds: Thresholds = Field(
        "tuned",
        description="task multi: per label, for F1; or one number for all, or { precision = 0.9 } or { recall = 0.9 }",
    )
    abstain_below: float = Field(0.0, ge=0, le=1, description="answer only where as sure as this; 0: always")
    target_precision: float = Field(
        0.0, ge=0, lt=1, description="0.95: abstain so often that 95 % of the answers given are right; 0: off"
    )

    @model_validator(mode="after")
    def _check_abstention(self) -> Self:
        if self.abstain_below and self.target_precision:
            raise ValueError("abstain_below and target_precision both say when to abstain; keep one")
        return self


class Gates(Section):
    """Quality gates on the test split: if a figure misses its limit, the command ends with exit code 1; 0: no gate."""

    accuracy: Gate = Field(0.0, description="at least")
    macro_f1: Gate = Field(0.0, description="at least")
    micro_f1: Gate = Field(0.0, description="at least")
    weighted_f1: Gate = Field(0.0, description="at least")
    balanced_accuracy: Gate = Field(0.0, description="at least; task single")
    mcc: Gate = Field(0.0, description="at least; task single")
    auroc: Gate = Field(0.0, description="at least")
    subset_accuracy: Gate = Field(0.0, description="at least; task multi")
    jaccard: Gate = Field(0.0, description="at least; task multi")
    average_precision: Gate = Field(0.0, description="at least; task multi")
    log_loss: float = Field(0.0, ge=0, description="at most")
    brier: float = Field(0.0, ge=0, description="at most")
    ece: Gate = Field(0.0, description="at most: expected calibration error")
    coverage: Gate = Field(0.0, description="at least: the share of texts answered, where it may abstain")
    accuracy_of_answered: Gate = Field(0.0, description="at least, where it may abstain")
    per_label_precision: dict[str, Gate] = Field({}, description="at least, for labels by name")
    per_label_recall: dict[str, Gate] = Field({}, description="at least, for labels by name")
    per_label_f1: dict[str, Gate] = Field({}, description="at least, for labels by name")


class Range(Section):
    """Numbers between two bounds."""

    low: float
    high: float
    log: bool = False

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if not self.low < self.high:
            raise ValueError("low must be less than high")
        if self.log and self.low <= 0:
            raise ValueError("log = true needs a low above 0")
        return self


class Choices(Section):
    """A set of values to choose from."""

    choices: tuple[str | int | float | bool, ...] = Field(min_length=1)


def _kind_of_search(value: Any) -> str:
    return "choices" if isinstance(value, Choices) or (isinstance(value, Mapping) and "choices" in value) else "range"


# The tags keep pydantic from mixing the problems of one kind with those of the other.
Search = Annotated[
    Annotated[Range, Tag("range")] | Annotated[Choices, Tag("choices")], Discriminator(_kind_of_search)
]  # fmt: skip


class Tuning(Section):
    """How a study searches."""

    trials: int = Field(20, ge=1, description="runs in the study")
    metric: Monitor = Field("macro_f1", description="the validation figure to improve")
    search: dict[str, Search] = Field({}, description="spec keys, each with its range or choices")


class Tracking(Section):
    """Where else a run is recorded."""

    to: tuple[str, ...] = Field((), description="names of trackers")

    @field_validator("to")
    @classmethod
    def _check_trackers(cls, to: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [
            registry.explain_unknown("trackers", name)
            for name in to
            if name not in registry.list_implementations("trackers")
        ]
        if unknown:
            raise ValueError("; ".join(unknown))
        return to


class Fallback(Section):
    """An alternative place for a job if the first has no capacity; settings not given stay as they are."""

    region: str = Field("", description="another region")
    machine: str = Field("", description="another machine type")
    accelerator: str = Field("", description="another accelerator")
    accelerators: int = Field(-1, ge=-1, description="another number of them")


class Vertex(Section):
    """Where and how a job runs on Vertex AI; not part of the fingerprint."""

    project: str = Field("", description="else the one gcloud is set to")
    region: str = Field("us-central1", description="where the job, its bucket and its quota are")
    bucket: str = Field("", description="for data, runs and bundles")
    machine: str = Field("n1-standard-8", description="machine type")
    accelerator: str = Field("NVIDIA_TESLA_T4", description="as the API names it")
    accelerators: int = Field(1, ge=0, description="number of accelerators in each machine")
    workers: int = Field(1, ge=1, description="machines")
    reduction_servers: int = Field(0, ge=0, description="machines that reduce (add up) gradients")
    image: str = Field("", description="else built from this project")
    builder: Literal["auto", "cloud-build", "docker", "podman", "buildah"] = Field(
        "auto", description='what builds it: "cloud-build", or a tool on this machine'
    )
    packages: tuple[str, ...] = Field((), description='more for the job to install: "pandas>=2", or a local wheel.whl')
    spot: bool = Field(False, description="spot VMs: cheaper, may be preempted; the run resumes by itself")
    flex_start: bool = Field(False, description="wait for a machine rather than fail")
    max_wait_hours: float = Field(24, gt=0, description="for a machine, with flex_start")
    max_hours: float = Field(24, gt=0, description="then the job is stopped")
    budget: float = Field(0, ge=0, description="US dollars that max_hours may come to; 0: any")
    disk_gb: int = Field(100, ge=100, le=64000, description="of each machine")
    service_account: str = Field("", description="that the job runs as")
    network: str = Field("", description="projects/NUMBER/global/networks/NAME, to reach private addresses")
    fallbacks: tuple[Fallback, ...] = Field((), description='where to go if there is no room: { region = "us-east1" }')
    labels: dict[str, str] = Field({}, description="on the job, for the bill")
    environment: dict[str, str] = Field({}, description="variables of the job; no secrets")
    secrets: dict[str, str] = Field({}, description="variables, each a version of a secret in Secret Manager")

    @field_validator("secrets")
    @classmethod
    def _check_references(cls, secrets: dict[str, str]) -> dict[str, str]:
        for name, value in secrets.items():
            if not re.fullmatch(
                r"projects/[^/]+/secrets/[^/]+/versions/[^/]+", value
            ):  # unquoted: the value may be the secret
                raise ValueError(f"{name} must be projects/PROJECT/secrets/NAME/versions/VERSION")
        return secrets

    @field_validator("environment")
    @classmethod
    def _refuse_secrets(cls, environment: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if info.context == RECORDED:
            return environment
        if secrets := [name for name, value in environment.items() if secret_detection.is_secret(name, value)]:
            way = f"vertex.secrets.{secrets[0]}=projects/PROJECT/secrets/NAME/versions/latest"
            raise ValueError(
                f"{' and '.join(secrets)} {'looks like a secret' if len(secrets) == 1 else 'look like secrets'}, "
                f"and would stand in the job and its run: put it into Secret Manager, and name that: {way}"
            )
        return environment

    @field_validator("packages")
    @classmethod
    def _check_packages(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        from packaging.requirements import InvalidRequirement, Requirement
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename

        for package in packages:
            if secret_detection.has_secret_value(package):  # not quoted in the message
                raise ValueError("a package's address holds a password: give a wheel, or an index that asks for none")
            try:
                if package.endswith(".whl"):
                    parse_wheel_filename(Path(package).name)
                else:
                    Requirement(package)
            except (InvalidRequirement, InvalidWheelFilename) as error:
                reason = str(error).splitlines()[0]
                raise ValueError(
                    f'"{package}" is no requirement such as "pandas>=2", and no wheel: {reason}'
                ) from error
        return packages

    @model_validator(mode="after")
    def _check_provisioning(self) -> Self:
        if self.spot and self.flex_start:
            raise ValueError("spot and flex_start exclude each other")
        return self


class ModelOptions(Section):
    """The base of the `[model]` section: each family adds its own options."""

    family: str


class Spec(Section):
    """A complete spec. `model` is the `Options` of the family."""

    data: Data
    model: SerializeAsAny[SkipValidation[ModelOptions]]  # a plug-in's options may be any strict Section
    training: Training
    decisions: Decisions
    gates: Gates
    tuning: Tuning
    tracking: Tracking
    vertex: Vertex

    def settings(self) -> dict[str, Any]:
        """Return every `section.key` that can change the result, with its JSON value."""
        parts = self.model_dump(mode="json", include={"data", "model", "training", "decisions"})
        return {f"{section}.{key}": value for section, part in parts.items() for key, value in part.items()}

    def without_defaults(self) -> dict[str, Any]:
        """Return the JSON tables from which `parse` makes the same spec: the family, and what is set."""
        parts: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True)
        family = self.model.family
        return {name: part for name, part in (parts | {"model": {"family": family} | parts["model"]}).items() if part}

    def fingerprint(self) -> str:
        """Return a hash of every setting that can change the result, and of no other."""
        return hashlib.sha256(json.dumps(self.settings(), sort_keys=True).encode()).hexdigest()


SECTIONS: dict[str, type[Section]] = {
    "data": Data, "training": Training, "decisions": Decisions,
    "gates": Gates, "tuning": Tuning, "tracking": Tracking, "vertex": Vertex,
}  # fmt: skip


def options_of(family: str) -> type[BaseModel]:
    """Return the `Options` of a family: the model of its `[model]` section."""
    options: type[BaseModel] = registry.find("models", family).Options
    if not issubclass(options, Section):
        raise PlaceError(f"family {family} cannot be used: its Options are no tagline.spec.Section, so not strict")
    return options

"""The spec: strict, frozen, every problem at once, written out in full and read back the same."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tagline import registry
from tagline import spec as specs
from tagline.errors import SpecError
from tagline.spec import Spec

# The spec of the design page.
DESIGN = """
[data]
train = "reviews.csv"              # a path, a glob, gs://..., hf://glue/mnli; or a list of them
validation = ""                    # else a share of train
test = ""                          # else a share of train
text = "review"                    # ["premise", "hypothesis"] makes a pair
labels = "sentiment"               # a column; a list of 0/1 columns makes the task `multi`
label_separator = ""               # "|": several labels in one column, task `multi`
none_label = ""                    # task `multi`: the name given to a row with no label
format = "auto"                    # csv tsv jsonl parquet lines ("text<separator>label", split at the last one)
separator = ""
encoding = "auto"                  # detected; named in the report
bad_rows = "stop"                  # or "skip": counted and named, never silent
validation_share = 0.1
test_share = 0.1
fraction = 1.0                     # of the training rows, for a quick try
seed = 42

[model]
family = "encoder"
pretrained = "minilm"              # packaged, offline; or a hub name, a directory, gs://...
head = "linear"                    # or "lstm"
max_tokens = 256

[training]
epochs = "auto"                    # 3 for an encoder, as on the page (decision 9)
batch_size = 32
learning_rate = "auto"
weight_decay = 0.01
warmup_share = 0.1
monitor = "macro_f1"
patience = 0                       # evaluations without a gain before it stops; 0: never
class_weights = "none"             # or "balanced"
precision = "auto"
seed = 42
max_minutes = 0                    # a budget; 0: none
log_every = 50

[decisions]
calibrate = true
thresholds = "tuned"               # task `multi`: per label, for F1; or one number for all
abstain_below = 0.0                # or target_precision = 0.95

[tuning]
trials = 20
metric = "macro_f1"
[tuning.search]
"training.learning_rate" = { low = 1e-5, high = 5e-4, log = true }
"training.batch_size" = { choices = [16, 32, 64] }

[tracking]
to = []                            # "tensorboard", "wandb", "mlflow", "vertex"

[vertex]                           # where and how it runs: no part of the fingerprint
project = ""
region = "us-central1"
bucket = ""
machine = "n1-standard-8"
accelerator = "NVIDIA_TESLA_T4"
accelerators = 1
workers = 1
reduction_servers = 0
image = ""                         # else built from this project
spot = false
max_hours = 24
service_account = ""
"""

SECTIONS = "data, training, decisions, gates, tuning, tracking, vertex, model"
FAMILIES = ", ".join(registry.list_names("models"))
FORM = "a setting is changed as section.key=value, for example training.epochs=5"


def parse(text: str, *overrides: str) -> Spec:
    return specs.parse(specs.apply_overrides(tomllib.loads(text), overrides), where="tagline.toml")


def problems_of(text: str, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(SpecError) as caught:
        parse(text, *overrides)
    return caught.value.problems


def data(**settings: Any) -> Spec:
    return specs.defaults({"train": "x.csv", **settings})


def test_the_spec_of_the_design_page_is_taken_as_it_stands() -> None:
    spec = parse(DESIGN)
    assert spec.tuning.search["training.batch_size"].model_dump() == {"choices": (16, 32, 64)}
    assert spec.tuning.search["training.learning_rate"].model_dump() == {"low": 1e-5, "high": 5e-4, "log": True}


def test_the_design_page_holds_the_defaults() -> None:
    written = parse(DESIGN.replace(DESIGN[DESIGN.index("[tuning.search]") : DESIGN.index("[tracking]")], ""))
    bare = parse('[data]\ntrain = "reviews.csv"\ntext = "review"\nlabels = "sentiment"')
    assert written == bare
    assert written.fingerprint() == bare.fingerprint()


def test_every_key_of_the_design_page_is_written_out_and_read_back() -> None:
    spec = parse(DESIGN)
    for comments in (False, True):
        text = specs.to_toml(spec, comments=comments)
        assert parse(text) == spec
        assert specs.to_toml(parse(text), comments=comments) == text


def test_defaults_are_written_out_identically_after_reading_back() -> None:
    text = specs.to_toml(data())
    assert specs.to_toml(parse(text)) == text
    assert {key for key, _ in specs.iter_keys(data())} == {
        f"{section}.{key}" for section, table in tomllib.loads(text).items() for key in table
    } | {
        "tuning.search",
        "gates.per_label_precision",
        "gates.per_label_recall",
        "gates.per_label_f1",
        "vertex.labels",
        "vertex.environment",
        "vertex.secrets",
        "data.label_names",
        "data.split_values",
    }


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    columns=st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=3, unique=True
    ),
    share=st.floats(0, 0.4),
    seed=st.integers(0, 2**32 - 1),
    rate=st.floats(min_value=1e-300, allow_infinity=False, allow_nan=False) | st.just("auto"),
)
def test_any_value_survives_being_written_out(
    text: str, columns: list[str], share: float, seed: int, rate: float | str
) -> None:
    settings = {"none_label": text, "labels": tuple(columns), "test_share": share, "seed": seed}
    raw = {"data": {"train": "x.csv", **settings}, "training": {"learning_rate": rate}}
    spec = specs.parse(raw, where="x")
    assert parse(specs.to_toml(spec)) == spec
    assert parse(specs.to_toml(spec, comments=True)) == spec


def test_a_comment_says_what_each_setting_means() -> None:
    lines = specs.to_toml(data(train="a-very-long-name-of-a-file-somewhere.csv"), comments=True).splitlines()
    settings = [line for line in lines if line and not line.startswith("[")]
    assert all(re.search(r"\S +# \S", line) for line in settings), settings


def test_a_spec_cannot_be_changed() -> None:
    spec = data()
    for part, key in ((spec, "data"), (spec.data, "train"), (spec.model, "pretrained"), (spec.vertex, "region")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(part, key, "other")


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ("[training]\nepochs = 1.5", 'training.epochs: must be a whole number or "auto", not 1.5'),
        ('[training]\nepochs = "3"', 'training.epochs: must be a whole number or "auto", not "3"'),
        ("[training]\nepochs = true", 'training.epochs: must be a whole number or "auto", not true'),
        ("[training]\nepochs = 0", 'training.epochs: must be at least 1 or "auto", not 0'),
        ("[training]\nepochs = 2020-01-01", 'training.epochs: must be a whole number or "auto", not 2020-01-01'),
        ('[training]\nweight_decay = "a lot"', 'training.weight_decay: must be a number, not "a lot"'),
        ("[training]\nweight_decay = -0.1", "training.weight_decay: must be at least 0.0, not -0.1"),
        ("[training]\nweight_decay = nan", "training.weight_decay: must be a finite number, not nan"),
        ("[training]\nseed = 4294967296", "training.seed: must be less than 4294967296, not 4294967296"),
        ("[training]\nseed = -1", "training.seed: must be at least 0, not -1"),
        ("[training]\nlearning_rate = 0", 'training.learning_rate: must be greater than 0.0 or "auto", not 0'),
        ('[training]\nlearning_rate = "fast"', 'training.learning_rate: must be a number or "auto", not "fast"'),
        ('[training]\nclass_weights = "yes"', 'training.class_weights: must be "none" or "balanced", not "yes"'),
        ("[decisions]\ncalibrate = 1", "decisions.calibrate: must be true or false, not 1"),
        ("[decisions]\nthresholds = 1.0", 'decisions.thresholds: must be less than 1.0 or "tuned", not 1.0'),
        (
            "[decisions]\nabstain_below = 0.5\ntarget_precision = 0.9",
            "decisions: abstain_below and target_precision both say when to abstain; keep one",
        ),
        ("[tuning]\ntrials = 0", "tuning.trials: must be at least 1, not 0"),
        ('[tracking]\nto = "wandb"', 'tracking.to: must be a list, not "wandb"'),
        ('[tracking]\nto = ["wandbb"]', 'tracking.to: no tracker "wandbb"; did you mean wandb?'),
        ("[vertex]\nspot = 0", "vertex.spot: must be true or false, not 0"),
        ('[model]\nfamily = "linear"\nwords = 9', "model.words: must be at most 5, not 9"),
        ('[model]\nfamily = "linear"\nword = 2', "model.word: no such setting; did you mean words?"),
        ("[model]\nfreeze = -1", 'model.freeze: must be "auto", "none" or "embeddings" or at least 1, not -1'),
        ('[model]\nfamily = "encodre"', 'model.family: no family "encodre"; did you mean encoder?'),
        ('[model]\nfamily = "lineare"', 'model.family: no family "lineare"; did you mean linear?'),
        ("[model]\nfamily = 3", f'model.family: no family "3"; there are: {FAMILIES}'),
        ("[trainig]\nepochs = 3", "trainig: no such section; did you mean training?"),
        ("[zzz]", f"zzz: no such section; there are: {SECTIONS}"),
        ("epochs = 3", f"epochs: no such section; there are: {SECTIONS}"),
        ("training = 3", "training: must be a table, not 3"),
        ("model = 3", "model: must be a table, not 3"),
        ("[[training]]\nepochs = 3", "training: must be a table, not [{ epochs = 3 }]"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_with_what_it_must_be(toml: str, problem: str) -> None:
    assert problems_of(f'{toml}\n[data]\ntrain = "x.csv"') == (problem,)


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ("", "data.train: needed"),
        ('train = ""', "data: train names no file"),
        ("train = []", "data: train names no file"),
        ("train = 5", "data.train: must be a text or a list, not 5"),
        ('train = ["a.csv", 5]', "data.train: must be a text, not 5"),
        ('train = "x"\ntext = ["a", "b", "c"]', "data: text takes one column or the two of a pair"),
        ('train = "x"\ntext = []', "data: text takes one column or the two of a pair"),
        (
            'train = "x"\nlabels = ["a", "b"]\nlabel_separator = "|"',
            "data: labels takes one column with label_separator, or a list of 0/1 columns without it",
        ),
        (
            'train = "x"\nlabels = []',
            "data: labels takes one column with label_separator, or a list of 0/1 columns without it",
        ),
        ('train = "x"\ntext = "a"\nlabels = "a"', 'data: the column "a" is named twice'),
        ('train = "x"\nlabels = ["a", "b", "a"]', 'data: the column "a" is named twice'),
        (
            'train = "x"\nvalidation_share = 0.5\ntest_share = 0.5',
            "data: validation_share and test_share leave nothing to train on",
        ),
        ('train = "x"\ntest_share = 1', "data.test_share: must be less than 1.0, not 1"),
        ('train = "x"\nfraction = 0', "data.fraction: must be greater than 0.0, not 0"),
        ('train = "x"\nheader = "no"', 'data.header: must be true or false or "auto", not "no"'),
        ('train = "x"\nlabel = "y"', "data.label: no such setting; did you mean labels?"),
    ],
)
def test_a_wrong_data_section_is_explained(toml: str, problem: str) -> None:
    assert problems_of(f"[data]\n{toml}") == (problem,)


def test_sections_that_do_not_fit_together_are_explained_in_one_go() -> None:
    (problem,) = problems_of("[data]\ntrain = []\ntext = []\nvalidation_share = 0.9\ntest_share = 0.9")
    assert [part.split()[0] for part in problem.removeprefix("data: ").split("; ")] == [
        "validation_share",
        "text",
        "train",
    ]


@pytest.mark.parametrize(
    ("search", "problem"),
    [
        ('"training.epoch" = { choices = [1] }', '"training.epoch": no such setting; did you mean training.epochs?'),
        ('"model.droput" = { choices = [0.1] }', '"model.droput": no such setting; did you mean model.dropout?'),
        ('"training.epochs" = { low = 1 }', '"training.epochs".high: needed'),
        ('"training.epochs" = {}', '"training.epochs".low: needed\n"training.epochs".high: needed'),
        ('"training.epochs" = { choices = [] }', '"training.epochs".choices: must be a longer list, not []'),
        (
            '"training.epochs" = { low = 1, hihg = 2 }',
            '"training.epochs".high: needed\n"training.epochs".hihg: no such setting; did you mean high?',
        ),
        (
            '"training.epochs" = { choices = [1], log = true }',
            '"training.epochs".log: no such setting; there are: choices',
        ),
        ('"training.epochs" = 3', '"training.epochs": must be a table, not 3'),
        ('"training.epochs" = { low = "a", high = 2 }', '"training.epochs".low: must be a number, not "a"'),
        ('"training.epochs" = { low = 2, high = 1 }', '"training.epochs": low must be less than high'),
        ('"training.epochs" = { low = 0, high = 1, log = true }', '"training.epochs": log = true needs a low above 0'),
    ],
)
def test_a_wrong_search_is_named_by_its_key(search: str, problem: str) -> None:
    expected = tuple(f"tuning.search.{line}" for line in problem.split("\n"))
    assert problems_of(f'[data]\ntrain = "x"\n[tuning.search]\n{search}') == expected


def test_every_problem_is_listed_at_once() -> None:
    text = """
    [zzz]
    [data]
    train = 1
    [training]
    epoch = 2
    seed = -1
    [model]
    words = "a"
    [tuning.search]
    x = { choices = [1] }
    "model.words" = 1
    """
    assert [problem.partition(": ")[0] for problem in problems_of(text)] == [
        "zzz",
        "data.train",
        "training.epoch",
        "training.seed",
        'tuning.search."model.words"',
        "model.words",
        'tuning.search."x"',
    ]


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("training.epochs=5", "training.epochs", 5),
        ("training.epochs = 5", "training.epochs", 5),
        ("training.learning_rate=3e-5", "training.learning_rate", 3e-5),
        ("training.learning_rate=auto", "training.learning_rate", "auto"),
        ("decisions.calibrate=false", "decisions.calibrate", False),
        ("data.train=a b.csv", "data.train", "a b.csv"),
        ("data.train=2024.csv", "data.train", "2024.csv"),
        ("data.train=C:\\data\\x.csv", "data.train", "C:\\data\\x.csv"),
        ('data.train=["a.csv", "b.csv"]', "data.train", ("a.csv", "b.csv")),
        ("data.train=['a.csv','b.csv']", "data.train", ("a.csv", "b.csv")),
        ('data.text="2024"', "data.text", "2024"),
        ("data.text= review ", "data.text", "review"),
        ("data.text=a=b", "data.text", "a=b"),
        ("data.text=", "data.text", ""),
        ("data.separator=;", "data.separator", ";"),
        ("data.separator=#", "data.separator", "#"),
        ("data.separator=\t", "data.separator", "\t"),
        ("data.label_separator= ", "data.label_separator", " "),
        ("data.none_label=1\n2", "data.none_label", "1\n2"),
        ("model.max_tokens=64", "model.max_tokens", 64),
    ],
)
def test_an_override_changes_one_setting(override: str, key: str, value: object) -> None:
    spec = parse('[data]\ntrain = "x.csv"\n[training]\nbatch_size = 8', override)
    assert dict(specs.iter_keys(spec))[key] == value
    assert spec.training.batch_size == 8


def test_another_family_brings_its_own_options() -> None:
    raw = {"model": {"family": "encoder", "pretrained": "minilm"}, "training": {"epochs": 5}}
    overridden = specs.apply_overrides(raw, ["model.words=2", 'model.family = "linear"'])
    assert overridden == {"model": {"family": "linear", "words": 2}, "training": {"epochs": 5}}
    assert specs.apply_overrides(raw, ["model.family=encoder"]) == raw
    assert specs.apply_overrides({"model": {"words": 2}}, ["model.family=linear"])["model"]["words"] == 2


def test_the_last_of_several_overrides_counts_and_the_raw_tables_stay() -> None:
    raw = {"data": {"train": "x.csv"}, "training": {"epochs": 1}}
    assert specs.apply_overrides(raw, ["training.epochs=2", "training.epochs=3"])["training"] == {"epochs": 3}
    assert raw["training"] == {"epochs": 1}


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("epochs=5", "did you mean training.epochs=5?"),
        ("epoch=5", "did you mean training.epochs=5?"),
        ("max_tokens=64", "did you mean model.max_tokens=64?"),
        ("seed=1", "did you mean data.seed=1 or training.seed=1?"),
        ("epochs", "did you mean training.epochs=?"),
        ("qqqq", FORM),
        ("=5", FORM),
        (".epochs=5", FORM),
        ("training.=5", FORM),
        ("", FORM),
    ],
)
def test_an_override_in_the_wrong_form_is_explained(override: str, hint: str) -> None:
    with pytest.raises(SpecError, match=re.escape(f'cannot understand "{override}"')) as caught:
        specs.apply_overrides({}, [override])
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("trainig.epochs=5", "trainig: no such section; did you mean training?"),
        ("training.epoch=5", "training.epoch: no such setting; did you mean epochs?"),
        ("training.epochs=many", 'training.epochs: must be a whole number or "auto", not "many"'),
        ("decisions.calibrate=no", 'decisions.calibrate: must be true or false, not "no"'),
    ],
)
def test_a_wrong_override_is_a_problem_of_the_spec(override: str, problem: str) -> None:
    assert problems_of('[data]\ntrain = "x.csv"', override) == (problem,)


@pytest.mark.parametrize("value", ["[" * 5000, "9" * 5000, "{", '"'])
def test_an_override_that_is_no_toml_is_a_text(value: str) -> None:
    assert parse('[data]\ntrain = "x.csv"', f"data.text={value}").data.text == value


def test_an_override_into_something_that_is_no_section_is_refused() -> None:
    with pytest.raises(SpecError, match='"training" is not a section'):
        specs.apply_overrides({"training": 3}, ["training.epochs=1"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[data\n", "is not TOML"),
        (b"[data]\ntrain = reviews.csv\n", "is not TOML"),
        (b"[data]\ntrain = 'a'\ntrain = 'b'\n", "is not TOML"),
        (b"x = " + b"[" * 100_000, "is not TOML"),
        (b"x = " + b"9" * 10_000, "is not TOML"),
        (b"[data]\ntrain = '\xff'\n", "cannot read the spec"),
        (b"\x00", "is not TOML"),
    ],
)
def test_a_file_that_is_no_spec_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tagline.toml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=message) as caught:
        specs.load(path)
    assert str(path) in caught.value.message


def test_a_spec_that_is_not_there_leads_to_init(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no spec") as caught:
        specs.load(tmp_path / "tagline.toml")
    assert "tagline init" in caught.value.hint
    with pytest.raises(SpecError, match="cannot read the spec"):
        specs.load(tmp_path)


def test_a_spec_saved_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tagline.toml"
    path.write_text('[data]\r\ntrain = "x.csv"\r\n', "utf-8-sig")
    assert specs.load(path, ["training.epochs=9"]).training.epochs == 9


def test_the_fingerprint_follows_what_can_change_the_result_only() -> None:
    before = data().fingerprint()
    for changed in ("training.seed=1", "data.seed=1", "model.max_tokens=64", "decisions.calibrate=false"):
        assert parse('[data]\ntrain = "x.csv"', changed).fingerprint() != before
    for beside in ("vertex.region=europe-west4", "tuning.trials=3", "training.epochs=auto", "training.max_minutes=0"):
        assert parse('[data]\ntrain = "x.csv"', beside).fingerprint() == before


def resolved(schema: Any, root: Any) -> Any:
    """A schema with its references followed; a reference that leads nowhere is a KeyError."""
    while "$ref" in schema:
        place = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            place = place[part]
        schema = place
    return schema


def accepts(schema: Any, value: Any, root: Any) -> bool:
    """As much of a JSON schema validator as the spec's schema needs."""
    schema = resolved(schema, root)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return any(accepts(option, value, root) for option in options)
    types = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
    kind = schema.get("type")
    if kind and (not isinstance(value, types[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))):
        return False
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    if isinstance(value, list):
        return all(accepts(schema.get("items", {}), item, root) for item in value)
    if isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties", True)
        parts = {key: known.get(key, other if isinstance(other, dict) else {}) for key in value}
        strangers = other is False and value.keys() - known.keys()
        lacking = set(schema.get("required", ())) - value.keys()
        return not strangers and not lacking and all(accepts(parts[key], value[key], root) for key in value)
    below = value < schema.get("minimum", value) if kind in ("integer", "number") else False
    return not below


def test_the_json_schema_accepts_what_is_written_and_refuses_what_is_wrong() -> None:
    schema = specs.json_schema()
    for text in (DESIGN, specs.to_toml(parse(DESIGN)), specs.to_toml(data()), '[data]\ntrain = ["a", "b"]'):
        assert accepts(schema, tomllib.loads(text), schema)
    good = {"data": {"train": "x.csv"}}
    for wrong in (
        {},
        {"data": {}},
        {"data": {"train": 5}},
        {"data": {"train": "x", "lables": "y"}},
        {**good, "trainig": {}},
        {**good, "training": {"epochs": 0}},
        {**good, "training": {"monitor": "f1"}},
        {**good, "model": {"family": "x"}},
        {**good, "tuning": {"search": {"training.epochs": {"low": 1}}}},
    ):
        assert not accepts(schema, wrong, schema), wrong


def test_the_json_schema_describes_every_key() -> None:
    schema = specs.json_schema()
    for key, _ in specs.iter_keys(data()):
        section, _, name = key.partition(".")
        part = resolved(schema["properties"][section], schema)
        part = resolved(part["anyOf"][0], schema) if "anyOf" in part else part
        assert part["properties"][name]["description"], key

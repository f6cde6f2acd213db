"""Datasets of the Hugging Face hub, `hf://glue/mnli`, through the `datasets` package where it is installed."""

from collections.abc import Iterator, Sequence
from typing import Any

from tagline.errors import DataError, PlaceError
from tagline.readers import BadRows, Cell, Layout, Source, cell

SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "dev": "validation", "test": "test"}
SPLIT_COLUMN = "split"


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:  # noqa: ARG001 - the contract's signature
    """The dataset's columns, and one for its splits."""
    loaded = _load(name)
    columns = next(iter(loaded.values())).column_names
    return {"columns": (*columns, SPLIT_COLUMN), "split_column": SPLIT_COLUMN}


def rows(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Each row of each labelled split; numbers of a class label become its name."""
    number = 0
    for split, dataset in _load(source.name).items():
        named = {name: feature for name, feature in dataset.features.items() if hasattr(feature, "int2str")}
        for values in dataset:
            number += 1
            for name, feature in named.items():
                value = values[name]
                values[name] = feature.int2str(value) if isinstance(value, int) and value >= 0 else None
            try:
                yield number, [*(cell(values[name]) for name in source.columns[:-1]), split]
            except TypeError as error:
                bad.add(source.name, number, str(error))


def _load(name: str) -> dict[str, Any]:
    """The labelled splits by our names; a split whose labels are all hidden (-1) is left out."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        hint = "pip install datasets, or download the dataset as files and name those"
        raise PlaceError(
            f"{name}: hub datasets need the package datasets, which is not installed", hint=hint
        ) from error
    path, config = _path_and_config(name.removeprefix("hf://"))
    try:
        loaded = load_dataset(path, config)
    except Exception as error:
        hint = "is the name right, and is there a network? files on disk need neither"
        raise DataError(f"cannot load {name}: {str(error).splitlines()[0]}", hint=hint) from error
    splits = {_split_name(split): dataset for split, dataset in loaded.items() if not _is_hidden(dataset)}
    if not splits:
        raise DataError(f"{name} has no labelled rows")
    return splits


def _path_and_config(name: str) -> tuple[str, str | None]:
    """`glue/mnli` is a config of glue; `owner/name` a dataset; `owner/name/config` both; `/path` a directory."""
    if name.startswith(("/", ".")):
        return name, None
    parts = name.split("/")
    if len(parts) == 3:
        return "/".join(parts[:2]), parts[2]
    if len(parts) == 2 and parts[0] in ("glue", "super_glue", "xtreme", "tweet_eval"):
        return parts[0], parts[1]
    return name, None


def _split_name(name: str) -> str:
    """`validation_matched` is a validation split."""
    return next((ours for theirs, ours in SPLITS.items() if name.lower().startswith(theirs)), "train")


def _is_hidden(dataset: Any) -> bool:
    class_labels = [name for name, feature in dataset.features.items() if hasattr(feature, "int2str")]
    ends = [dataset[0], dataset[len(dataset) - 1]] if len(dataset) else []
    return any(all(row[name] == -1 for row in ends) for name in class_labels)

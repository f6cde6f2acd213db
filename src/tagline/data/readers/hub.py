"""Datasets of the Hugging Face hub, `hf://glue/mnli`, through the `datasets` package if it is installed."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from tagline.data.readers import BadRows, Block, Cell, Layout, Source, cell, group_into_blocks, name_columns
from tagline.errors import DataError, PlaceError, first_line

SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "dev": "validation", "test": "test"}
SPLIT_COLUMN = "split"


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:  # noqa: ARG001 - the contract's signature
    """Return the dataset's columns, and one for its splits."""
    names = _load_splits(name)[0][1].column_names
    split_column = SPLIT_COLUMN if SPLIT_COLUMN not in names else f"{SPLIT_COLUMN}_{len(names) + 1}"
    columns = name_columns([*names, split_column], of=name)
    return {"columns": columns, "split_column": columns[-1]}


def blocks(source: Source, bad: BadRows) -> Iterator[Block]:  # noqa: ARG001 - as above
    """Yield the rows of a source in blocks."""
    return group_into_blocks(_read_rows(source))


def _read_rows(source: Source) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Yield each row of each labelled split; class labels are replaced by their names."""
    number = 0
    columns = _load_splits(source.name)[0][1].column_names
    for split, dataset in _load_splits(source.name):
        names = {name: _find_label_namer(feature) for name, feature in dataset.features.items()}
        for row in dataset:
            number += 1
            yield number, [*(cell(_name_label(row.get(name), names.get(name))) for name in columns), split]


def _find_label_namer(feature: Any) -> Any:
    """Return the function that maps a class label's number to its name, also for lists; None for other features."""
    return getattr(feature, "int2str", None) or getattr(getattr(feature, "feature", None), "int2str", None)


def _name_label(value: Any, name_of: Any) -> Any:
    """Return a class label's name, None for a hidden one (-1), and other values unchanged."""
    if name_of is None:
        return value
    if isinstance(value, list):
        return [name_of(item) for item in value]
    return name_of(value) if isinstance(value, int) and value >= 0 else None


@cache
def _load_splits(name: str) -> list[tuple[str, Any]]:
    """Return the labelled splits with Tagline's names for them; splits with only hidden labels (-1) are left out."""
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
        raise DataError(f"cannot load {name}: {first_line(error)}", hint=hint) from error
    splits = [(_split_name(split), dataset) for split, dataset in loaded.items() if not _is_hidden(dataset)]
    if not splits:
        raise DataError(f"{name} has no labelled rows")
    return splits


def _path_and_config(name: str) -> tuple[str, str | None]:
    """Split a name into dataset and config.

    `glue/mnli` is a config of glue; `owner/name` a dataset; `owner/name/config` both; `/path` a directory.

    """
    if name.startswith(("/", ".")):
        return name, None
    parts = name.split("/")
    if len(parts) == 3:
        return "/".join(parts[:2]), parts[2]
    if len(parts) == 2 and parts[0] in ("glue", "super_glue", "xtreme", "tweet_eval"):
        return parts[0], parts[1]
    return name, None


def _split_name(name: str) -> str:
    """Return Tagline's name for a split: `validation_matched` is a validation split."""
    return next((split for prefix, split in SPLITS.items() if name.lower().startswith(prefix)), "train")


def _is_hidden(dataset: Any) -> bool:
    class_labels = [name for name, feature in dataset.features.items() if hasattr(feature, "int2str")]
    ends = [dataset[0], dataset[len(dataset) - 1]] if len(dataset) else []
    return any(all(row[name] == -1 for row in ends) for name in class_labels)

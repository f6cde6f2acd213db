"""What a job needs of this machine: every file its spec names, at an address that its content decides."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagline import spec as specs
from tagline.errors import DataError
from tagline.jobs.uploads import stage_uploads


def spec_of(data: Path, **model: Any) -> specs.Spec:
    raw = {"data": {"train": str(data), "text": "text", "labels": "label"}, "model": {"family": "lstm", **model}}
    return specs.parse(raw, where="a test")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.csv"
    path.write_text("text,label\na,b\n")
    return path


def test_word_vectors_of_an_array_take_their_words_along(data: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 3), np.float32))
    with pytest.raises(DataError, match=r"no file .*x\.txt"):
        stage_uploads(spec_of(data, vectors=str(tmp_path / "x.npy")), "bucket")
    addresses = []
    for word in ("refund", "parcel"):
        (tmp_path / "x.txt").write_text(f"{word}\n")
        there, uploads = stage_uploads(spec_of(data, vectors=str(tmp_path / "x.npy")), "bucket")
        addresses.append(there.model.vectors)  # type: ignore[attr-defined]
        taken = {Path(upload.source).name: upload.address for upload in uploads}
        assert taken["x.npy"] == addresses[-1]
        assert taken["x.txt"] == addresses[-1].removesuffix(".npy") + ".txt"
    assert addresses[0] != addresses[1]  # other words of the same array are other vectors


def test_word_vectors_in_a_text_file_stand_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("refund 1 2\n")
    there, uploads = stage_uploads(spec_of(data, vectors=str(tmp_path / "x.txt")), "bucket")
    assert [Path(upload.source).name for upload in uploads] == ["data.csv", "x.txt"]
    assert uploads[1].address == there.model.vectors  # type: ignore[attr-defined]

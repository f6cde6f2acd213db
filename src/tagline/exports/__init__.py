"""The contract of an export: a bundle's answers in another runtime, checked to be the same."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tagline.models import Classifier, Scorer


class Export(Protocol):
    """A form that a model can be given besides its own."""

    def write(self, classifier: Classifier, directory: Path, *, family: str) -> None:
        """Put the model's other form into a bundle's directory, beside what the family saved there."""

    def forms(self, directory: Path, *, family: str) -> Mapping[str, Scorer]:
        """What the directory then holds, by name, ready to score."""

"""The contract of an export: a bundle's answers in another runtime, checked to be the same."""

from pathlib import Path
from typing import Any, Protocol

from tagline.models import Classifier


class Export(Protocol):
    """A form that a model can be given besides its own."""

    def write(self, classifier: Classifier, directory: Path) -> None:
        """Put the model's other form into a bundle's directory."""

    def forms(self, directory: Path) -> dict[str, Any]:
        """The classifiers that the directory then holds, by name, ready to score."""

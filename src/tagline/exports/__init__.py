"""The contracts of exports: another form of the model, in the bundle itself or packed for another runtime.

Files, in the order of their imports:

- int8.py: int8 quantisation of a graph: its weights, and its activations at fixed scales calibrated on sample
  texts.
- onnx.py: ONNX: a network as a graph that onnxruntime runs without torch, in float32 and in int8.
- torchserve_handler.py: The handler in an archive for TorchServe, which answers its requests with the bundle's own
  predictor.
- torchserve.py: TorchServe: an archive of the bundle, a handler that answers in Vertex AI's form, and the server's
  settings.
- image.py: A container image that serves the bundle: Dockerfile and context, built if there is a builder.
- transformers.py: transformers: a directory that `AutoModelForSequenceClassification` loads with the right head and
  labels.
- export.py: Export of another form into a bundle, checked on its measured rows before it is used.
- pack.py: Packing of a bundle for another runtime, in a directory of its own, with only the files that prediction
  needs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from tagline.models import Classifier, Scorer

if TYPE_CHECKING:
    from tagline.data.texts import Text
    from tagline.prediction.bundle import Bundle

SIGNATURE = "# Made by `tagline export`"
"""The first line of a packed export's `signed` file: a directory with it may be replaced by the next export."""


class Export(Protocol):
    """Another form of a model, besides its own."""

    def write(self, classifier: Classifier, directory: Path, *, family: str, samples: "Sequence[Text]") -> None:
        """Write the model's other form into a bundle's directory, beside the files of its family.

        The samples are representative texts, for forms that are calibrated by activation ranges.
        """

    def forms(self, directory: Path, *, family: str) -> Mapping[str, Scorer]:
        """Load the forms in the directory, by name, ready to score."""


class Package(Protocol):
    """A bundle packed for another runtime."""

    signed: ClassVar[str]
    """The file that begins with SIGNATURE."""

    def pack(self, directory: Path) -> None:
        """Write the package into a directory that holds only `bundle/`; it must not depend on the directory's path."""

    def deliver(self, directory: Path) -> dict[str, str]:
        """Return what was written, once it is in its final place, and the next command."""


@runtime_checkable
class Checkable(Protocol):
    """A package that can score without a server, from weights of the bundle (`needs_weights`), and be checked."""

    needs_weights: ClassVar[bool]

    def check(self, directory: Path, bundle: "Bundle", texts: "Sequence[Text]") -> None:
        """Raise an error if the package's scores of these texts differ from the bundle's."""

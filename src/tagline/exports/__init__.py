"""The contracts of exports: a bundle's answers in another runtime, in the bundle itself or packed to be taken there.

Files, in the order of their imports:

- int8.py: A graph whose products are in eight bits: weights, and what they multiply at scales that sample texts
  have shown.
- onnx.py: ONNX: a network as a graph that onnxruntime runs without torch, in float32 and with weights of eight
  bits.
- torchserve_handler.py: The handler in an archive for TorchServe: requests in its form, answers of the bundle's own
  predictor.
- torchserve.py: TorchServe: an archive of the bundle, a handler that answers in Vertex AI's form, and the server's
  own settings.
- image.py: A container image that serves the bundle: Dockerfile and context, built where there is something to
  build it with.
- transformers.py: transformers: a directory that `AutoModelForSequenceClassification` reads with the right head and
  labels.
- export.py: A bundle given another form, which is checked on the rows that it was measured on before anyone uses
  it.
- pack.py: A bundle packed for another runtime, in a directory of its own, with no more of it than answers need.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from tagline.models import Classifier, Scorer

if TYPE_CHECKING:
    from tagline.data.texts import Text
    from tagline.prediction.bundle import Bundle

SIGNATURE = "# Made by `tagline export`"
"""How a packed export's `signed` file begins: what bears it may be replaced by the next one."""


class Export(Protocol):
    """A form that a model can be given besides its own."""

    def write(self, classifier: Classifier, directory: Path, *, family: str, samples: "Sequence[Text]") -> None:
        """Put the model's other form into a bundle's directory, beside what the family saved there.

        The samples are texts as it will read them, for forms that have to know how large its numbers are.
        """

    def forms(self, directory: Path, *, family: str) -> Mapping[str, Scorer]:
        """What the directory then holds, by name, ready to score."""


class Package(Protocol):
    """Files that carry a bundle into another runtime."""

    signed: ClassVar[str]
    """The file that begins with SIGNATURE."""

    def pack(self, directory: Path) -> None:
        """Make it in a directory that holds `bundle/` and nothing else; it must not matter where that is."""

    def deliver(self, directory: Path) -> dict[str, str]:
        """What has been made, now that it stands at its place, and the command to go on with."""


@runtime_checkable
class Checkable(Protocol):
    """A package that computes by itself, from weights of the bundle (`needs_weights`), and can be asked at once."""

    needs_weights: ClassVar[bool]

    def check(self, directory: Path, bundle: "Bundle", texts: "Sequence[Text]") -> None:
        """Refuse what was packed if its scores of these texts are not the bundle's."""

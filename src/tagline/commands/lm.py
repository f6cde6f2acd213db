"""A language model of texts without labels, to be shared."""

from collections.abc import Sequence
from pathlib import Path

from tagline.system import extras
from tagline.training import language_models


@extras.explain_missing_packages()
def lm(texts: str | Path | Sequence[str | Path], *overrides: str, output: str | Path, text: str = "") -> Path:
    """Learn a language model of the texts in these files into the directory `output`, which is returned.

    Family ulmfit starts from it: model.pretrained=DIR. `text` names the column of a table that holds the texts.
    """
    files = [texts] if isinstance(texts, str | Path) else texts
    for _ in language_models.train_language_model(
        [str(file) for file in files], *overrides, output=output, column=text
    ):
        pass
    return Path(output)

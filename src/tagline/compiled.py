"""A network in ONNX form, run by onnxruntime with its tokenizer: a classifier's scores without torch."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tagline import batches, tokens
from tagline.errors import BundleError
from tagline.models import Scores, scores_of
from tagline.tokens import Reading

if TYPE_CHECKING:
    from tagline.texts import Text

DIRECTORY = "onnx"
FILES = {"float32": "model.onnx", "int8": "model.int8.onnx"}
READING = "reading.json"
MOST_TOKENS = 1024
"""Computed at once: texts of similar length, and few enough of them to stay near the processor."""

Precision = Literal["float32", "int8"]


class Compiled:
    """A bundle's network, ready to score; `threads` work on a batch together, 0: one a core."""

    def __init__(self, directory: Path, precision: Precision, *, threads: int = 0) -> None:
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer

        facts = json.loads((directory / DIRECTORY / READING).read_text("utf-8"))
        self.reading = Reading(**facts)
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._reader = tokens.Reader(
            tokenizer, max_tokens=self.reading.max_tokens, long_texts=self.reading.long_texts
        )  # fmt: skip
        path = directory / DIRECTORY / FILES[precision]
        options = SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        try:
            self._session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # it has a dozen of its own, below none in common
            raise BundleError(f"{path} cannot be loaded: {error}", hint="export the bundle again") from error

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """The score of every label for every text; of a text in windows, their mean."""
        reading = self.reading
        sequences = tokens.in_memory(self._reader.read(texts), with_types=reading.types)
        logits = np.zeros((len(sequences), reading.labels), np.float32)
        every = np.arange(len(sequences))
        for part in batches.within_budget(every, sequences.lengths, most_tokens=MOST_TOKENS):
            inputs: dict[str, Any] = sequences.padded(part, pad=reading.pad)
            logits[part] = self._session.run(None, inputs)[0]
        return sequences.pooled(scores_of(logits, task=reading.task), texts=len(texts))

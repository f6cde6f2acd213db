"""OnnxScorer: a network in ONNX form, run by onnxruntime without the framework that trained it."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tagline import registry
from tagline.errors import BundleError, first_line
from tagline.models import Inputs, Preprocessor, Scores, scores_of
from tagline.models.nn import batches, devices

if TYPE_CHECKING:
    from tagline.data.texts import Text

DIRECTORY = "onnx"
FIXED_SCALES = "tagline.scales"
"""Metadata key of an int8 graph whose activation scales are fixed. Where they are not, each text is computed by itself:
the scales would depend on the other texts of its batch."""
LARGE_BYTES = 64_000_000
"""Size of a graph from which several threads work on one text: below, synchronisation costs more than it gains."""
MOST_THREADS = 4
"""The most threads that work on one text."""
WAITING = {"session.intra_op.allow_spinning": "0"}
"""Session settings: threads that work on one text wait for each other asleep instead of spinning (decision 32)."""
UNHELPFUL = ["SkipLayerNormFusion"]
"""Graph optimisations of onnxruntime that make it slower: an addition followed by a normalisation takes less time than
the fused operation (measured on MiniLM: 17 % of the whole)."""

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# onnxruntime would otherwise send telemetry over the network; must be set before the first import.

Precision = Literal["float32", "int8"]
FILES: dict[Precision, str] = {"float32": "model.onnx", "int8": "model.int8.onnx"}
MOST_TOKENS: dict[Precision, int] = {"float32": 1024, "int8": 192}
"""The most tokens in a batch: few enough to stay in the processor's cache."""
MOST_STRETCH = 1.35
"""The longest text in a batch is at most this many times the shortest."""


def choose_thread_count(directory: Path, runtime: str, *, cores: int) -> int:
    """Return how many threads should work on one text, for a bundle that predicts in this form."""
    if runtime not in FILES:
        return 1
    size = (directory / DIRECTORY / FILES[runtime]).stat().st_size
    return min(cores, MOST_THREADS) if size > LARGE_BYTES else 1


class OnnxScorer:
    """Scores texts with a bundle's ONNX network on `threads` threads; 0: one per core."""

    def __init__(self, directory: Path, family: str, precision: Precision, *, threads: int = 0) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        path = directory / DIRECTORY / FILES[precision]
        self.preprocessor: Preprocessor = registry.find("models", family).load_preprocessor(directory)
        self._precision = precision
        threads = threads or devices.core_count()
        threads_per_text = choose_thread_count(directory, precision, cores=threads)
        self._parallel_batches = max(threads // threads_per_text, 1)
        options = SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads_per_text
        for key, value in WAITING.items():
            options.add_session_config_entry(key, value)
        try:
            self._session = InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=UNHELPFUL
            )
        except Exception as error:  # onnxruntime's dozen exceptions have no base class in common
            raise BundleError(
                f"{path} cannot be loaded: {first_line(error)}", hint="export the bundle again"
            ) from error
        if not self._session.get_outputs():
            raise BundleError(f"{path} has no output", hint="export the bundle again")
        self._outputs = [output.name for output in self._session.get_outputs()[:1]]
        metadata = self._session.get_modelmeta().custom_metadata_map
        self.stands_alone = precision == "int8" and FIXED_SCALES not in metadata
        """Whether each text is computed by itself."""

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._parallel_batches, thread_name_prefix="scores")

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """Return the score of every label for every text; for a text in windows, their mean."""
        inputs = self.preprocessor.read(texts)
        parts = self._split_batches(inputs)
        if self._parallel_batches == 1 or len(parts) == 1:
            part_scores = [self._score_batch(inputs, part) for part in parts]
        else:
            part_scores = list(self._pool.map(lambda part: self._score_batch(inputs, part), parts))
        if len(texts) == len(parts) == 1 == len(parts[0]):
            return part_scores[0]  # nothing to reorder; a single text is a server's most frequent request
        scores = np.zeros((len(inputs.lengths), self.preprocessor.labels), np.float32)
        for part, some in zip(parts, part_scores, strict=True):
            scores[part] = some
        return inputs.pooled(scores, texts=len(texts))

    def _split_batches(self, inputs: Inputs) -> list[NDArray[np.int64]]:
        """Split the sequences into batches."""
        sequences = np.arange(len(inputs.lengths))
        if self.stands_alone or len(sequences) == 1:
            return list(sequences[:, None])
        most_tokens = MOST_TOKENS[self._precision]
        return list(
            batches.within_budget(sequences, inputs.lengths, most_tokens=most_tokens, most_stretch=MOST_STRETCH)
        )

    def _score_batch(self, inputs: Inputs, part: NDArray[np.int64]) -> Scores:
        """Return the scores of some sequences; if the graph has several outputs, along a first axis, their mean."""
        arrays: dict[str, Any] = inputs.arrays(part)
        logits: NDArray[np.float32] = self._session.run(self._outputs, arrays)[0]
        if logits.ndim == 2:
            return scores_of(logits, task=self.preprocessor.task)
        return np.asarray(np.mean([scores_of(one, task=self.preprocessor.task) for one in logits], axis=0))

"""A network in ONNX form, run by onnxruntime: a classifier's scores without what it was learned with."""

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
"""Under this a graph of eight bits says that its scales are fixed. Where they are not, a text is computed by itself:
what is next to it would set the scale of its numbers."""
LARGE_BYTES = 64_000_000
"""Of a graph from which on several threads work on one text: below, they wait for each other more than they help."""
MOST_THREADS = 4
"""On one text."""
WAITING = {"session.intra_op.allow_spinning": "0"}
"""How threads that work on one text wait for each other: asleep, so that others can compute meanwhile."""
UNHELPFUL = ["SkipLayerNormFusion"]
"""What onnxruntime does to a graph that makes it slower: an addition and a normalisation one after the other take less
time than its one operation that does both (measured on MiniLM: 17 % of the whole)."""

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# onnxruntime would otherwise tell its makers, over the network, that it is used; set before anyone imports it.

Precision = Literal["float32", "int8"]
FILES: dict[Precision, str] = {"float32": "model.onnx", "int8": "model.int8.onnx"}
MOST_TOKENS: dict[Precision, int] = {"float32": 1024, "int8": 192}
"""Computed at once: few enough to stay near the processor."""
MOST_STRETCH = 1.35
"""The longest of the texts that are computed at once is at most so many times the shortest."""


def choose_thread_count(directory: Path, runtime: str, *, cores: int) -> int:
    """How many threads should work on one text, of a bundle that predicts in this form."""
    if runtime not in FILES:
        return 1
    size = (directory / DIRECTORY / FILES[runtime]).stat().st_size
    return min(cores, MOST_THREADS) if size > LARGE_BYTES else 1


class OnnxScorer:
    """A bundle's network, ready to score; so many `threads` work for it, 0: one a core."""

    def __init__(self, directory: Path, family: str, precision: Precision, *, threads: int = 0) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        path = directory / DIRECTORY / FILES[precision]
        self.intake: Preprocessor = registry.find("models", family).intake(directory)
        self._precision = precision
        threads = threads or devices.core_count()
        on_a_text = choose_thread_count(directory, precision, cores=threads)
        self._beside = max(threads // on_a_text, 1)
        options = SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = on_a_text
        for key, value in WAITING.items():
            options.add_session_config_entry(key, value)
        try:
            self._session = InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=UNHELPFUL
            )
        except Exception as error:  # it has a dozen of its own, below none in common
            raise BundleError(
                f"{path} cannot be loaded: {first_line(error)}", hint="export the bundle again"
            ) from error
        if not self._session.get_outputs():
            raise BundleError(f"{path} has no output", hint="export the bundle again")
        self._outputs = [output.name for output in self._session.get_outputs()[:1]]
        said = self._session.get_modelmeta().custom_metadata_map
        self.stands_alone = precision == "int8" and FIXED_SCALES not in said
        """Whether each text is computed by itself."""

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._beside, thread_name_prefix="scores")

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """The score of every label for every text; of a text in windows, their mean."""
        inputs = self.intake.read(texts)
        parts = self._split_batches(inputs)
        if self._beside == 1 or len(parts) == 1:
            found = [self._score_batch(inputs, part) for part in parts]
        else:
            found = list(self._pool.map(lambda part: self._score_batch(inputs, part), parts))
        if len(texts) == len(parts) == 1 == len(parts[0]):
            return found[0]  # nothing to put in order, and a text alone is what a server is asked for most
        scores = np.zeros((len(inputs.lengths), self.intake.labels), np.float32)
        for part, some in zip(parts, found, strict=True):
            scores[part] = some
        return inputs.pooled(scores, texts=len(texts))

    def _split_batches(self, inputs: Inputs) -> list[NDArray[np.int64]]:
        """What is computed at once."""
        every = np.arange(len(inputs.lengths))
        if self.stands_alone or len(every) == 1:
            return list(every[:, None])
        most_tokens = MOST_TOKENS[self._precision]
        return list(batches.within_budget(every, inputs.lengths, most_tokens=most_tokens, most_stretch=MOST_STRETCH))

    def _score_batch(self, inputs: Inputs, part: NDArray[np.int64]) -> Scores:
        """Of some sequences; where a graph has several answers, which stand along a first axis, their mean."""
        arrays: dict[str, Any] = inputs.arrays(part)
        logits: NDArray[np.float32] = self._session.run(self._outputs, arrays)[0]
        if logits.ndim == 2:
            return scores_of(logits, task=self.intake.task)
        return np.asarray(np.mean([scores_of(one, task=self.intake.task) for one in logits], axis=0))

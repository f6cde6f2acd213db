"""ULMFiT: an AWD-LSTM language model is fine-tuned on the texts, then turned into a classifier.

Files, in the order of their imports:

- awd_lstm.py: AWD-LSTM as published: an LSTM language model with five kinds of dropout, and a classifier on top of
  it.
- tokenizer.py: Tokenisation as in fastai's language models: marking rules, a tokenizer and a vocabulary. No torch.
- checkpoints.py: Language models in directories, Tagline's and fastai's, read without running code from them.
- one_cycle.py: One-cycle training as in fastai: scheduled rates and momentum, frozen groups and discriminative
  learning rates.
- stages.py: The stages of a ULMFiT training, resumable at any step: first a language model, then a classifier.
"""

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from tagline.errors import DataError, RunError, SpecError
from tagline.models import Scores, Step, model_files, scores_of
from tagline.models.nn import batches, devices, tokens
from tagline.models.nn.learner import compute_repeatably, smoothing_of, write_tensors
from tagline.models.nn.workers import world
from tagline.models.ulmfit.tokenizer import PAD_ID, VOCABULARY, Lexicon, choose_tokenizer
from tagline.spec import ModelOptions, Training

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tagline.data.checks import Finding
    from tagline.data.dataset import Split, Task
    from tagline.data.texts import Text
    from tagline.models.nn.tokens import Ints, Sequences
    from tagline.models.ulmfit.awd_lstm import AwdLstmClassifier, LanguageModel, Shape
    from tagline.models.ulmfit.checkpoints import PretrainedLanguageModel
    from tagline.models.ulmfit.stages import Direction, Network, StagedTraining, TrainingObjective, TrainingStage

LANGUAGE_MODEL, CLASSIFIER = "language model", "classifier"
KEYS = {"forward": "pretrained", "backward": "pretrained_backward"}
FIRST_STEPS = 50
"""Steps of a classifier for each group that is unfrozen: an epoch, or more where there are few rows."""
LM_EPOCHS = 4
"""Epochs of a pretrained language model."""
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1000, 4, 25
"""Steps that a classifier, or a language model from scratch, needs; the epochs that give them, within these limits."""
SURPRISE_RATIO = 0.9
"""A model that reads the other way has a loss on reversed texts below this share of its loss on the texts."""
KNOWN_SHARE = 0.65
"""The share of known tokens below which a warning is given. A vocabulary of 2,000 words of another subject covers 0.65
to 0.8 of English, one of another language 0.4 at most; pieces cover more, and of another script 0.2 to 0.6."""
READ_FACTOR = 10
"""Tokens that are read of a text, as a multiple of `max_tokens`; of a longer text its end."""
TOKENS_AT_ONCE = 16_384
CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
"""A language code, as in BCP 47."""


class UlmfitOptions(ModelOptions):
    """The options of `[model]` for family `ulmfit`."""

    family: Literal["ulmfit"] = Field("ulmfit", description="a language model, then a classifier")
    pretrained: str = Field("", description="directory of a language model that reads forward; else one is learned")
    pretrained_backward: str = Field("", description="directory of one that reads backward")
    direction: Literal["forward", "backward", "both"] = Field("forward", description="both: the mean of two models")
    unlabelled: tuple[str, ...] = Field((), description="files of more texts for the language model, globs too")
    language: str = Field("auto", description="en: words; any other: pieces of words, as fr, ja, ko, zh")
    lm_epochs: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="of the language model; auto: 4, or more if it is learned anew"
    )
    drop_mult: float = Field(0.5, ge=0, le=2, description="factor of every dropout")
    embedding_size: int = Field(256, ge=4, description="of a language model that is learned anew")
    hidden_size: int = Field(512, ge=4, description="of its layers")
    layers: int = Field(3, ge=1, le=8, description="of a language model that is learned anew")
    max_tokens: int = Field(1440, ge=72, description="at the end of a text that count; more are read")

    @field_validator("language")
    @classmethod
    def _check_language(cls, value: str) -> str:
        if value != "auto" and not CODE.fullmatch(value):
            raise ValueError('must be "auto" or a code such as en, fr, ja')
        return value


class Ulmfit:
    """The family `ulmfit`."""

    Options: ClassVar = UlmfitOptions
    uses: ClassVar[frozenset[str]] = frozenset({
        "epochs", "batch_size", "learning_rate", "weight_decay", "class_weights", "label_smoothing",
    })  # fmt: skip
    refits: ClassVar[bool] = False
    uses_device: ClassVar[bool] = True

    def __init__(self, options: UlmfitOptions, *, training: Training, task: "Task", labels: int, pair: bool) -> None:
        self.options, self.training = options, training
        self.task, self.labels, self.pair = task, labels, pair
        self.device = devices.choose_device(devices.find_devices(), local_rank=world().local_rank)
        self.lexicon: Lexicon | None = None
        self.classifiers: dict[Direction, AwdLstmClassifier] = {}
        self.language_model: LanguageModel | None = None
        self.directions = _list_directions(options.direction)
        self._pretrained: dict[Direction, PretrainedLanguageModel] = {}
        self._saved_shape: Shape | None = None
        self._stages: StagedTraining | None = None
        self._restored: dict[str, Any] = {}
        self._digest = ""

    @classmethod
    def create(
        cls, options: UlmfitOptions, *, training: Training, task: "Task", labels: Sequence[str], pair: bool
    ) -> Self:
        """Create an untrained model; the pretrained language models are read and checked.

        So is the beginning of every file of unlabelled texts.
        """
        from tagline.data import unlabelled

        if training.batch_size < 2:
            raise SpecError("training.batch_size: family ulmfit normalises over a batch, and needs 2 rows at least")
        model = cls(options, training=training, task=task, labels=len(labels), pair=pair)
        model._read_pretrained()
        unlabelled.check_readable(options.unlabelled)
        return model

    def _read_pretrained(self) -> None:
        from tagline.models.ulmfit import checkpoints

        options = self.options
        addresses: dict[Direction, str] = {"forward": options.pretrained, "backward": options.pretrained_backward}
        for direction, address in addresses.items():
            if address and direction not in self.directions:
                reads = self.directions[0]
                hint = f"set model.direction={direction} or both; one that reads {reads} is model.{KEYS[reads]}"
                raise SpecError(f"model.{KEYS[direction]} is not used: the model reads {reads}", hint=hint)
            if not address:
                continue
            loaded = checkpoints.read(address, key=f"model.{KEYS[direction]}")
            if loaded.backwards is not None and loaded.backwards != (direction == "backward"):
                reads = "backward" if loaded.backwards else "forward"
                hint = f"name it as model.{KEYS[reads]}, with model.direction={reads} or both"
                raise SpecError(f"model.{KEYS[direction]}: the model in {address} reads {reads}", hint=hint)
            self._pretrained[direction] = loaded
        models = list(self._pretrained.values())
        if len(models) == 2 and models[0].lexicon.vocabulary != models[1].lexicon.vocabulary:
            hint = "the two read the same tokens: make them from the same texts"
            raise SpecError("model.pretrained and model.pretrained_backward have different vocabularies", hint=hint)

    @classmethod
    def check_texts(cls, options: UlmfitOptions, texts: "Iterable[Text]") -> "Iterator[Finding]":
        """Yield a finding if the pretrained language model knows too few of these texts' tokens."""
        from tagline.data.checks import Finding
        from tagline.data.language_check import cut_beginnings
        from tagline.models.ulmfit import checkpoints

        for key in KEYS.values():  # the two have the same vocabulary
            if address := getattr(options, key):
                share = checkpoints.lexicon_of(address, key=f"model.{key}").known_share(cut_beginnings(texts))
                if share < KNOWN_SHARE:
                    yield Finding(
                        "language",
                        "warning",
                        f"model.{key} knows {share:.0%} of the tokens of these texts",
                        "is it of their language? what it does not know is learned from these texts alone",
                    )
                return

    def fit(self, train: "Split", validation: "Split", *, seed: int) -> Iterator[Step]:  # noqa: ARG002 - part of the contract
        """Fine-tune the language model on the texts, then the classifier on their labels."""
        from tagline.data.unlabelled import read_texts
        from tagline.models.ulmfit.stages import count_windows, steps_an_epoch

        if len(train) < 2:
            raise DataError("family ulmfit needs two training rows at least")
        sequences = self._read_texts(lambda: chain(train.texts, read_texts(self.options.unlabelled)))
        labelled, batch_size = sequences.first(len(train)), self.training.batch_size
        steps = {
            LANGUAGE_MODEL: count_windows(sequences, rows=batch_size),
            CLASSIFIER: steps_an_epoch(len(train), batch_size=batch_size),
        }
        yield from self._run_stages(
            self._plan_stages(steps),
            steps,
            seed=seed,
            objective=lambda stage, network: (
                self._create_lm_objective(network, sequences, stage, seed=seed)
                if stage.part == LANGUAGE_MODEL
                else self._create_label_objective(network, labelled, train.targets, stage, seed=seed)
            ),
        )

    def fit_language_model(self, texts: "Callable[[], Iterable[Text]]", *, seed: int) -> Iterator[Step]:
        """Train a language model alone, without a classifier."""
        from tagline.models.ulmfit.stages import count_windows

        sequences = self._read_texts(texts)
        steps = {LANGUAGE_MODEL: count_windows(sequences, rows=self.training.batch_size)}
        plan = [stage for stage in self._plan_stages(steps) if stage.part == LANGUAGE_MODEL]
        yield from self._run_stages(
            plan,
            steps,
            seed=seed,
            objective=lambda stage, network: self._create_lm_objective(network, sequences, stage, seed=seed),
        )

    def _read_texts(self, texts: "Callable[[], Iterable[Text]]") -> "Sequences":
        """Return the texts as tokens on disk; the first call makes the vocabulary from them."""
        if self._restored:  # another direction may not have started yet
            self._read_pretrained()
        if self.lexicon is None:
            self.lexicon = self._create_lexicon(texts)
        read = self.lexicon.read(texts(), most=READ_FACTOR * self.options.max_tokens)
        sequences = tokens.on_disk(read, with_types=False, vocabulary=len(self.lexicon))
        if sequences.starts[-1] < 2:
            raise DataError("the texts are too short for a language model: no token follows another")
        digest = hashlib.sha256(sequences.starts.data)
        digest.update(sequences.ids.data)
        if self._restored and self._restored["texts"] != digest.hexdigest():
            hint = "put the files of texts back as they were, or start anew"
            raise RunError("the texts of the language model have changed since the run was started", hint=hint)
        self._digest = digest.hexdigest()
        self._check_directions(sequences)
        return sequences

    def _create_lexicon(self, texts: "Callable[[], Iterable[Text]]") -> Lexicon:
        """Create the vocabulary: that of the pretrained model, and the frequent tokens of the texts."""
        pretrained = next(iter(self._pretrained.values()), None)
        if pretrained is None:
            return Lexicon.learn(texts(), choose_tokenizer(texts, language=self.options.language))
        tokenizer, vocabulary = pretrained.lexicon.tokenizer, pretrained.lexicon.vocabulary
        known, learned = set(vocabulary), Lexicon.learn(texts(), tokenizer).vocabulary
        return Lexicon(tokenizer, [*vocabulary, *(token for token in learned if token not in known)])

    def _check_directions(self, sequences: "Sequences") -> None:
        """Raise SpecError if a model reads the other way; it is measured, since fastai's files do not say."""
        from tagline.models.ulmfit.stages import measure_surprise

        for direction in self._pretrained:
            model = self._create_language_model(direction)
            forward, backward = (measure_surprise(model, sequences, backwards=reads) for reads in (False, True))
            named_loss, reversed_loss = (backward, forward) if direction == "backward" else (forward, backward)
            if reversed_loss < SURPRISE_RATIO * named_loss:
                reads = "forward" if direction == "backward" else "backward"
                problem = f"model.{KEYS[direction]}: the model there reads {reads}: it expects these texts that way"
                raise SpecError(problem, hint=f"name it as model.{KEYS[reads]}, with model.direction={reads} or both")

    def _run_stages(
        self,
        plan: "list[TrainingStage]",
        steps: dict[str, int],
        *,
        seed: int,
        objective: "Callable[[TrainingStage, Any], TrainingObjective]",
    ) -> Iterator[Step]:
        from tagline.models.ulmfit.stages import StagedTraining

        rate = None if self.training.learning_rate == "auto" else self.training.learning_rate
        self._stages = StagedTraining(
            plan,
            steps=steps,
            rate=rate,
            weight_decay=self.training.weight_decay,
            seed=seed,
            network=lambda stage: self._prepare_network(stage, seed=seed),
            objective=objective,
        )
        if self._restored:
            self._stages.restore(self._restored["tensors"], self._restored["course"])
            self._restored = {}
        with compute_repeatably(self.device, hint="start anew with a lower training.batch_size"):
            yield from self._stages.steps()

    def _plan_stages(self, steps: Mapping[str, int]) -> "list[TrainingStage]":
        """Return the stages of every direction; `steps` is the number of steps per epoch of each part."""
        from tagline.models.ulmfit.stages import plan_stages

        plan: list[TrainingStage] = []
        for direction in self.directions:
            is_pretrained = direction in self._pretrained
            lm_epochs = self.options.lm_epochs
            if lm_epochs == "auto":
                lm_epochs = LM_EPOCHS if is_pretrained else _choose_epochs(steps[LANGUAGE_MODEL])
            epochs = self.training.epochs
            if epochs == "auto":
                epochs = _choose_epochs(steps.get(CLASSIFIER, 1))
            plan += plan_stages(
                direction,
                pretrained=is_pretrained,
                groups=self._choose_shape().n_layers + 2,
                lm_epochs=lm_epochs,
                first_epochs=max(1, round(FIRST_STEPS / steps.get(CLASSIFIER, FIRST_STEPS))),
                epochs=epochs,
                search=self.training.learning_rate == "auto",
            )
        return plan

    def _create_lm_objective(
        self, network: Any, sequences: "Sequences", stage: "TrainingStage", *, seed: int
    ) -> "TrainingObjective":
        from tagline.models.ulmfit.stages import NextTokenObjective

        backwards = stage.direction == "backward"
        return NextTokenObjective(network, sequences, backwards=backwards, rows=self.training.batch_size, seed=seed)

    def _create_label_objective(
        self, network: Any, sequences: "Sequences", targets: Any, stage: "TrainingStage", *, seed: int
    ) -> "TrainingObjective":
        from tagline.models.nn.loop import Loss
        from tagline.models.ulmfit.stages import LabelObjective

        loss = Loss(
            targets,
            task=self.task,
            labels=self.labels,
            balanced=self.training.class_weights == "balanced",
            smoothing=smoothing_of(self.training, task=self.task),
        )
        if self.task == "multi":  # most labels are rare: logits that start at 0 would have to learn that first
            network.usual.copy_(loss.best_constant())
        return LabelObjective(
            network,
            sequences,
            targets,
            loss,
            backwards=stage.direction == "backward",
            pad=PAD_ID,
            batch_size=self.training.batch_size,
            seed=seed,
        )

    def _choose_shape(self) -> "Shape":
        """Return the sizes of the layers: those of a pretrained model, or of the options."""
        from tagline.models.ulmfit.awd_lstm import Shape

        options = self.options
        shape = next((model.shape for model in self._pretrained.values()), self._saved_shape)
        return shape or Shape(emb_sz=options.embedding_size, n_hid=options.hidden_size, n_layers=options.layers)

    def _prepare_network(self, stage: "TrainingStage", *, seed: int) -> "Network":
        """Return the network of a stage; a classifier's first stage creates it from the language model."""
        import torch

        direction = stage.direction
        with torch.random.fork_rng():  # in training, each step seeds the generator itself
            torch.manual_seed(seed + (direction == "backward"))
            if stage.part == LANGUAGE_MODEL:
                self.language_model = self.language_model or self._create_language_model(direction)
                return self.language_model
            if direction not in self.classifiers:
                model = self.language_model or self._create_language_model(direction)
                self.classifiers[direction] = self._create_classifier(weights=model.encoder.state_dict())
                self.language_model = None
            return self.classifiers[direction]

    def _create_language_model(self, direction: "Direction | None" = None) -> "LanguageModel":
        from tagline.models.ulmfit.awd_lstm import LanguageModel
        from tagline.models.ulmfit.checkpoints import extend_weights

        assert self.lexicon is not None
        model = LanguageModel(self._choose_shape().scale_dropout(self.options.drop_mult), tokens=len(self.lexicon))
        if direction in self._pretrained:
            model.load_state_dict(extend_weights(self._pretrained[direction], self.lexicon.vocabulary))
        return model.to(self.device.address)

    def _create_classifier(self, *, weights: "dict[str, Tensor] | None" = None) -> "AwdLstmClassifier":
        """Create a classifier with an untrained head on the layers of a language model."""
        from tagline.models.ulmfit.awd_lstm import AwdLstm, AwdLstmClassifier
        from tagline.models.ulmfit.stages import WINDOW

        assert self.lexicon is not None
        shape = self._choose_shape().scale_dropout(self.options.drop_mult)
        encoder = AwdLstm(shape, tokens=len(self.lexicon))
        if weights:
            encoder.load_state_dict(weights)
        classifier = AwdLstmClassifier(
            encoder, labels=self.labels, drop=shape.output_p, window=WINDOW, most=self.options.max_tokens
        )
        return classifier.to(self.device.address)

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """Return the score of every label for every text, averaged over the directions."""
        self._check_classifiers()
        assert self.lexicon is not None
        read = self.lexicon.read(texts, most=READ_FACTOR * self.options.max_tokens)
        sequences = tokens.in_memory(read, with_types=False)
        scores = [self._score_direction(direction, sequences) for direction in self.directions]
        return np.asarray(np.mean(scores, axis=0), np.float32)

    def _check_classifiers(self) -> None:
        if self.lexicon is None or list(self.classifiers) != self.directions:
            problem = "there is no classifier yet: the time was over while the language model learned"
            raise RunError(problem, hint="raise training.max_minutes, or lower model.lm_epochs")

    def _score_direction(self, direction: "Direction", sequences: "Sequences") -> Scores:
        import torch

        from tagline.models.ulmfit.stages import inputs_of

        network = self.classifiers[direction].eval()
        logits = np.zeros((len(sequences), self.labels), np.float32)
        with torch.inference_mode():
            parts = batches.within_budget(np.arange(len(sequences)), sequences.lengths, most_tokens=TOKENS_AT_ONCE)
            for part in parts:
                inputs = inputs_of(sequences, part, pad=PAD_ID, backwards=direction == "backward")
                logits[part] = network(**{name: each.to(self.device.address) for name, each in inputs.items()})[0].cpu()
        return scores_of(logits, task=self.task)

    def graph(self) -> "nn.Module":
        """Return the classifiers of all directions as one network, to be exported."""
        from tagline.models.ulmfit.awd_lstm import DirectionEnsemble

        return DirectionEnsemble(
            {str(direction): copy.deepcopy(each) for direction, each in self.classifiers.items()}
        ).cpu()

    @classmethod
    def load_preprocessor(cls, directory: Path) -> "LexiconPreprocessor":
        """Load the graph's preprocessor from the files that `save` wrote."""
        with model_files.translate_errors(directory / VOCABULARY):
            lexicon = Lexicon.load(directory)
        with model_files.translate_errors(directory / "ulmfit.json"):
            return LexiconPreprocessor(model_files.read_json(directory / "ulmfit.json"), lexicon)

    def save(self, directory: Path, *, resumable: bool = False) -> None:
        """Write the classifiers as safetensors, the vocabulary, the tokenizer's file, and the rest as JSON."""
        facts: dict[str, Any] = {
            "options": self.options.model_dump(),
            "task": self.task,
            "labels": self.labels,
            "pair": self.pair,
            "shape": asdict(self._choose_shape()),
        }
        networks: dict[str, Any] = {str(direction): each for direction, each in self.classifiers.items()}
        if resumable:
            facts["training"] = self.training.model_dump()
            networks |= {LANGUAGE_MODEL: self.language_model} if self.language_model else {}
            if self._stages:
                tensors, facts["course"] = self._stages.state()
                facts["texts"] = self._digest
                write_tensors(_flatten_tensors(tensors), directory / "course.safetensors")
        else:
            self._check_classifiers()
        write_tensors(
            _flatten_tensors({name: each.state_dict() for name, each in networks.items()}),
            directory / "model.safetensors",
        )
        if self.lexicon:
            self.lexicon.save(directory)
        (directory / "ulmfit.json").write_text(json.dumps(facts, indent=2) + "\n", "utf-8")

    def save_language_model(self, directory: Path) -> None:
        """Write the language model alone, to be shared, with dropouts as before `drop_mult`."""
        from tagline.models.ulmfit import checkpoints

        assert self.language_model is not None
        assert self.lexicon is not None
        backwards = self.directions[0] == "backward"
        checkpoints.save(directory, self.language_model, self.lexicon, shape=self._choose_shape(), backwards=backwards)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Load the files that `save` wrote."""
        from safetensors.torch import load_file

        from tagline.models.ulmfit.awd_lstm import Shape

        with model_files.translate_errors(directory / "ulmfit.json"):
            facts = model_files.read_json(directory / "ulmfit.json")
            training = Training(**facts.get("training", {}))
            options = UlmfitOptions.model_validate_json(json.dumps(facts["options"]))
            model = cls(options, training=training, task=facts["task"], labels=facts["labels"], pair=facts["pair"])
            model._saved_shape = Shape(**facts["shape"])
        if (directory / VOCABULARY).is_file():
            with model_files.translate_errors(directory / VOCABULARY):
                model.lexicon = Lexicon.load(directory)
        with model_files.translate_errors(directory / "model.safetensors"):
            networks = _nest_tensors(load_file(directory / "model.safetensors"))
            if LANGUAGE_MODEL in networks:
                model.language_model = model._create_language_model()
                model.language_model.load_state_dict(networks[LANGUAGE_MODEL])
            for direction in model.directions:
                if direction in networks:
                    model.classifiers[direction] = model._create_classifier()
                    model.classifiers[direction].load_state_dict(networks[direction])
        if "course" in facts:
            empty: dict[str, dict[str, Tensor]] = {"optimizer": {}, "carried": {}, "before": {}}
            tensors = empty | _nest_tensors(load_file(directory / "course.safetensors"))
            model._restored = {"tensors": tensors, "course": facts["course"], "texts": facts["texts"]}
        return model


@dataclass(frozen=True)
class DirectedSequences:
    """Texts as token sequences, which are reversed for direction `backward`."""

    sequences: "Sequences"
    directions: "list[Direction]"

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The number of tokens of each text."""
        return self.sequences.lengths

    def arrays(self, numbers: "Ints") -> "dict[str, Ints]":
        """Return the graph's inputs for these texts."""
        arrays = {}
        for direction in self.directions:
            padded = self.sequences.pad_batch(numbers, pad=PAD_ID, backwards=direction == "backward")
            arrays[f"{direction}_ids"] = padded["input_ids"]
            arrays["attention_mask"] = padded["attention_mask"]
        return arrays

    def pooled(self, scores: Scores, *, texts: int) -> Scores:  # noqa: ARG002 - a text is one sequence
        """Return the scores unchanged: a text is one sequence."""
        return scores


class LexiconPreprocessor:
    """The preprocessor of an `ulmfit` bundle's graph; it tokenises as fastai does."""

    def __init__(self, facts: Mapping[str, Any], lexicon: Lexicon) -> None:
        self.task: Task = facts["task"]
        self.labels, self.pair = facts["labels"], facts["pair"]
        self._directions = _list_directions(facts["options"]["direction"])
        self._most = READ_FACTOR * facts["options"]["max_tokens"]
        self._lexicon = lexicon

    def read(self, texts: Sequence["Text"]) -> DirectedSequences:
        """Preprocess some texts, in memory."""
        read = self._lexicon.read(texts, most=self._most)
        return DirectedSequences(tokens.in_memory(read, with_types=False), self._directions)


def _list_directions(setting: str) -> "list[Direction]":
    return ["forward", "backward"] if setting == "both" else [setting]  # type: ignore[list-item]


def _flatten_tensors(tensors: "Mapping[str, Mapping[str, Tensor]]") -> "dict[str, Tensor]":
    return {f"{kind}/{name}": tensor for kind, named in tensors.items() for name, tensor in named.items()}


def _nest_tensors(tensors: "Mapping[str, Tensor]") -> "dict[str, dict[str, Tensor]]":
    nested: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        nested.setdefault(kind, {})[rest] = tensor
    return nested


def _choose_epochs(steps_each: int) -> int:
    return min(max(round(STEPS / steps_each), FEWEST_EPOCHS), MOST_EPOCHS)

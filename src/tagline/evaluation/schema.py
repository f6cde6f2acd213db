"""Report: the contents of report.json, a frozen model for the whole and for each of its parts."""

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from tagline.storage.file_models import FileModel

REPORT_FORMAT = 4
"""The version of report.json; a report of another one is refused."""

Count = Annotated[int, Field(ge=0)]
Number = int | float
Interval = Annotated[list[FiniteFloat], Field(min_length=2, max_length=2)]
"""The two ends of a 95 % interval."""


class LabelFigures(FileModel):
    """The figures of one label."""

    precision: FiniteFloat = Field(description="share of the rows answered with the label that have it")
    recall: FiniteFloat = Field(description="share of the rows that have the label that are answered with it")
    f1: FiniteFloat = Field(description="harmonic mean of precision and recall")
    support: Count = Field(description="rows that have the label")
    accuracy: float | None = Field(default=None, description="share of all rows that are right about this label")
    coverage: float | None = Field(
        default=None, description="share of its rows that are answered, where the bundle abstains"
    )


class SplitFigures(FileModel):
    """The figures of a split. A figure that its rows cannot give is null; with no row there is `rows` alone."""

    rows: Count = Field(default=0, description="rows that were measured")
    accuracy: FiniteFloat | None = Field(
        default=None, description="share of the rows that are right; task multi: in every label"
    )
    subset_accuracy: FiniteFloat | None = Field(
        default=None, description="task multi: the same as accuracy, under its usual name"
    )
    micro_f1: FiniteFloat | None = Field(default=None, description="F1 over all answers of all labels")
    macro_f1: FiniteFloat | None = Field(default=None, description="mean F1 of the labels, each counting the same")
    weighted_f1: FiniteFloat | None = Field(default=None, description="mean F1 of the labels, weighted by their rows")
    macro_precision: float | None = Field(default=None, description="mean precision of the labels")
    macro_recall: float | None = Field(default=None, description="mean recall of the labels")
    balanced_accuracy: float | None = Field(
        default=None, description="task single: mean recall of the labels that have rows"
    )
    mcc: float | None = Field(default=None, description="task single: Matthews correlation coefficient")
    jaccard: float | None = Field(
        default=None, description="task multi: mean overlap of the true and the given labels of a row"
    )
    log_loss: float | None = Field(default=None, description="mean negative logarithm of the score of the truth")
    brier: float | None = Field(default=None, description="Brier score: mean squared error of the scores")
    ece: float | None = Field(
        default=None, description="expected calibration error: how far scores are from how often they are true"
    )
    average_precision: float | None = Field(
        default=None, description="task multi: area below precision over recall, mean of labels"
    )
    auroc: float | None = Field(default=None, description="area under the ROC curve, mean of the labels")
    per_label: dict[str, LabelFigures] = Field(default={}, description="the figures of each label, by its name")
    confusion: list[list[int]] | None = Field(
        default=None,
        description="task single: the confusion matrix, a row for each true label, a column for each answer",
    )
    coverage: FiniteFloat | None = Field(
        default=None, description="share of the texts that are answered, if any is not"
    )
    accuracy_of_answered: FiniteFloat | None = Field(
        default=None, description="share of the answers given that are right"
    )
    accuracy_of_answered_interval: Interval | None = Field(
        default=None, description="95 % interval of accuracy_of_answered"
    )
    unknown_label_rows: Count = Field(
        default=0, description="rows with a label that was never learned; left out if none has"
    )
    intervals: dict[str, Interval] = Field(
        default={}, description="95 % intervals by the name of the figure; test only"
    )


class BaselineFigures(FileModel):
    """The figures of a baseline, or of another family, on the same test rows."""

    answer: list[str] = Field(default=[], description="the labels that baseline `majority` gives to every text")
    train_rows: Count = Field(default=0, description="training rows that it learned from, if not all")
    accuracy: float | None = Field(default=None, description="as in the figures of a split")
    macro_f1: float | None = Field(default=None, description="as in the figures of a split")
    micro_f1: float | None = Field(default=None, description="as in the figures of a split")
    subset_accuracy: float | None = Field(default=None, description="as in the figures of a split")


class GateResult(FileModel):
    """A gate of the spec, and whether it was passed."""

    gate: str = Field(description="the figure, followed by a dot and the label if it is a label's")
    at_most: bool = Field(description="whether the figure must not be higher; else it must not be lower")
    wanted: float = Field(description="the limit that the spec sets")
    reached: float | None = Field(default=None, description="the figure on test; null if it cannot be measured")
    passed: bool = Field(description="whether the gate is passed")


class DecisionFacts(FileModel):
    """The decision layer, as in the bundle's manifest."""

    calibration: dict[str, Any] = Field(default={}, description="the calibration map: its method and its numbers")
    thresholds: list[float] = Field(default=[], description="task multi: the score from which each label is given")
    abstain_below: float = Field(default=0.0, description="the score below which a text is not answered; 0: all are")
    floors: list[float] = Field(
        default=[], description="the lowest score in a conformal set, for each coverage that can be asked for"
    )
    none_label: str = Field(default="", description="task multi: the label of a text that has no other")


class OveransweredLabel(FileModel):
    """A label that is given to far more texts than have it."""

    label: str = Field(description="the label")
    answered: float = Field(description="share of the texts that it is given to")
    expected: float = Field(description="share of the training rows that have it")


class ScoreErrors(FileModel):
    """The calibration errors of scores."""

    log_loss: float = Field(description="as in the figures of a split")
    brier: float = Field(description="as in the figures of a split")
    ece: float = Field(description="as in the figures of a split")


class ReliabilityBin(FileModel):
    """Scores in one of fifteen ranges of equal width, and how often they are true."""

    rows: Count = Field(description="scores in this range")
    score: float = Field(description="their mean")
    true: float = Field(description="share of them that are true")


class Reliability(FileModel):
    """The reliability diagram before and after calibration."""

    before: list[ReliabilityBin] = Field(default=[], description="of the model's own scores")
    after: list[ReliabilityBin] = Field(default=[], description="of the calibrated scores")


class CalibrationFigures(FileModel):
    """The scores on test before and after calibration; empty without test rows."""

    method: str = Field(default="none", description="none, temperature, vector or isotonic")
    losses: dict[str, float] = Field(
        default={}, description="log loss of each method on validation rows that it was not fitted on"
    )
    ece_by_chance: float = Field(
        default=0.0, description="the calibration error that perfect scores would show on as many rows"
    )
    before: ScoreErrors | None = Field(default=None, description="of the model's own scores")
    after: ScoreErrors | None = Field(default=None, description="of the calibrated scores")
    reliability: Reliability = Field(default_factory=Reliability, description="the points of the reliability diagram")


class CoveragePoint(FileModel):
    """Coverage and precision on test when abstaining below a score."""

    below: float = Field(description="the score below which a text would not be answered")
    coverage: float = Field(description="share of the texts that would be answered")
    right: float = Field(description="share of these answers that would be right")


class SetCoverage(FileModel):
    """The coverage and size of conformal prediction sets on test, for a promised coverage."""

    promised: float = Field(description="share of the texts whose set should hold the truth")
    reached: float = Field(description="share of the test rows whose set does")
    labels: float = Field(description="labels in a set, on average")


class LabelThresholds(FileModel):
    """The figures of a label over its threshold."""

    precision: list[float] = Field(description="at each threshold")
    recall: list[float] = Field(description="at each threshold")
    f1: list[float] = Field(description="at each threshold")


class ThresholdCurves(FileModel):
    """Task `multi`: precision, recall and F1 on test over the threshold; else empty."""

    at: list[float] = Field(default=[], description="the thresholds")
    labels: dict[str, LabelThresholds] = Field(default={}, description="the curves of each label, by its name")


class LossPoint(FileModel):
    """The training loss at a step."""

    step: Count = Field(description="the step")
    loss: Number = Field(description="the loss")
    stage: str = Field(default="", description="the stage of the training, if it has several")
    setting: Number | None = Field(default=None, description="the value of the setting that was tried, see `tried`")


class EvaluationPoint(FileModel):
    """An evaluation on validation while the model learned."""

    step: Count = Field(description="the step")
    value: Number = Field(description="the monitored figure")
    kept: bool = Field(description="whether the model was kept as the best so far")
    setting: Number | None = Field(default=None, description="the value of the setting that was tried, see `tried`")


class TrainingHistory(FileModel):
    """The losses and evaluations of the training; empty for a bundle measured on other data."""

    steps: list[LossPoint] = Field(default=[], description="the loss curve, thinned to what a chart can show")
    evaluations: list[EvaluationPoint] = Field(default=[], description="the evaluations on validation")
    monitor: str = Field(default="", description="the figure that was monitored")
    tried: str = Field(
        default="", description="the one setting in which the steps differ, where each step is a model of its own"
    )


class ErrorRow(FileModel):
    """A row of the error analysis."""

    text: str | list[str] = Field(description="its text, or the two of a pair; long ones are cut off")
    truth: list[str] = Field(description="the labels it has")
    answer: list[str] = Field(description="the labels it was given")
    score: float = Field(description="the score of the answer")
    file: str = Field(description="the file that it is in")
    line: int = Field(description="the line of the file")


class MistakeRow(ErrorRow):
    """A wrong answer; the most confident ones have attributions."""

    sure: float = Field(default=0.0, description="how sure the wrong answer was")
    pushed_to: str = Field(default="", description="the wrong label that is explained")
    pushes: list[list[Number]] = Field(
        default=[], description="attributions: start, end, weight in log-odds, and which text of a pair"
    )


class SuspectRow(ErrorRow):
    """A row with a likely label error."""

    split: str = Field(default="", description="the split it is in")
    change: str = Field(default="", description="what the model would change in its labels")
    doubt: float = Field(default=0.0, description="how little the model believes the label")
    is_grave: bool = Field(
        default=False, description="whether the model is nearly sure, because it believes another label"
    )


class ConfusedPair(FileModel):
    """Two labels, one of which was answered in place of the other."""

    truth: str = Field(description="the label that was missed")
    answer: str = Field(description="the label that was given")
    rows: Count = Field(description="test rows in which that happened")
    share: float = Field(description="of the rows that have the true label")
    examples: list[ErrorRow] = Field(default=[], description="the surest of them")


class SliceFigures(FileModel):
    """Test rows that have something in common, compared with all others."""

    by: str = Field(description="what they have in common: length, words, likeness, script, file or a column")
    name: str = Field(description="the value they share")
    rows: Count = Field(description="how many they are")
    accuracy: float = Field(description="share of them that are right")
    accuracy_of_rest: float = Field(description="share of the others that are right")
    p_value: float = Field(description="of Fisher's exact test, corrected for the number of slices")
    is_worse: bool = Field(description="whether they do worse, and chance does not explain it")


class ExportCheck(FileModel):
    """The answers of another form of the model compared with its own, on measured rows."""

    rows: Number = Field(default=0, description="rows that were compared")
    equal_answers: float = Field(description="share of the rows with the same answer")
    largest_difference: float = Field(description="the largest change of a score")
    accuracy: float = Field(default=0.0, description="change of the figure")
    macro_f1: float = Field(description="change of the figure")
    micro_f1: float = Field(default=0.0, description="change of the figure")
    ece: float = Field(default=0.0, description="change of the figure")


class DataFile(FileModel):
    """A file of the data, as it was read."""

    file: str = Field(description="its address")
    format: str = Field(description="its format")
    encoding: str = Field(description="its encoding")


class DataFacts(FileModel):
    """The data as it was read."""

    fingerprint: str = Field(default="", description="SHA-256 of its content")
    rows: Count = Field(default=0, description="its rows")
    files: list[DataFile] = Field(default=[], description="its files")
    bad_rows: Count = Field(default=0, description="rows that could not be read and were passed over")
    leaked_rows: Count = Field(default=0, description="rows left out of a split because a later one has the same text")
    unlabelled_rows: Count = Field(default=0, description="rows left out because their label says that there is none")
    split_totals: dict[str, Count] = Field(default={}, description="rows of each split before data.fraction")


class ReportFinding(FileModel):
    """A finding of the data checks."""

    code: str = Field(description="the name of the finding")
    severity: str = Field(description="error, warning or note")
    message: str = Field(description="what was found")
    advice: str = Field(default="", description="what to do about it")
    places: list[str] = Field(default=[], description="rows to look at, as FILE:LINE")


class CurvePoint(FileModel):
    """A point of a learning curve."""

    rows: Count = Field(description="training rows")
    value: FiniteFloat = Field(description="the figure on test")
    interval: Interval = Field(description="its 95 % interval")


class LearningCurve(FileModel):
    """The figure on growing parts of the training rows, and what more rows would bring."""

    figure: str = Field(description="the figure that is measured")
    points: list[CurvePoint] = Field(description="what was measured")
    expected: list[CurvePoint] = Field(description="what is expected with twice as many rows")
    gain: float = Field(description="the expected gain of twice as many rows, along the curve")
    gain_interval: Interval = Field(description="its 95 % interval")
    sentence: str = Field(description="the result in a sentence")


class Report(FileModel):
    """Everything that was measured. The same spec, data and seed give the same report."""

    format: int = Field(description="the version of this file")
    task: Literal["single", "multi"] = Field(description="single: one label a text; multi: any number")
    pair: bool = Field(description="whether a text is a pair of texts")
    labels: list[str] = Field(description="the labels, in the order of all that is listed by label")
    family: str = Field(description="the model's family")
    splits: dict[str, Count] = Field(description="rows of each split; of a bundle measured on other data, test alone")
    test: SplitFigures = Field(description="the figures of the test split")
    validation: SplitFigures | None = Field(default=None, description="the figures of the validation split")
    baselines: dict[str, BaselineFigures] = Field(
        description="what others reach on test: majority (always the same answer), linear, another family"
    )
    gates: list[GateResult] = Field(description="the gates of the spec")
    decisions: DecisionFacts = Field(description="the decision layer, which turns scores into answers")
    unkept: list[str] = Field(default=[], description="goals of the spec's decisions that the data does not allow")
    fallbacks: list[str] = Field(default=[], description="forms and models that were not used because they do worse")
    overanswered: list[OveransweredLabel] = Field(
        default=[], description="labels given to far more texts than have them"
    )
    calibration: CalibrationFigures = Field(
        default_factory=CalibrationFigures, description="the scores before and after calibration"
    )
    coverage: list[CoveragePoint] = Field(
        default=[], description="coverage and precision when abstaining, the fewest answers first"
    )
    sets: list[SetCoverage] = Field(default=[], description="the coverage and size of conformal prediction sets")
    thresholds: ThresholdCurves = Field(default_factory=ThresholdCurves, description="figures over the threshold")
    history: TrainingHistory = Field(
        default_factory=TrainingHistory, description="the losses and evaluations of the training"
    )
    mistakes: list[MistakeRow] = Field(default=[], description="wrong answers on test, the surest first")
    confusions: list[ConfusedPair] = Field(
        default=[], description="labels answered in place of others, the most frequent first"
    )
    suspects: list[SuspectRow] = Field(
        default=[], description="held-out rows whose label looks wrong, the most doubtful first"
    )
    gravely_doubted: Count = Field(default=0, description="held-out rows whose label the model is nearly sure is wrong")
    slices: list[SliceFigures] = Field(default=[], description="groups of test rows, those that do worst first")
    runtime: str = Field(
        default="", description="the form that the bundle predicts in: float32 or int8 of ONNX; empty: its own"
    )
    exports: dict[str, ExportCheck] = Field(default={}, description="how the other forms compare, by their names")
    data: DataFacts = Field(default_factory=DataFacts, description="the data as it was read")
    findings: list[ReportFinding] = Field(description="what the checks of the data found")
    advice: list[str] = Field(description="what is most worth doing next, the most urgent first")
    learning_curve: LearningCurve | None = Field(
        default=None, description="what more rows would bring, if that was measured"
    )

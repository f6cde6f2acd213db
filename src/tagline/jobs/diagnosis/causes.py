"""Causes of failed jobs: rules that recognise them in the output of programs and of Google's services."""

import re
from dataclasses import dataclass
from typing import Literal

Source = Literal["exception", "line", "service"]
"""The origin of a text: an exception that ended a program (or Tagline's own error), another line, or the service."""

EVERYWHERE: tuple[Source, ...] = ("exception", "line", "service")
PROGRAM: tuple[Source, ...] = ("exception", "line")


@dataclass(frozen=True)
class CauseRule:
    """Patterns that identify a cause, and the sources in which they are reliable."""

    cause: str
    words: re.Pattern[str]
    sources: tuple[Source, ...] = EVERYWHERE


def _make_rule(cause: str, *words: str, sources: tuple[Source, ...] = EVERYWHERE) -> CauseRule:
    return CauseRule(cause, re.compile("|".join(words)), sources)


# The first match wins, so specific patterns stand before loose ones.
RULES = (
    _make_rule(
        "missing-column",
        r'has no columns? "',
        r"Column '?[^']+'? in include_columns does not exist",
        r"No match for FieldRef\.Name",
        r"Usecols do not match columns",
        r"KeyError: \"(?:None of|\[.*\] not in index)",
        r"Column \S+ not in the dataset",
        r"Field \"[^\"]+\" does not exist in",
        sources=PROGRAM,
    ),
    _make_rule("nan", r"[Ll]oss is (?:nan|NaN|-?inf)\b", r"returned nan values in its", r"NaN loss", sources=PROGRAM),
    _make_rule(
        "gpu-memory",
        r"CUDA out of memory",
        r"\bOutOfMemoryError\b",
        r"CUDA error: out of memory",
        r"CUBLAS_STATUS_ALLOC_FAILED",
        r"cudaErrorMemoryAllocation",
        r"OOM when allocating tensor",
        sources=PROGRAM,
    ),
    _make_rule(
        "wrong-cuda",
        r"no kernel image is available",
        r"CUDA driver version is insufficient",
        r"not compiled with CUDA",
        r"NVIDIA driver on your system is too old",
        r"Found no NVIDIA driver",
        r"not compatible with the current PyTorch",
        r"lib(?:cuda|cudart|cublas|cudnn|nccl|nvrtc|nvJitLink|cusparse)[\w-]*\.so[\d.]*: ",
        r"the provided PTX was compiled with an unsupported toolchain",
        r"CUDA error: invalid device function",
        sources=PROGRAM,
    ),
    _make_rule("no-gpu", r"asked for (?:a GPU|\d+ GPUs) and torch finds none", sources=PROGRAM),
    _make_rule("disk-full", r"\[Errno 28\]", r"No space left on device", r"\[Errno 122\]", r"Disk quota exceeded"),
    _make_rule(
        "pip-conflict",
        r"ResolutionImpossible",
        r"No matching distribution found for",
        r"satisfies the requirement",
        r"have conflicting dependencies",
        r"requires a different Python:",
        r"metadata-generation-failed",
        r"Could not build wheels for",
        r"[Ff]ailed to build installable wheels",
        r"subprocess-exited-with-error",
        r"DistributionNotFound: ",
        r"VersionConflict: ",
    ),
    _make_rule(
        "image-pull",
        r"ImagePullBackOff",
        r"ErrImagePull",
        r"[Ff]ailed to pull (?:and unpack )?image",
        r"[Uu]nable to pull image",
        r"MANIFEST_UNKNOWN",
        r"manifest unknown",
        r"manifest for \S+ not found",
        r"pull access denied",
        r"repositories\.downloadArtifacts",
        r"Failed to read the container uri",
        r"[Ii]mage \S+ (?:is |was )?(?:not found|does not exist|could not be found)",
        sources=("service",),
    ),
    _make_rule(
        "quota",
        r"quota metrics? exceeds? quota",
        r"[Qq]uota exceeded",
        r"QUOTA_EXCEEDED",
        r"Quota failure",
        r"Quota '\S+' exceeded",
        r"exceeds? (?:the )?quota",
        r"[Ii]nsufficient quota",
        sources=("service", "exception"),
    ),
    _make_rule(
        "capacity",
        r"[Rr]esources are insufficient in region",
        r"not have enough resources",
        r"RESOURCE_POOL_EXHAUSTED",
        r"[Ii]nsufficient (?:resources|capacity)",
        r"\b[Nn]o capacity",
        r"not enough capacity",
        r"stockout",
        sources=("service", "exception"),
    ),
    _make_rule(
        "permission",
        r"Permission ['\"]?[\w.]+['\"]? denied",
        r"does not have [`\[]*(?:[a-z]\w*\.)+\w+",
        r"PERMISSION_DENIED",
        r"Forbidden: 403",
        r"\b403 (?:Client Error: )?Forbidden",
        r"ACCESS_TOKEN_SCOPE_INSUFFICIENT",
        r"AccessDenied",
    ),
    _make_rule(
        "permission",
        r"does not have permission",
        r"IAM permission",
        r"PermissionDenied: 403",
        r"may not be used: 403",
        r"PermissionError: ",
        r"\[Errno 13\]",
        sources=("exception", "service"),
    ),
    _make_rule(
        "not-found",
        r"The specified bucket does not exist",
        r"No such object: ",
        r"NoSuchBucket",
        r"there is no gs://",
        r"there is nothing at gs://",
        r"The package gs://\S+ was not found",
        r"is not in gs://\S+ any more",
        r"the bucket of gs://\S+ is not there any more",
        r"there is no bucket [a-z0-9]",
    ),
    _make_rule(
        "host-memory",
        r"ran out[- ]of[- ]memory",
        r"\bOOMKilled\b",
        r"\bMemoryError\b",
        r"[Cc]an(?:'t|not) allocate memory",
        r"Out of memory: Killed",
        r"std::bad_alloc",
        r"Unable to allocate [\d.]+ \wiB for an array",
        r"killed by signal(?: 9\b|: Killed|: Bus error)",
        r"with signal SIGKILL",
        r"Signal 9 \(SIGKILL\)",
        r"exitcode\s*: -9\b",
        r"^Killed$",
        r": line \d+: +\d+ Killed\b",
    ),
    _make_rule("import-error", r"ModuleNotFoundError: ", r"ImportError: ", r"No module named ", sources=PROGRAM),
    _make_rule(
        "network",
        r"Failed to resolve '",
        r"Temporary failure in name resolution",
        r"Network is unreachable",
        r"couldn't connect to 'https?://",
        r"Max retries exceeded with url",
        sources=("exception",),
    ),
    _make_rule(
        "timeout",
        r"longer than its timeout",
        r"exceeded (?:the |its )?(?:max\w* )?(?:timeout|run(?:ning)? time)",
        r"JOB_STATE_EXPIRED",
        sources=("service",),
    ),
    _make_rule("preempted", r"\b[Pp]reempt(?:ed|ion)\b", sources=("service",)),
    _make_rule("cancelled", r"\bCANCELL?ED\b", r"(?:was|[Jj]ob) cancell?ed", sources=("service",)),
    _make_rule("internal", r"Internal error occurred", r"[Ii]nternal error encountered", sources=("service",)),
    _make_rule(
        "start",
        r"executable file not found in \$PATH",
        r"\bStartError\b",
        r"failed to create containerd task",
        r"exec format error",
        r"CreateContainer\w*Error",
        sources=("service", "line"),
    ),
    _make_rule("crash", r"Fatal Python error: ", r"^Segmentation fault", r"\(core dumped\)", sources=PROGRAM),
)

CONSEQUENCE = re.compile(
    r"gloo/|Connection (?:closed|reset) by peer|caused by a remote worker crashing|NCCL communicator was aborted"
    r"|ncclRemoteError|remote process exited|collective operation timeout|Dist(?:Backend|Network|Store)Error"
    r"|Rendezvous\w*Error|ChildFailedError|SignalException|SIGTERM|got signal: 15|[Ss]ignal 15\b|KeyboardInterrupt"
    r"|BrokenPipeError|ConnectionResetError|another worker is gone|told to stop|ProcessExitedException"
)
"""Messages of a worker that has lost another one or was told to stop."""

BY_STATUS = {
    9: "host-memory", 137: "host-memory", 6: "crash", 134: "crash", 11: "crash", 139: "crash",
    126: "start", 127: "start", 128: "start",
}  # fmt: skip
"""The cause by exit status, where the log names none."""
TAGLINE_STATUS = {1: "check", 2: "spec", 3: "data", 4: "run", 5: "place", 70: "bug"}
"""The exit statuses of Tagline's own errors (`errors`)."""


def recognise_cause(text: str, source: Source) -> str:
    """Return the cause that a text names; "" if none."""
    return next((rule.cause for rule in RULES if source in rule.sources and rule.words.search(text)), "")


def is_consequence(text: str) -> bool:
    """Return whether a text is only the consequence of a failure elsewhere."""
    return CONSEQUENCE.search(text) is not None and recognise_cause(text, "exception") != "host-memory"

"""Advice on each cause of failure: a sentence and the next command."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from tagline.gcp import machines
from tagline.jobs.diagnosis.causes import recognise_cause
from tagline.spec import Spec, Vertex


@dataclass(frozen=True)
class Case:
    """A failure whose cause is known."""

    replica: str
    text: str
    """All messages about it."""
    spec: Spec | None

    @property
    def subject(self) -> str:
        """The grammatical subject of sentences about it: the replica, or the job."""
        return self.replica or "the job"

    @property
    def vertex(self) -> Vertex:
        """The job's section `vertex` of the spec, or its defaults."""
        return self.spec.vertex if self.spec else Vertex()  # type: ignore[call-arg]

    @property
    def requested_machines(self) -> str:
        """The requested machines or accelerators, with their number."""
        if self.spec is None:
            return "what the job asks for"
        count = self.vertex.accelerators * self.vertex.workers
        return f"{count} {self.vertex.accelerator}" if count else f"{self.vertex.workers} {self.vertex.machine}"

    @property
    def region(self) -> str:
        """The region in which they were requested."""
        named = self.find(r"in region:? '?([a-z]+-[a-z]+\d)")
        return named or (self.vertex.region if self.spec else "its region")

    def find(self, *patterns: str) -> str:
        """Return the first group of the first pattern that matches; "" if none does."""
        matches = (re.search(pattern, self.text) for pattern in patterns)
        return next((match[1] for match in matches if match), "")


def format_train_command(*overrides: str) -> str:
    """Return the command for the same job with other settings."""
    return " ".join(["tagline train SPEC --on vertex", *map(shlex.quote, overrides)])


def format_check_command(*overrides: str) -> str:
    """Return the command that checks spec and data."""
    return " ".join(["tagline check SPEC", *map(shlex.quote, overrides)])


REHEARSE = "tagline train SPEC --on rehearsal"
"""The command for the same job on this machine, at no cost."""


def advise(cause: str, case: Case) -> tuple[str, str]:
    """Return a sentence of advice, and the command to run next ("" if there is none)."""
    return ADVICE[cause](case)


def _advise_gpu_memory(case: Case) -> tuple[str, str]:
    tried = case.find(r"Tried to allocate ([\d.]+ \wiB)")
    total = case.find(r"total capacity of ([\d.]+ \wiB)", r"([\d.]+ \wiB) total capacity")
    amount = f" ({tried} more did not fit{f' into {total}' if total else ''})" if tried else ""
    problem = f"{case.subject} ran out of GPU memory{amount}"
    rows = case.spec.training.batch_size if case.spec else 0
    if rows > 1:
        return f"{problem} with batches of {rows} rows: half of them may fit", format_train_command(
            f"training.batch_size={rows // 2}"
        )
    if larger := _suggest_larger_gpu(case.vertex):
        return f"{problem}: use a larger accelerator, or a smaller model.max_tokens", format_train_command(*larger)
    return f"{problem}: lower training.batch_size, model.max_tokens, or take a smaller model", format_train_command(
        "training.batch_size=8"
    )


GPUS = ("NVIDIA_TESLA_P4", "NVIDIA_TESLA_T4", "NVIDIA_TESLA_V100", "NVIDIA_L4", "NVIDIA_TESLA_A100",
        "NVIDIA_A100_80GB", "NVIDIA_H100_80GB")  # fmt: skip
"""Accelerators by memory: 8, 16, 16, 24, 40, 80 and 80 GB."""


def _find_gpu_overrides(accelerator: str, count: int) -> list[str]:
    """Return overrides for a number of accelerators and a machine with them; [] if there is no such machine."""
    fitting = [name for name, own in machines.WITH_THEIR_OWN.items() if own == (accelerator, count)]
    machine = fitting[min(1, len(fitting) - 1)] if fitting else ""  # the smallest of several has little memory
    return [f"vertex.machine={machine}", f"vertex.accelerator={accelerator}"] if machine else []


def _suggest_larger_gpu(vertex: Vertex) -> list[str]:
    if vertex.accelerator not in GPUS or not vertex.accelerators:
        return []
    here = GPUS.index(vertex.accelerator)
    larger = (_find_gpu_overrides(name, vertex.accelerators) for name in GPUS[max(here + 1, GPUS.index("NVIDIA_L4")) :])
    return next(filter(None, larger), [])


def _advise_host_memory(case: Case) -> tuple[str, str]:
    is_sure = re.search(r"ran out|allocate|MemoryError|OOMKilled|Out of memory|bad_alloc", case.text)
    problem = f"{case.subject} {'ran out of memory' if is_sure else 'was killed, as happens when memory runs out'}"
    where = f" on {case.vertex.machine}" if case.spec else ""
    if larger := _suggest_larger_machine(case.vertex):
        return f"{problem}{where}: use a machine with more", format_train_command(*larger)
    return f"{problem}{where}: use another kind of machine, fewer rows, or fewer workers", format_train_command(
        "data.fraction=0.5"
    )


def _suggest_larger_machine(vertex: Vertex) -> list[str]:
    """Return overrides for the next machine with more memory that takes the same accelerators."""
    if accelerators := machines.WITH_THEIR_OWN.get(vertex.machine):
        alike = [name for name, other in machines.WITH_THEIR_OWN.items() if other == accelerators]
        later = alike[alike.index(vertex.machine) + 1 :]
        if later or accelerators[0] != "NVIDIA_TESLA_A100":
            return [f"vertex.machine={later[0]}"] if later else []
        return _find_gpu_overrides("NVIDIA_A100_80GB", accelerators[1])
    series, _, kind = vertex.machine.rpartition("-")[0].partition("-")
    enough = machines.count_processors(vertex.machine) + (kind == "highmem")
    known = [name for name in (*machines.WITH_CHOICE, *machines.WITHOUT) if name.startswith(f"{series}-highmem-")]
    fitting = [
        name
        for name in sorted(known, key=machines.count_processors)
        if machines.count_processors(name) >= enough and not any(machines.find_misfit(name, *_get_accelerators(vertex)))
    ]
    return [f"vertex.machine={fitting[0]}"] if fitting else []


def _get_accelerators(vertex: Vertex) -> tuple[str, int]:
    return (vertex.accelerator, vertex.accelerators) if vertex.accelerators else ("", 0)


OTHER_REGION = {
    "us-central1": "us-east1", "us-east1": "us-central1", "us-west1": "us-central1", "us-east4": "us-east1",
    "europe-west4": "europe-west1", "europe-west1": "europe-west4", "europe-west2": "europe-west4",
    "europe-west3": "europe-west4", "asia-east1": "asia-southeast1", "asia-southeast1": "asia-east1",
    "asia-northeast1": "asia-east1",
}  # fmt: skip
"""A nearby region with many kinds of accelerators, by region."""


def _suggest_region(vertex: Vertex) -> str:
    return OTHER_REGION.get(vertex.region, "us-central1")


def _advise_quota(case: Case) -> tuple[str, str]:
    metric, vertex = case.find(r"googleapis\.com/(\w+)", r"Quota '(\S+)'"), case.vertex
    problem = (
        f"the project's quota{f' {metric}' if metric else ''} in {case.region} is too small "
        f"for {case.requested_machines}: "
        f"ask for more at https://console.cloud.google.com/iam-admin/quotas"
    )
    if vertex.spot and "preemptible" in metric:
        return f"{problem}, or use machines that are not spot", format_train_command("vertex.spot=false")
    wants_gpu = vertex.accelerators and (not metric or metric.endswith("gpus"))
    other = "NVIDIA_TESLA_T4" if vertex.accelerator == "NVIDIA_L4" else "NVIDIA_L4"
    if wants_gpu and (overrides := _swap_accelerator(other, vertex)):
        return f"{problem}, or use another accelerator, or another region with a bucket there", format_train_command(
            *overrides
        )
    return f"{problem}, or use another region, with a bucket there", format_train_command(
        f"vertex.region={_suggest_region(vertex)}"
    )


def _swap_accelerator(accelerator: str, vertex: Vertex) -> list[str]:
    if accelerator == "NVIDIA_TESLA_T4":
        return ["vertex.machine=n1-standard-8", f"vertex.accelerator={accelerator}"] if vertex.accelerators <= 4 else []
    return _find_gpu_overrides(accelerator, vertex.accelerators)


def _advise_capacity(case: Case) -> tuple[str, str]:
    vertex = case.vertex
    problem = (
        f"Google has no machine free for {case.requested_machines} in {case.region} now, "
        "which has nothing to do with quota"
    )
    if vertex.spot:
        return f"{problem}: machines that are not spot are given first", format_train_command("vertex.spot=false")
    if vertex.machine.startswith(("a2-", "a3-")) and not vertex.flex_start:  # as documented, for these
        return f"{problem}: let the job wait for one", format_train_command("vertex.flex_start=true")
    helps = "try another region, with a bucket there, or list other places and machines in vertex.fallbacks"
    return f"{problem}: {helps}", format_train_command(f"vertex.region={_suggest_region(vertex)}")


def _advise_image_pull(case: Case) -> tuple[str, str]:
    image = (
        case.find(r"([\w.-]+(?:docker\.pkg\.dev|gcr\.io)/[\w./:@-]*\w)", r"[Ii]mage \"?([\w./:@-]*\w)")
        or case.vertex.image
    )
    denied = recognise_cause(case.text, "exception") == "permission" or "denied" in case.text
    why = "Vertex AI may not read it" if denied else "it is not there, or Vertex AI may not read it"
    role = "its service agent needs roles/artifactregistry.reader on the repository"
    problem = f"the image {image or 'of the job'} cannot be pulled: {why}; {role}"
    return problem, f"gcloud artifacts docker images describe {shlex.quote(image)}" if image else ""


def _advise_pip_conflict(case: Case) -> tuple[str, str]:
    listed = case.find(r"Cannot install (.+?) because")
    wanted = case.find(
        r"(?:distribution found for|satisfies the requirement) (\S+)", r"ackage '?([\w.-]+)'? requires a"
    )
    built = case.find(r"(?:build (?:installable )?wheels (?:for )?|building wheel for )([\w.-]+)")
    names = [name for name in re.split(r",? and |, ", listed) if name] or [name for name in (wanted or built,) if name]
    quoted = " ".join(shlex.quote(re.sub(r"\[.*\]| \(.*", "", name)) for name in names)
    if listed:
        problem = f"pip cannot install {listed} together: loosen one of these versions"
    elif wanted:
        problem = f"pip finds no version of {wanted} for that Python: mend its name or version"
    else:
        problem = f"pip could not build {built or 'a package'}: name a version that comes as a wheel for that Python"
    return problem, f"pip install --dry-run {quoted}" if quoted else REHEARSE


ROLES = {
    "storage.": "roles/storage.objectUser", "storage.buckets.": "roles/storage.legacyBucketReader",
    "aiplatform.": "roles/aiplatform.user", "artifactregistry.": "roles/artifactregistry.reader",
    "logging.": "roles/logging.logWriter", "secretmanager.": "roles/secretmanager.secretAccessor",
    "bigquery.": "roles/bigquery.dataViewer", "bigquery.jobs.": "roles/bigquery.jobUser",
    "iam.serviceAccounts.": "roles/iam.serviceAccountUser", "serviceusage.": "roles/serviceusage.serviceUsageConsumer",
}  # fmt: skip
"""The role that grants a permission, by prefix; the longest prefix counts."""


def _find_role(permission: str) -> str:
    fitting = [prefix for prefix in ROLES if permission.startswith(prefix)]
    return ROLES[max(fitting, key=len)] if fitting else ""


def _advise_permission(case: Case) -> tuple[str, str]:
    path = case.find(r"(?:\[Errno 13\]|PermissionError).*?: '([^']+)'")
    if path and "403" not in case.text:
        return f"{case.subject} may not write or read {path}: name a place where it may, or one in the bucket", ""
    if "ACCESS_TOKEN_SCOPE_INSUFFICIENT" in case.text:
        problem = (
            "the service account that Vertex AI runs jobs as by itself may not do that: name one of the project's own"
        )
        return problem, format_train_command("vertex.service_account=NAME@PROJECT.iam.gserviceaccount.com")
    permission = case.find(
        r"Permission ['\"]?((?:[a-z]\w*\.)+\w+)",
        r"does not have [\[`]*((?:[a-z]\w*\.)+\w+)",
        r"\b((?:storage|aiplatform)\.\w+\.\w+)\b",
    )
    account = case.find(r"([\w.+-]+@[\w.-]+\w)") or case.vertex.service_account
    role = _find_role(permission)
    problem = f"{account or 'the account of the job'} lacks {permission or 'a permission'}" + (
        f": grant it {role}" if role else f": {case.find(r'(403.{0,200})') or 'grant it'}"
    )
    if not role:
        return problem, ""
    kind = "serviceAccount" if "gserviceaccount.com" in account or not account else "user"
    member = f"--member={shlex.quote(f'{kind}:' + (account or 'ACCOUNT'))} --role={role}"
    bucket = (
        case.find(r"gs://([a-z0-9._-]+)", r"/b/([a-z0-9._-]+)", r"buckets?[/ ]\"?([a-z0-9._-]+)")
        or case.vertex.bucket.removeprefix("gs://").partition("/")[0]
    )
    if permission.startswith("storage.") and bucket:
        return problem, f"gcloud storage buckets add-iam-policy-binding {shlex.quote(f'gs://{bucket}')} {member}"
    return problem, f"gcloud projects add-iam-policy-binding {shlex.quote(case.vertex.project or 'PROJECT')} {member}"


def _advise_missing_object(case: Case) -> tuple[str, str]:
    address = case.find(r"(gs://[^\s'\",]+)").rstrip(".:;")
    bucket = case.find(r"/b/([a-z0-9._-]+)", r"No such object: ([a-z0-9._-]+)/", r"there is no bucket ([a-z0-9._-]+)")
    what = address or (f"gs://{bucket}" if bucket else "a bucket or an object of it")
    command = f"gcloud storage ls {shlex.quote(what)}" if what.startswith("gs://") else format_check_command()
    return f"{case.subject} did not find {what}: is its name right, and was it deleted meanwhile?", command


def _advise_nan_loss(case: Case) -> tuple[str, str]:
    step = case.find(r"at step (\d+)")
    problem = f"the loss was no number any more{f' at step {step}' if step else ''}"
    training = case.spec.training if case.spec else None
    if training and training.precision == "float16" and training.learning_rate == "auto":
        return f"{problem}: float16 is too coarse for this", format_train_command("training.precision=float32")
    rate = training.learning_rate if training else "auto"
    gentle = 1e-5 if case.spec is None or getattr(case.spec.model, "family", "") in ("encoder", "fewshot") else 1e-4
    lower = rate / 10 if isinstance(rate, float) else gentle
    now = f" from {rate:g}" if isinstance(rate, float) else ""
    return f"{problem}: lower training.learning_rate{now}", format_train_command(f"training.learning_rate={lower:g}")


def _advise_preemption(case: Case) -> tuple[str, str]:
    problem = f"Google took the spot machines of {case.subject} away, and it is not started again"
    return f"{problem}: what it learned is in its last checkpoint; use machines that stay", format_train_command(
        "vertex.spot=false"
    )


def _advise_timeout(case: Case) -> tuple[str, str]:
    hours = case.vertex.max_hours
    if case.spec is None:
        return "the job took longer than it may: raise vertex.max_hours", format_train_command(
            f"vertex.max_hours={2 * hours:g}"
        )
    return f"the job was stopped after vertex.max_hours = {hours:g}", format_train_command(
        f"vertex.max_hours={2 * hours:g}"
    )


def _advise_disk_full(case: Case) -> tuple[str, str]:
    path = case.find(r"(?:Errno 28|left on device).*?'([^']+)'", r"cannot write ([^:\n]+):")
    if path.startswith("/dev/shm"):  # noqa: S108
        return f"{case.subject} ran out of shared memory: use fewer workers on a machine", ""
    where = f" while it wrote {path}" if path else ""
    return f"the disk of {case.subject} is full{where}: ask for a larger one", format_train_command(
        f"vertex.disk_gb={min(2 * case.vertex.disk_gb, 64_000)}"
    )


def _advise_wrong_cuda(case: Case) -> tuple[str, str]:
    vertex = case.vertex
    if "Found no NVIDIA driver" in case.text:
        problem = "has no GPU, though its program wants one" if not vertex.accelerators else "does not see its GPU"
        return f"{case.subject} {problem}", format_train_command(f"vertex.accelerators={max(1, vertex.accelerators)}")
    if "not compiled with CUDA" in case.text:
        problem = f"the torch in the image of {case.subject} is one for CPUs"
    elif re.search(r"no kernel image|not compatible with the current PyTorch|invalid device function", case.text):
        problem = f"the torch in the image of {case.subject} was not built for {vertex.accelerator}"
        if not vertex.image and (overrides := _suggest_larger_gpu(vertex)):
            return f"{problem}: use a newer accelerator", format_train_command(*overrides)
    elif library := case.find(r"(lib\w[\w-]*\.so[\d.]*): "):
        problem = f"the image of {case.subject} lacks {library} of CUDA"
    else:
        problem = f"the CUDA in the image of {case.subject} is newer than the driver of the machine"
    if vertex.image:
        return f"{problem}: use an image with another torch, or the one that Tagline builds", format_train_command(
            "vertex.image="
        )
    return f"{problem}: name an image with a torch that fits as vertex.image", ""


def _advise_no_gpu(case: Case) -> tuple[str, str]:
    wanted = case.vertex.accelerator if case.spec else "the GPU that it asked for"
    if case.vertex.image:
        problem = f"{case.subject} does not see {wanted}: the torch in {case.vertex.image} may be one for CPUs"
        return f"{problem}; let Tagline build an image, or train without a GPU", format_train_command("vertex.image=")
    return f"{case.subject} does not see {wanted}: try again, or train without a GPU", format_train_command(
        "vertex.accelerators=0"
    )


def _advise_import_error(case: Case) -> tuple[str, str]:
    name = case.find(
        r"No module named '?([\w.]+)", r"cannot import name '(\w+)'", r"ImportError: (\S+): cannot open shared"
    )
    origin = case.find(r"cannot import name '\w+' from '([\w.]+)'", r"cannot import name '\w+' from [\w ]*'([\w.]+)'")
    if not name:
        return f"{case.subject} cannot import what it needs: {case.find(r'ImportError: (.+)')}", REHEARSE
    what = f"{name} from {origin}, whose version is another one" if origin else name
    package = name.partition(".")[0]
    if package == "tagline":
        return (
            f"the image of {case.subject} has no Tagline in it: install it there, or let Tagline build one",
            format_train_command("vertex.image="),
        )
    if case.vertex.image:
        return f"{case.subject} cannot import {what}: add it to the image {case.vertex.image}", REHEARSE
    return f"{case.subject} cannot import {what}: name it among the project's dependencies", REHEARSE


def _advise_missing_column(case: Case) -> tuple[str, str]:
    key = case.find(r"\b(data\.\w+): ")
    column = case.find(
        r'has no columns? "([^"]+)"',
        r"KeyError: '([^']+)'",
        r"Column '?([^']+?)'? (?:in include|not in the dataset)",
        r"FieldRef\.Name\(([^)]+)\)",
        r"not found: \['([^']+)'",
        r"\[(?:Index\(\[)?'([^']+)'",
        r'Field "([^"]+)"',
    )
    listed = case.find(r"it has: (.+)", r"Current columns in the dataset: \[(.+?)\]")
    names = [name.strip(" '\"") for name in listed.split(",")] if listed else []
    problem = f'the data has no column "{column}"' if column else "the data lacks a column"
    close = get_close_matches(column, names, n=1, cutoff=0.5)
    if close and key in ("data.text", "data.labels"):
        return f'{problem}; did you mean "{close[0]}"?', format_check_command(f"{key}={close[0]}")
    return f"{problem}{f'; it has: {listed}' if listed else ''}", format_check_command()


def _advise_crash(case: Case) -> tuple[str, str]:
    status = case.find(r"status of (\d+)")
    how = "was aborted" if status in ("6", "134") else "crashed in compiled code, as a segmentation fault does"
    return f"{case.subject} {how}, without saying why: do the versions in its image fit together?", REHEARSE


def _advise_start_error(case: Case) -> tuple[str, str]:
    program = case.find(r'exec: "([^"]+)"', r"([\w./-]+): (?:command not found|not found|No such file)")
    what = program or "its program"
    return f"{case.subject} could not start {what}: is it in the image, and may it be run there?", REHEARSE


def _advise_network(case: Case) -> tuple[str, str]:
    host = case.find(r"host='([^']+)'", r"Failed to resolve '([^']+)'", r"https?://([\w.-]+)")
    return (
        f"{case.subject} does not reach {host or 'the network'}: put what it fetches into the bucket, or try again",
        format_train_command(),
    )


def _advise_internal_error(_case: Case) -> tuple[str, str]:
    return (
        "Vertex AI had an error of its own, three times: nothing of yours is to blame; try again",
        format_train_command(),
    )


def _advise_cancellation(_case: Case) -> tuple[str, str]:
    return "the job was cancelled", ""


def _advise_lost_worker(case: Case) -> tuple[str, str]:
    problem = f"{case.subject} lost another worker, which did not say why: it was probably killed or taken away"
    larger = _suggest_larger_machine(case.vertex)
    return f"{problem}; machines with more memory may help", format_train_command(*larger)


ADVICE: dict[str, Callable[[Case], tuple[str, str]]] = {
    "gpu-memory": _advise_gpu_memory,
    "host-memory": _advise_host_memory,
    "quota": _advise_quota,
    "capacity": _advise_capacity,
    "image-pull": _advise_image_pull,
    "pip-conflict": _advise_pip_conflict,
    "permission": _advise_permission,
    "not-found": _advise_missing_object,
    "nan": _advise_nan_loss,
    "preempted": _advise_preemption,
    "timeout": _advise_timeout,
    "disk-full": _advise_disk_full,
    "wrong-cuda": _advise_wrong_cuda,
    "no-gpu": _advise_no_gpu,
    "import-error": _advise_import_error,
    "missing-column": _advise_missing_column,
    "crash": _advise_crash,
    "start": _advise_start_error,
    "network": _advise_network,
    "internal": _advise_internal_error,
    "cancelled": _advise_cancellation,
    "lost-worker": _advise_lost_worker,
}

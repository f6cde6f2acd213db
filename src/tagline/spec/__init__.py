"""The spec: every setting that can change the result of a run, in one strict TOML file.

Files, in the order of their imports:

- secret_detection.py: Whether an environment variable looks like a secret, by its name or by its value.
- toml_values.py: Formatting of values as TOML.
- sections.py: The sections of a spec as strict models: every key with its type, limits and meaning.
- problems.py: Validation of specs: every problem at once, each with its key and a suggestion.
- files.py: Spec files: read with overrides, and written with comments.
"""

from tagline.spec.files import (
    apply_overrides,
    defaults,
    iter_keys,
    json_schema,
    load,
    load_recorded,
    loads,
    read,
    to_toml,
)
from tagline.spec.problems import check_options, check_section, parse, try_parse
from tagline.spec.sections import (
    SECTIONS,
    Data,
    Decisions,
    Fallback,
    Gates,
    Goal,
    ModelOptions,
    Monitor,
    Range,
    Section,
    Spec,
    Thresholds,
    Training,
    Tuning,
    Vertex,
    changed_settings,
    options_of,
)

__all__ = [
    "SECTIONS",
    "Data",
    "Decisions",
    "Fallback",
    "Gates",
    "Goal",
    "ModelOptions",
    "Monitor",
    "Range",
    "Section",
    "Spec",
    "Thresholds",
    "Training",
    "Tuning",
    "Vertex",
    "apply_overrides",
    "changed_settings",
    "check_options",
    "check_section",
    "defaults",
    "iter_keys",
    "json_schema",
    "load",
    "load_recorded",
    "loads",
    "options_of",
    "parse",
    "read",
    "to_toml",
    "try_parse",
]

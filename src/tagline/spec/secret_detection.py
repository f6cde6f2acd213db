"""Whether an environment variable looks like a secret, by its name or by its value."""

import re
import shlex

SECRET_WORDS = frozenset((
    "PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "PASSCODE", "SECRET", "SECRETS", "BEARER", "JWT", "APIKEY",
    "CREDENTIAL", "CREDENTIALS", "CREDS",
))  # fmt: skip
"""Words that mark a name as a secret's wherever they occur in it."""
SECRET_LAST_WORDS = frozenset(("KEY", "KEYS", "TOKEN", "PASS", "PWD", "AUTH", "AUTHORIZATION", "COOKIE", "PAT"))
"""Words that mark a name as a secret's only at its end: KEY_COLUMN and TOKEN_LIMIT are no secrets."""
SECRET_ENDINGS = re.compile(r".+(PASSWORD|PASSWD|PASSPHRASE|APIKEY|ACCESSKEY|PRIVATEKEY|SECRETKEY|SECRET|TOKEN|PASS)")
"""Secret words at the end of a compound written as one word, such as PGPASSWORD and SSHPASS."""
ABOUT_WORDS = frozenset((
    "FILE", "PATH", "DIR", "COLUMN", "COLUMNS", "FIELD", "LENGTH", "LIMIT", "COUNT", "TTL", "TYPE", "NAME", "URL",
    "POLICY", "ENABLED", "REQUIRED", "PREFIX", "HEADER", "MODE", "METHOD", "BACKEND", "TIMEOUT",
))  # fmt: skip
"""Last words of names that describe a secret without containing it: PASSWORD_FILE, AUTH_TYPE."""
STAGE_WORDS = frozenset(("PROD", "PRODUCTION", "DEV", "STAGING", "STAGE", "TEST", "LIVE", "OLD", "NEW"))
"""Last words that are ignored: DB_KEY_PROD is a key."""
HARMLESS_NAMES = frozenset(("PWD", "OLDPWD", "BYPASS", "COMPASS"))
HARMLESS_PAIRS = frozenset(
    [f"{word}_KEY" for word in ("PRIMARY", "FOREIGN", "SORT", "PARTITION", "GROUP", "JOIN", "PUBLIC", "LABEL", "TEXT")]
    + [f"{word}_TOKEN" for word in ("PAD", "EOS", "BOS", "UNK", "SEP", "CLS", "MASK")]
    + [f"{word}_PASS" for word in ("SINGLE", "TWO", "FIRST", "SECOND", "LOW", "HIGH", "FORWARD", "BACKWARD")]
)
"""Endings that only look like a secret's: keys of tables, special tokens of tokenizers, passes over data."""
HARMLESS_VALUES = frozenset(("", "0", "1", "true", "false", "yes", "no", "on", "off", "none", "auto"))

_NAMED = (
    r"(?:password|passwd|pwd|passphrase|secret|client_secret|(?:access_|auth_|id_)?token|api[_-]?key|sig|signature)"
)
SECRET_VALUES = (
    re.compile(r"[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@", re.IGNORECASE),  # a URL with a password
    re.compile(rf"[?&;](?:{_NAMED}|key|x-(?:goog|amz)-signature)=[^&;\s]+", re.IGNORECASE),
    re.compile(rf"(?:^|[\s;,{{\"'])(?:{_NAMED}|private_key)[\"']?\s*[=:]\s*[\"']?[^\s;,\"'}}]+", re.IGNORECASE),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    re.compile(r"\bauthorization[\"']?\s*[:=]\s*\S+|^\s*bearer\s+\S{6,}\s*$", re.IGNORECASE),
    re.compile(r"^\s*basic\s+[A-Za-z0-9+/]{6,}={1,2}\s*$", re.IGNORECASE),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,})"),
    re.compile(
        r"\b(?:sk-[\w-]{20,}|[sr]k_(?:live|test)_\w{10,}|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}|ya29\.[\w-]{10,})"
    ),
    re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\."),  # a JSON web token
)
"""Patterns of values that are secrets under any name."""


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable looks like a secret."""
    return has_secret_value(value) or (has_secret_name(name) and value.strip().lower() not in HARMLESS_VALUES)


def has_secret_name(name: str) -> bool:
    """Return whether a variable's name says that its value is a secret."""
    if name.upper() in HARMLESS_NAMES:
        return False
    words = [word.upper() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    while words and (words[-1].isdigit() or words[-1] in STAGE_WORDS):
        words.pop()
    if not words or words[-1] in ABOUT_WORDS or "_".join(words[-2:]) in HARMLESS_PAIRS:
        return False
    return (
        words[-1] in SECRET_LAST_WORDS
        or any(word in SECRET_WORDS for word in words)
        or any(SECRET_ENDINGS.fullmatch(word) and word not in HARMLESS_NAMES for word in words)
    )


def has_secret_value(value: str) -> bool:
    """Return whether a value has the form of a secret, or contains one, such as a password in a URL."""
    return any(form.search(value) for form in SECRET_VALUES)


def mask_environment(command: str) -> str:
    """Return a command with the values of the job's environment variables masked, for pages that others read."""
    if "vertex.environment" not in command:
        return command
    try:
        words = shlex.split(command)
    except ValueError:
        return re.sub(r"(vertex\.environment[^=]*=).*", r"\1...", command)
    masked = [
        f"{word.partition('=')[0]}=..." if word.startswith("vertex.environment") and "=" in word else word
        for word in words
    ]
    return shlex.join(masked)

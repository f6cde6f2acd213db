"""Notifications that a training or job has ended: to a command, a webhook, or e-mail by the user's own server."""

import json
import re
import shlex
import shutil
import smtplib
import ssl
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from email.message import EmailMessage
from http.client import HTTPException
from typing import Literal
from urllib.parse import unquote, urlsplit

from tagline.errors import SpecError, first_line

Channel = Literal["command", "webhook", "e-mail"]
SMTP, SENDER = "TAGLINE_SMTP", "TAGLINE_SMTP_FROM"
"""The user's mail server, as smtp://[USER:PASSWORD@]HOST[:PORT] or smtps://..., and the sender's address."""
PATIENCE_S = 20.0
COMMAND_PATIENCE_S = 60.0
EMAIL = re.compile(r"[^@\s/<>,;:]+@[^@\s/<>,;:]+")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Notice:
    """A notification that a training or job has ended."""

    state: Literal["succeeded", "failed", "cancelled"]
    text: str
    """One sentence, which is also the subject of a mail."""
    run: str = ""
    reason: str = ""
    seconds: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the body for webhooks; Slack, Google Chat and others show its `text`."""
        return json.dumps(asdict(self), ensure_ascii=False)


def detect_channel(target: str) -> Channel:
    """Return the channel of a target, by its form."""
    if target.startswith(("http://", "https://")):
        return "webhook"
    return "e-mail" if EMAIL.fullmatch(target) else "command"


def check_targets(targets: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise SpecError for a target that could not be notified, before a long training starts."""
    for target in targets:
        channel = detect_channel(target)
        if channel == "webhook" and not urlsplit(target).hostname:
            raise SpecError("--notify: that URL names no host", hint="--notify https://HOST/PATH")
        if channel == "e-mail":
            _find_mail_server(environment, target)
        if channel == "command":
            try:
                command = shlex.split(target)
            except ValueError as error:
                raise SpecError(f"--notify: cannot understand the command: {error}", hint="mind its quotes") from error
            if not command or not shutil.which(command[0]):
                hint = "a command, an https:// address, or an e-mail address"
                raise SpecError(f'--notify: there is no program "{command[0] if command else ""}"', hint=hint)


def send_notice(target: str, notice: Notice, environment: Mapping[str, str]) -> str:
    """Notify a target; return the problem, or "". Errors of the network or the program are never raised."""
    channel = detect_channel(target)
    try:
        match channel:
            case "webhook":
                _post_webhook(target, notice)
            case "e-mail":
                _send_mail(target, notice, environment)
            case "command":
                _run_command(target, notice, environment)
    except SpecError as error:
        return f"the {channel} of --notify was not told: {error.message}"
    except (OSError, ValueError, HTTPException, smtplib.SMTPException, subprocess.SubprocessError) as error:
        # A webhook's address may hold a secret, and is not repeated.
        reason = first_line(error).replace(target, "it")
        return f"the {channel} of --notify was not told: {type(error).__name__}: {reason}"
    return ""


def remove_targets(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments without --notify: a webhook's address is a secret, and a run keeps its command."""
    remaining, is_target = [], False
    for word in arguments:
        if is_target:
            is_target = False
        elif word == "--notify":
            is_target = True
        elif not word.startswith("--notify="):
            remaining.append(word)
    return remaining


def _post_webhook(address: str, notice: Notice) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    request = urllib.request.Request(address, notice.to_json().encode(), headers, method="POST")  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE_S):  # noqa: S310 - http or https, by detect_channel
        pass


def _run_command(command: str, notice: Notice, environment: Mapping[str, str]) -> None:
    variables = {"TAGLINE_STATE": notice.state, "TAGLINE_RUN": notice.run, "TAGLINE_MESSAGE": notice.text}
    result = subprocess.run(
        shlex.split(command),
        input=notice.to_json().encode(),
        env={**environment, **variables},
        capture_output=True,
        timeout=COMMAND_PATIENCE_S,
        check=False,
    )
    if result.returncode:
        raise OSError(f"it ended with exit code {result.returncode}")


@dataclass(frozen=True)
class _MailServer:
    host: str
    port: int
    is_secure: bool
    user: str
    password: str


def _find_mail_server(environment: Mapping[str, str], target: str) -> _MailServer:
    """Return the mail server that the environment names."""
    hint = f"export {SMTP}=smtps://USER:PASSWORD@HOST, or smtp://localhost"
    address = environment.get(SMTP, "")
    if not address:
        raise SpecError(f"--notify {target}: {SMTP} names no mail server", hint=hint)
    try:
        parts = urlsplit(address)
        port = parts.port or (465 if parts.scheme == "smtps" else 25)
    except ValueError as error:
        raise SpecError(f"{SMTP} is no address of a mail server", hint=hint) from error
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise SpecError(f"{SMTP} is no address of a mail server", hint=hint)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return _MailServer(parts.hostname, port, parts.scheme == "smtps", user, password)


def _send_mail(target: str, notice: Notice, environment: Mapping[str, str]) -> None:
    server = _find_mail_server(environment, target)
    message = EmailMessage()
    sender = environment.get(SENDER) or (server.user if EMAIL.fullmatch(server.user) else target)
    message["From"], message["To"], message["Subject"] = sender, target, " ".join(notice.text.split())[:200]
    figures = "".join(f"{name} {value:.3f}\n" for name, value in notice.figures.items())
    message.set_content("\n".join(filter(None, [notice.text, notice.reason, notice.run, figures])))
    context = ssl.create_default_context()
    if server.is_secure:
        client: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, timeout=PATIENCE_S, context=context)
    else:
        client = smtplib.SMTP(server.host, server.port, timeout=PATIENCE_S)
    with client:
        client.ehlo()
        if not server.is_secure and server.host not in LOOPBACK and client.has_extn("starttls"):
            client.starttls(context=context)
            client.ehlo()
        elif server.user and not server.is_secure and server.host not in LOOPBACK:
            raise OSError("the server offers no TLS, and a password is not sent without")
        if server.user:
            client.login(server.user, server.password)
        client.send_message(message)

"""`tagline rehearsal`: the commands of the emulator, where it is installed."""

import os

import typer

from tagline.jobs import emulator

TOKEN, EMULATOR_TOKEN = "TAGLINE_REHEARSAL_TOKEN", "VERTEX_REHEARSAL_TOKEN"
HELP = "A local emulator of Vertex AI, Cloud Storage and Cloud Logging, for any client."
DEFAULTS = {
    "start": {"process_image": emulator.PROCESS_IMAGES, "process_image_args": emulator.PROCESS_IMAGE_ARGS},
}
"""Defaults of the emulator's options, by command, as click's `default_map`."""


def mount(app: typer.Typer) -> None:
    """Add the emulator's commands to an app; if it is not installed, a command that says how to install it."""
    if not emulator.is_installed():
        any_arguments = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command("rehearsal", help=HELP, context_settings=any_arguments)(emulator.check_installed)
        return
    from vertex_rehearsal.cli import app as commands

    group = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None, callback=_pass_token)
    group.registered_commands += commands.registered_commands
    app.add_typer(group, name="rehearsal")


def _pass_token() -> None:
    if token := os.environ.get(TOKEN):
        os.environ.setdefault(EMULATOR_TOKEN, token)

"""Weights & Biases: a run in the project of WANDB_PROJECT, or with WANDB_MODE=offline in the run's directory."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

# No error reports to the package's authors unless the user enables them; wandb reads this when it is imported.
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

import wandb

from tagline.runs.run import Run
from tagline.runs.trackers import Point, last_step, list_parameters, record_id, report_figures

EXIT_CODES = {"succeeded": 0, "failed": 1, "cancelled": 130}


class WeightsAndBiases:
    """Records with `wandb`, which reads its own environment variables."""

    def begin(self, run: Run, *, resumed_at: int) -> None:  # noqa: ARG002 - wandb itself drops steps that it has
        """Start a run in Weights & Biases, silently: without output or a prompt for a key."""
        wandb.setup(settings=wandb.Settings(silent=True))
        settings = wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,
            disable_code=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
            init_timeout=30,
            finish_timeout=50,
        )
        self._record = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "tagline",
            id=record_id(run),
            name=os.environ.get("WANDB_NAME") or run.name,
            dir=str(run.directory),
            resume="allow",
            config=list_parameters(run.spec()),
            allow_val_change=True,
            settings=settings,
        )

    def record(self, points: Sequence[Point]) -> None:
        """Log figures at the run's own steps."""
        for point in points:
            self._record.log(dict(point.figures), step=point.step)

    def end(self, run: Run) -> None:
        """Record the report's figures and the bundle's address in the summary, and the report as a file."""
        state = run.state().name
        if state == "succeeded":
            self._record.log(report_figures(run), step=last_step(run))
            self._record.summary["bundle"] = run.bundle_address
            copy = Path(self._record.dir) / "report.json"
            shutil.copyfile(run.directory / "report.json", copy)
            self._record.save(str(copy), base_path=self._record.dir, policy="now")
        self._record.summary["state"] = state
        self._record.finish(exit_code=EXIT_CODES.get(state, 1))

"""Runs side by side, and whether the difference is real."""

from pathlib import Path

from tagline.reports import compare as comparing
from tagline.reports.compare import Comparison
from tagline.reports.html import save_comparison


def compare(*names: str | Path, html: str | Path | None = None, runs: str | Path = "runs") -> Comparison:
    """Compare runs on the same test rows: a table, the best first, and whether the best is really better.

    It is written as a page to `html` too.
    """
    found = comparing.compare(*names, runs=runs)
    if html:
        save_comparison(found, str(html))
    return found

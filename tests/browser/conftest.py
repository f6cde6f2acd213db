"""A real browser for the pages."""

from chromium import browser

__all__ = ["browser"]

"""Public names of a package, each imported on first use."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def import_on_use(package: str, name: str, public: Mapping[str, str]) -> Any:
    """Import a public name of a package, for the package's `__getattr__`; `public` maps names to locations.

    A location is "MODULE:NAME" for a name in a module, or "MODULE" for the module itself.

    """
    if name not in public:
        raise AttributeError(f"module '{package}' has no attribute '{name}'")
    module, _, attribute = public[name].partition(":")
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        from tagline.system import extras

        raise extras.explain_import_error(error) or error from error
    value = getattr(imported, attribute) if attribute else imported
    setattr(sys.modules[package], name, value)
    return value

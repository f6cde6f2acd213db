"""Public names of a package, each imported when it is first used."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def import_on_use(package: str, name: str, public: Mapping[str, str]) -> Any:
    """The value of a public name of a package, for the package's `__getattr__`; `public` says where each is.

    "MODULE:NAME" is what has that name in a module, "MODULE" the module itself.
    """
    if name not in public:
        raise AttributeError(f"module '{package}' has no attribute '{name}'")
    module, _, attribute = public[name].partition(":")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        from tagline.system import extras

        raise extras.explain_import_error(error) or error from error
    value = getattr(found, attribute) if attribute else found
    setattr(sys.modules[package], name, value)
    return value

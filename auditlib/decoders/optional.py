"""Packages that only some adapters need."""

from __future__ import annotations

import importlib
from typing import Any

from auditlib.errors import DecoderError


def optional(module: str, adapter: str) -> Any:
    """The module, imported; DecoderError with the command that installs it where it is missing or does not load."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise DecoderError(
            f"the adapter {adapter} needs the package {module.partition('.')[0]}, which cannot be imported "
            f"({str(problem).splitlines()[0]}); run: pip install -r requirements-adapters.txt"
        ) from problem

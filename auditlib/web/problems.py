"""What is wrong, as a reviewer reads it: names of runs and files, without where on the server they lie.

Whoever runs the server finds the whole message, with its paths, in the server's log.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path

from auditlib.errors import PrefixgateError
from auditlib.views.text import in_markdown
from auditlib.web import state

_LOG = logging.getLogger("prefixgate.web")
_LONGEST = 2000


def in_words(problem: PrefixgateError | str) -> str:
    """The problem as Markdown, its folders left out."""
    text = str(problem)
    _note(text)
    return in_markdown(without_folders(text, _folders()), _LONGEST)


def without_folders(text: str, folders: tuple[Path, ...]) -> str:
    """The text with what lies in one of the folders named by its place below it."""
    # A folder that lies in another comes before it: else its own name would stay behind.
    for folder in sorted(folders, key=lambda one: len(str(one)), reverse=True):
        text = text.replace(f"{folder}/", "")
    return text


@lru_cache(maxsize=1_000)
def _note(text: str) -> None:
    """Put a message down in the log, once: a page says it again with every click."""
    _LOG.warning("%s", text)


def _folders() -> tuple[Path, ...]:
    """Where everything lies that a page may speak of."""
    chosen, places = state.settings(), state.places()
    of_store = () if places is None else (places.store.parent, places.runs)
    return (chosen.home, chosen.artifacts, chosen.keys, chosen.verdicts, chosen.trust.parent, *of_store)

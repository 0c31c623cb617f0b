"""Text that came from outside (logs, revisions, files), made fit to be shown.

Everything that shows such text, on a page, in a figure or in a report, passes it through one function of this module.
"""

from __future__ import annotations

import html
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import chain, count

_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
"""Unicode categories that act on their neighbours or look like nothing: controls, bidi overrides, odd spaces."""

# Streamlit's frontend looks for links, addresses and icon names in text that is already unescaped, so a backslash does
# not stop it; a word joiner (zero width) between the parts does.
_LIVE = re.compile(r"(:(?=[\w/+-])|(?<=www)(?=\.)|@)")
_JOINER = "\N{WORD JOINER}"

_LABEL_LINE = 34
"""Characters on a line of an axis' label: longer ones take the whole width of a phone, and leave the figure none."""

_FORMULA_STARTS = r"=+\-@\t\r\n＝＋－＠"
# A cell also begins after a separator, because a spreadsheet may split on another one than the file uses.
_FORMULA = re.compile(rf"(?:^|(?<=[;,\t|\r\n]))(?=[\s\"']*[{_FORMULA_STARTS}])")


def safe(text: object, limit: int = 200) -> str:
    """`text` on one line, at most `limit` characters, characters that hide or reorder others shown as escapes."""
    whole = str(text)
    # Printable ASCII hides nothing, and is nearly all there is: tables have thousands of such cells.
    plain = whole.isascii() and whole.isprintable()
    shown = whole[:limit] if plain else "".join(_visible(character) for character in whole[:limit])
    return shown if len(whole) <= limit else f"{shown}…"


def in_html(text: object, limit: int = 200) -> str:
    """`safe` text that an HTML document shows and never reads as markup."""
    return html.escape(safe(text, limit))


def in_figure(text: object, limit: int = 60) -> str:
    """`safe` text for plotly, which reads `<b>`, `<a href>` and entities in labels but leaves quotes alone."""
    return html.escape(safe(text, limit), quote=False)


def in_hover(text: object, limit: int = 480, line: int = 60) -> str:
    """`in_figure` text for what stands under the pointer: whole where a label is cut off, in lines of `line`."""
    return "<br>".join(html.escape(part, quote=False) for part in textwrap.wrap(safe(text, limit), line))


def figure_labels(
    names: Sequence[str], taken: Sequence[str] = (), limit: int = 60, line: int = _LABEL_LINE
) -> list[str]:
    """`in_hover` texts for one axis: other names get other labels, none of `taken`, though they be cut off alike."""
    given: dict[str, str] = {}
    for name in names:
        used, label = {*taken, *given.values()}, in_hover(name, limit, line)
        tries = chain([label], (f"{label} ({number})" for number in count(2)))
        given.setdefault(name, next(label for label in tries if label not in used))
    return [given[name] for name in names]


def in_markdown(text: object, limit: int = 400) -> str:
    """`safe` text that Markdown shows letter by letter: no emphasis, image, link, formula, icon or colour."""
    return _LIVE.sub(rf"\1{_JOINER}", safe(text, limit)).translate(_ESCAPES)


def in_spreadsheet(text: str) -> str:
    """`text` with an apostrophe before whatever a spreadsheet would take for a formula."""
    return _FORMULA.sub("'", text)


def duration(seconds: float) -> str:
    """A length of time in its largest unit of which it holds at least one, with at most three significant digits."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" + ("" if f"{seconds / size:.3g}" == "1" else "s")
    return f"{1000 * seconds:.3g} ms" if seconds else "0 seconds"


def plural(count: int, noun: str) -> str:
    """`count` and `noun`, with an s when it is not one."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _visible(character: str) -> str:
    """The character, or its escape when it is one of the hidden kinds."""
    # A tab or a no-break space looks like a space and makes another name.
    if character == " " or unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
_ESCAPES = {ord(mark): f"\\{mark}" for mark in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"}

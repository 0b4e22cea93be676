"""Runs of six or more consecutive statements with the same tokens that occur twice in the product.

Strings count as equal. Layouts are left out, because their tables are alike. Imports, docstrings and comments
are left out, and so are runs of short statements (`_LEAST`).

Not here: the modules (`source`). Next: `__main__`, which compares with the limits.
"""

from __future__ import annotations

import io
import tokenize
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.walls.source import Module

LINES: Final = 6
"""Logical lines of a run."""
_LEAST: Final = 120
"""Characters that a run has at least: six closing brackets are no clone."""
_SPACE: Final = {
    tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def statements(text: str) -> list[str]:
    """Return the logical lines of a module with their strings emptied, without imports and docstrings."""
    found: list[str] = []
    words: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            if words[:1] not in (["import"], ["from"]) and words != ['""']:
                found.append(" ".join(words))
            words = []
        elif token.type not in _SPACE:
            words.append('""' if token.type == tokenize.STRING else token.string)
    return found


def clones(modules: Mapping[str, Module]) -> dict[str, int]:
    """Return "a.py = b.py" -> the number of runs of `LINES` statements in both; both may be one file."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules.values():
        if "layouts" in module.name.split("."):
            continue
        lines = statements(module.text)
        for at in range(len(lines) - LINES + 1):
            window = "\n".join(lines[at : at + LINES])
            if len(window) >= _LEAST:
                places[window].append(module.path)
    pairs = Counter(f"{first} = {other}" for paths in places.values() for first, other in pairwise(paths))
    return dict(sorted(pairs.items()))

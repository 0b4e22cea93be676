"""HTML of tables and texts for notebooks; everything in it is escaped, and nothing in it is coloured.

Not here: what each object shows, which its own class decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def html_table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return a table of texts; `head` are the names of its columns."""
    lines = [("th", head), *(("td", row) for row in rows)]
    cells = ("".join([f"<{tag}>{escape(str(cell))}</{tag}>" for cell in line]) for tag, line in lines)
    return f"<table>{''.join([f'<tr>{line}</tr>' for line in cells])}</table>"


def html_text(text: str) -> str:
    """Return a text in lines of equal characters."""
    return f"<pre>{escape(text)}</pre>"

"""Split a PTX module into one small module for each entry: the header, the entry, and what it refers to.

Not here: parsing of entries (`interop.ptx`).
"""

from __future__ import annotations

import re
from typing import Final

from hcq.errors import UsageError

_WORD: Final = re.compile(r"[\w$%]+")
_DECLARED: Final = re.compile(
    r"\.(?:entry|func\s*(?:\([^)]*\))?|(?:global|const|shared)\b[^;={]*?)\s+([\w$%]+)\s*(?:\(|\[|=|;|$)",
    re.DOTALL,
)
_HEADER: Final = (".version", ".target", ".address_size", ".file", ".section")


def items(ptx: str) -> list[str]:
    """Return the statements of a module at top level, with their bodies."""
    out: list[str] = []
    depth, start = 0, 0
    text = re.sub(r"//[^\n]*", "", ptx)
    for at, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        line = text[start:at].strip()
        header = char == "\n" and line.startswith(_HEADER[:-1])
        body = char == "}" and depth == 0 and not line.partition("{")[0].rstrip().endswith("=")
        if depth == 0 and (char == ";" or header or body):
            out.append(text[start : at + 1].strip())
            start = at + 1
    return [one for one in out if one]


def module_of(parts: list[str], entry: str) -> str:
    """Return the text of a module with one entry of those in `parts`.

    Raises `UsageError` if none of them is the entry of that name.
    """
    names: dict[str, list[int]] = {}
    entries = []
    for number, part in enumerate(parts):
        found = _DECLARED.search(part.partition("{")[0] if "=" not in part.partition("{")[0] else part)
        if found:
            names.setdefault(found[1], []).append(number)
            if found[0].startswith(".entry"):
                entries.append(found[1])
    if entry not in entries:
        raise UsageError(
            f"the module has no entry {entry!r} (a kernel that is compiled for other targets only, or a "
            f"mangled name?)\nhint: its entries are {', '.join(entries)}"
        )
    wanted = {number for number, part in enumerate(parts) if part.startswith(_HEADER)}
    todo = [entry]
    while todo:
        for number in names.get(todo.pop(), ()):
            if number not in wanted:
                wanted.add(number)
                todo += set(_WORD.findall(parts[number])) & names.keys()
    return "\n".join(parts[number] for number in sorted(wanted)) + "\n"

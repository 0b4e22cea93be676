"""Files of records, one for each text that PyTorch evaluates: `{text: record}`, a line for each text.

The texts are those that the file has; a recorder's command line adds further ones.

Not here: what a text means and what is recorded of it (`functions`, `in_place`, `layers`, `rounding`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.arguments import command, pytorch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DATA: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data"


def recorded(file: str) -> dict[str, Any]:
    """Return the records of a file by text."""
    found: dict[str, Any] = json.loads((DATA / file).read_text())
    return found


def record(
    name: str, doc: str | None, file: str, answer: Callable[[Any, str], Any], argv: Sequence[str] | None
) -> int:
    """Write `answer(torch, text)` for each text of a file and each that the command line adds; return 0."""
    parser = command(name, doc)
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="one that the file does not have")
    texts = dict.fromkeys([*recorded(file), *parser.parse_args(argv).texts])
    torch = pytorch()
    write(file, {text: answer(torch, text) for text in texts})
    print(f"{len(texts)} records of PyTorch {torch.__version__} in {DATA / file}")
    return 0


def write(file: str, records: dict[str, Any]) -> None:
    """Write records, a line for each."""
    lines = [f"{json.dumps(text)}: {json.dumps(one)}" for text, one in records.items()]
    (DATA / file).write_text("{\n" + ",\n".join(lines) + "\n}\n")

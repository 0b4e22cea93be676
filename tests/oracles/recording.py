"""Record what PyTorch gives for texts of a kind, such as expressions or layers.

    python -m tests.oracles.recording KIND [TEXT ...]     # in an environment with PyTorch

A kind is a module of this folder with `record(torch, text)`, and a file of tests/frontend/data,
`{text: record}`, a line for each text: those that the file has, and those of the command line.

Not here: what a text means and what is recorded of it (`edges`, `first_values`, `functions`, `in_place`,
`layers`, `rounding`, `special`).
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data"
KINDS: Final = ("edges", "first_values", "functions", "in_place", "layers", "rounding", "special")


def recorded(file: str) -> dict[str, Any]:
    """Return the records of a file by text."""
    found: dict[str, Any] = json.loads((DATA / file).read_text())
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records of a kind; return 0."""
    parser = command("tests.oracles.recording", __doc__)
    parser.add_argument("kind", choices=KINDS, metavar="KIND", help=f"of: {', '.join(KINDS)}")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="one that the file does not have")
    options = parser.parse_args(argv)
    torch, file = pytorch(), f"{options.kind}.json"
    record = import_module(f"tests.oracles.{options.kind}").record
    records = {
        text.partition(" | ")[0]: record(torch, text)
        for text in dict.fromkeys([*recorded(file), *options.texts])
    }
    lines = [f"{json.dumps(text)}: {json.dumps(one)}" for text, one in records.items()]
    (DATA / file).write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(records)} records of PyTorch {torch.__version__} in {DATA / file}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))

"""Refresh the outputs shown in the documentation: `python -m tools.docs docs/way-of-a-tensor.md`.

The Python blocks of a page run in one process, in order. The output of a block replaces the text block that
follows it. The output of a block without a text block is dropped.

Not here: docs/reference, which `tools.reference` writes. Next: tests/docs, which checks both.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from typing import TYPE_CHECKING

from tools.arguments import command, existing

if TYPE_CHECKING:
    from collections.abc import Sequence

_BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?P<shown>\n\n```text\n.*?```)?", re.DOTALL)


def refresh(text: str) -> str:
    """Run a page's blocks and return the page with their outputs. An exception of a block passes."""
    names: dict[str, object] = {"__name__": "page"}

    def run(match: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(match["code"], "page", "exec"), names)  # noqa: S102 - the project's own page
        block = f"```python\n{match['code']}```"
        if match["shown"] is None:
            return block
        return f"{block}\n\n```text\n{printed.getvalue().rstrip()}\n```"

    return _BLOCK.sub(run, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite the named pages in place."""
    parser = command("tools.docs", __doc__)
    parser.add_argument(
        "pages", nargs="+", type=existing, metavar="PAGE", help="a Markdown file, rewritten in place"
    )
    for page in parser.parse_args(argv).pages:
        page.write_text(refresh(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

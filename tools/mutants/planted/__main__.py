"""`python -m tools.mutants.planted [--driver nv] [--only TEXT] [--device NAME] [--json FILE]`.

It plants each bug of a driver's catalogue in a copy of the driver, runs the program on it in a child process,
and prints a line: `named` if the report identifies the bug, else the outcome. The exit status is 1 if a
smaller share than `--minimum` is named, and 2 if the unchanged driver does not pass.

Next: `catalogs`, the bugs; `run`, one of them.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tools.arguments import command, device_name, output, reported, share
from tools.mutants.planted.catalogs import CATALOGS
from tools.mutants.planted.run import judge, unchanged

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tools.mutants.planted", __doc__)
    parser.add_argument(
        "--driver", choices=tuple(CATALOGS), default=next(iter(CATALOGS)), help="(default %(default)s)"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only bugs whose name contains TEXT")
    parser.add_argument(
        "--device", type=device_name, metavar="NAME", help="run on this device instead of each bug's own"
    )
    parser.add_argument("--minimum", type=share, default=0.96, metavar="SHARE", help="(default 0.96)")
    parser.add_argument("--json", type=output, metavar="FILE", help="write every verdict with its message")
    options = parser.parse_args(argv)
    catalog = CATALOGS[options.driver]
    chosen = [bug for bug in catalog.bugs if options.only in bug.name]
    if not chosen:
        parser.error(
            f"no bug is named {options.only!r}; there are: {'; '.join(bug.name for bug in catalog.bugs)}"
        )
    for name in sorted({options.device or catalog.device_of(bug) for bug in chosen}):
        seen = unchanged(catalog, name)
        if seen.outcome != "passed":
            sys.stderr.write(f"the unchanged driver on {name}: {seen.outcome} {seen.text}\n")
            return 2
    verdicts = []
    for number, bug in enumerate(chosen, 1):
        verdict = judge(catalog, bug, device=options.device)
        verdicts.append(verdict)
        first = next((line for line in verdict.text.splitlines() if line.strip()), "")
        sys.stdout.write(f"{verdict.word:8} {bug.name}: {verdict.type} {first[:160]}\n")
        sys.stdout.flush()
        sys.stderr.write(f"\r{number} of {len(chosen)}")
    named = sum(verdict.word == "named" for verdict in verdicts)
    sys.stderr.write("\n")
    sys.stdout.write(f"{named} of {len(chosen)} named\n")
    if options.json is not None:
        rows = [
            {"bug": bug.name, "verdict": verdict.word, "type": verdict.type, "text": verdict.text}
            for bug, verdict in zip(chosen, verdicts, strict=True)
        ]
        options.json.write_text(json.dumps(rows, indent=1))
    return 0 if named >= options.minimum * len(chosen) else 1


if __name__ == "__main__":
    sys.exit(reported(main))

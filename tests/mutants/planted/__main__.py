"""`python -m tests.mutants.planted [--driver nv] [--device sm_100] [--only TEXT] [--json FILE]`.

It runs a driver's program on each of its bugs, made between the driver and the emulated kernel, in a child
process. It prints a line for each: `named` if the report identifies the bug, `harmless` if it passes on a GPU
where the facts allow it, else the outcome; and the sum. Each runs on its own emulated GPU, or all on that of
`--device`, with the version that a bug needs; those that the GPU cannot have do not count.
The exit status is 1 if a smaller share than `--minimum` is named, 2 if the unchanged driver does not pass.

Next: `catalogs`, the bugs; `run`, one of them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING

from tests.mutants.planted.catalogs import WIRES
from tests.mutants.planted.run import Wired
from tools.arguments import command, output, reported, share

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tests.mutants.planted", __doc__)
    parser.add_argument(
        "--driver", choices=tuple(WIRES), default=next(iter(WIRES)), help="(default %(default)s)"
    )
    parser.add_argument("--device", metavar="GPU", help="of all bugs, as sm_100, gfx950 or sm_120+595")
    parser.add_argument("--only", default="", metavar="TEXT", help="only bugs whose name contains TEXT")
    parser.add_argument("--minimum", type=share, default=0.96, metavar="SHARE", help="(default 0.96)")
    parser.add_argument("--json", type=output, metavar="FILE", help="write every verdict with its message")
    options = parser.parse_args(argv)
    every = WIRES[options.driver].bugs
    bugs = [bug.on(options.device) if options.device else bug for bug in every if options.only in bug.name]
    if not bugs:
        parser.error(f"no bug is named {options.only!r}; there are: {'; '.join(bug.name for bug in every)}")
    rows = []
    with Wired() as wired:
        for device in sorted({bug.device for bug in bugs}):
            seen = wired.run(options.driver, device)
            if seen.outcome != "passed":
                sys.stderr.write(f"the unchanged driver on {device}: {seen.outcome} {seen.text}\n")
                return 2
        for number, bug in enumerate(bugs, 1):
            verdict = wired.judge(options.driver, bug)
            if verdict.word == "unplanted" and options.device:
                continue
            rows.append({
                "bug": bug.name, "verdict": verdict.word, "type": verdict.type, "text": verdict.text,
            })  # fmt: skip
            first = next((line for line in verdict.text.splitlines() if line.strip()), "")
            sys.stdout.write(f"{verdict.word:8} {bug.name}: {verdict.type} {first[:160]}\n")
            sys.stdout.flush()
            sys.stderr.write(f"\r{number} of {len(bugs)}")
    words = Counter(row["verdict"] for row in rows)
    sys.stderr.write("\n")
    counts = ", ".join(f"{count} {word}" for word, count in words.most_common())
    sys.stdout.write(f"of {len(rows)}: {counts}\n")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))
    judged = len(rows) - words["harmless"]
    return 0 if words["named"] >= options.minimum * judged else 1


if __name__ == "__main__":
    sys.exit(reported(main))

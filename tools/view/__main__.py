"""Make one HTML page of recorded files, or of a program that is run.

    hcq view trace.json capture.jsonl counters.json findings.jsonl
    hcq view docs/hardware/*.json --output reports.html
    HCQ_DEVICE=nv-emu:sm_80 hcq view --counters train.py --steps 10

A file is what HCQ_TRACE, HCQ_CAPTURE, HCQ_CRASH or HCQ_COUNTERS wrote, what `hcq sanitize --json` printed,
the report of `tools.hardware_run`, or what `hcq view --json` wrote. Of a program, a name that ends in .py,
queues, packets, memory, graphs and kernels are recorded; what follows it are its arguments.
The page needs no network and no other file. Times of emulated GPUs are those of the emulation.

Exit status: that of the program, 1 if it has findings or opened no device, 2 for a file that cannot be read.

Not here: the readers (`tools.view.files`), the run (`tools.view.record`). Next: docs/viewer.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hcq.errors import UsageError
from interop.sanitize import note_late
from tools.arguments import command, existing, output, reported
from tools.view import files
from tools.view.record import record

if TYPE_CHECKING:
    from collections.abc import Sequence

_TEMPLATE: Final = Path(__file__).with_name("page.html")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status. Raises `UsageError` for a file that cannot be read."""
    words = list(sys.argv[1:] if argv is None else argv)
    at = next((at for at, word in enumerate(words) if word.endswith(".py")), len(words))
    parser = command("tools.view", __doc__)
    parser.add_argument("--output", type=output, help="(default view.html, or view.json)")
    parser.add_argument("--json", action="store_true", help="write the page's data instead, as one object")
    parser.add_argument("--counters", action="store_true", help="count what kernels do on emulated GPUs")
    parser.add_argument("--checked", action="store_true", help="run kernels of emulated GPUs with all checks")
    parser.add_argument("files", nargs="+", type=existing, metavar="FILE", help="as above")
    options = parser.parse_args(words[: at + 1])
    note_late(parser, words[at + 1 :])
    others = f" and {len(options.files) - 1} more" if len(options.files) > 1 else ""
    data, status = files.empty(f"{options.files[0].name}{others}"), 0
    for path in options.files:
        if path.suffix == ".py":
            counters, checked = options.counters, options.checked
            status = record(data, str(path), words[at + 1 :], counters=counters, checked=checked)
        else:
            files.add(data, path)
    if not any(data[part] for part in files.PARTS):
        sys.stderr.write("nothing was recorded, so there is no page: the program opened no device\n")
        return status or 1
    made = options.output or Path("view.json" if options.json else "view.html")
    made.write_text(text(data) if options.json else page(data), encoding="utf-8")
    for note in data["notes"]:
        sys.stderr.write(f"note: {note}\n")
    counts = ", ".join(f"{len(data[part])} {part}" for part in files.PARTS if data[part])
    sys.stderr.write(f"{made}: {counts}\n")
    return status


def text(data: files.Data) -> str:
    """Return data as JSON. Raises `UsageError` for a number that JSON cannot hold."""
    try:
        return json.dumps(data, allow_nan=False)
    except ValueError as error:
        raise UsageError(
            f"wanted finite numbers, saw another: {error}\nhint: record the files again"
        ) from None


def page(data: files.Data) -> str:
    """Return the HTML page of data.

    Its only script is that of the template: the policy of the page names its digest, and the data cannot end
    their element. Raises as `text`.
    """
    head, tail = _TEMPLATE.read_text(encoding="utf-8").split("{data}")
    script = tail.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    head = head.replace("{digest}", digest).replace("{title}", escape(data["title"]))
    return head + text(data).replace("<", "\\u003c") + tail


if __name__ == "__main__":
    sys.exit(reported(main))

"""Run Triton's own tests, from a checkout of Triton, on emulated GPUs, and count the outcomes by target.

    python -m tests.guests.triton_tests ~/triton                         # six emulated GPUs, all checks
    python -m tests.guests.triton_tests ~/triton --device nv --each 0    # every parametrization, on hardware
    python -m tests.guests.triton_tests ~/triton --only test_dot --log /tmp/runs

The folder is a checkout of github.com/triton-lang/triton, or of a fork, near the installed version; it needs
Triton, PyTorch, SciPy and pytest. Nothing of it is changed or kept here. Each function runs with `--each` of
its parametrizations, chosen by a hash of their names; a file runs in a process of its own, which is started
again behind a test that ends it.

Prints a line for each outcome that is not "passed" or "skipped", and a table. "refused": this project says
by name what it does not support; "fault": the device stopped the kernel; "wrong": a comparison of the test
failed; "crash": the process ended; "Triton": the installed Triton does not compile or import it. Those that
`EXPECTED` explains are counted as "explained". Exit status 1 if a wrong result, fault, crash or error has no
explanation.

Not here: what the tests see (`tests.guests.triton_plugin`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import UsageError
from tools.arguments import command, device_name, library, natural, positive, reported, share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

DEVICES: Final = tuple(f"nv-emu:{one}+checked" for one in ("sm_80", "sm_90", "sm_120")) + tuple(
    f"amd-emu:{one}+checked" for one in ("gfx1100", "gfx1201", "gfx942")
)
FILES: Final = tuple(
    f"python/test/{name}.py"
    for name in (
        "unit/language/test_core", "unit/language/test_standard", "unit/language/test_random",
        "unit/language/test_conversions", "unit/language/test_matmul", "unit/language/test_pipeliner",
        "unit/language/test_tensor_descriptor", "unit/language/test_tuple", "unit/language/test_annotations",
        "unit/language/test_libdevice", "unit/language/test_mxfp", "unit/language/test_layout",
        "unit/language/test_warp_specialization", "unit/language/test_decorator", "unit/language/test_npot",
        "gluon/test_core", "gluon/test_lowerings",
    )
)  # fmt: skip
"""Files of Triton's tests that launch kernels."""
COLUMNS: Final = (
    "passed", "refused", "wrong", "fault", "crash", "error", "too long", "Triton", "explained", "skipped",
)  # fmt: skip
EXPECTED: Final[dict[str, str]] = {}
"""A pattern of "DEVICE TEST OUTCOME: TEXT" -> why the outcome is not a defect of this project."""
_STALL: Final = 4
"""A process is ended when a test takes this many times its limit: native code does not see the alarm."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command("tests.guests.triton_tests", __doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of Triton's repository")
    parser.add_argument(
        "--device", action="append", type=device_name, help="repeatable; default: six emulated GPUs"
    )
    parser.add_argument("--file", action="append", help="a file of tests below the checkout; repeatable")
    parser.add_argument("--only", default="", help="pytest's -k")
    parser.add_argument(
        "--each", type=natural, default=2, help="parametrizations of a function, 0: all (default: 2)"
    )
    parser.add_argument("--share", type=share, default=1.0, help="of the functions (default: 1)")
    parser.add_argument("--limit", type=positive, default=120, help="seconds a test may take (default: 120)")
    parser.add_argument(
        "--log", type=Path, help="keep the outcomes of each test in this folder, and go on from them"
    )
    options = parser.parse_args(argv)
    library("triton", cure="pip install 'triton>=3.6'")
    files = options.file or [one for one in FILES if (options.checkout / one).exists()]
    missing = [one for one in files if not (options.checkout / one).exists()]
    if missing or not files:
        raise UsageError(
            f"{options.checkout} has no {(missing or FILES)[0]}\nhint: name a checkout of Triton's repository"
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.log or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        table = {}
        for device in options.device or DEVICES:
            rows: list[dict[str, Any]] = []
            for file in files:
                rows += _run(options, device, file, folder)
            table[device] = _counted(device, rows)
            _print(table)
    return (
        1
        if any(one[bad] for one in table.values() for bad in ("wrong", "fault", "crash", "error", "too long"))
        else 0
    )


def _run(options: Any, device: str, file: str, folder: Path) -> list[dict[str, Any]]:
    """Run one file of tests, in as many processes as it takes; return the last row of each test."""
    log = folder / re.sub(r"[^\w.]+", "_", f"{device}_{file.removeprefix('python/test/')}.jsonl")
    log.touch()
    while True:
        before = [row["test"] for row in _last(log).values() if row["outcome"] != "started"]
        done = log.with_suffix(".done")
        done.write_text("\n".join(before))
        status, text = _process(options, device, file, log)
        started = [row for row in _last(log).values() if row["outcome"] == "started"]
        for row in started:
            _append(
                log, row | {"outcome": "crash", "text": f"the process ended with {status}: {text[-800:]}"}
            )
        if not started:
            if status not in {0, 1, 5}:  # pytest's: all passed, some failed, none collected
                name = f"{file}::import"
                _append(log, {"test": name, "outcome": "other", "text": text[-1500:], "trace": ""})
            return list(_last(log).values())


def _process(options: Any, device: str, file: str, log: Path) -> tuple[int, str]:
    """Run pytest in a process of its own; return its status and its output."""
    tests = options.checkout.resolve() / "python/test"
    arguments = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tests), "--tb=short",
        "-p", "no:cacheprovider", "-p", "tests.guests.triton_plugin", "-W", "ignore", "--device=cuda",
        f"--hcq-device={device}", f"--hcq-log={log}", f"--hcq-done={log.with_suffix('.done')}",
        f"--hcq-each={options.each}", f"--hcq-share={options.share}",
        f"--hcq-limit={options.limit}", str(options.checkout.resolve() / file),
    ]  # fmt: skip
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {
        "HCQ_DEVICE": device,
        "TRITON_CACHE_DIR": str(log.parent / "cache"),
        "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep),
    }
    output = log.with_suffix(".output")
    with output.open("w") as stream:
        child = subprocess.Popen(
            arguments + (["-k", options.only] if options.only else []),
            env=environment, cwd=tests, stdout=stream, stderr=subprocess.STDOUT,
        )  # fmt: skip
        while True:
            size = log.stat().st_size
            try:
                return child.wait(_STALL * options.limit), output.read_text(errors="replace")
            except subprocess.TimeoutExpired:
                if log.stat().st_size == size:
                    child.kill()


def _last(log: Path) -> dict[str, dict[str, Any]]:
    """Return the last row of each test."""
    return {row["test"]: row for row in map(json.loads, log.read_text().splitlines())}


def _append(log: Path, row: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _counted(device: str, rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """Print what did not pass; return the outcomes by class."""
    counts: Counter[str] = Counter()
    for row, outcome, why in _judged(device, rows):
        counts[outcome] += 1
        if outcome not in {"passed", "skipped"}:
            text = " | ".join(row["text"].split("\n"))[:300]
            print(f"{device} {row['test']} {outcome}{f' ({why})' if why else ''}: {text}", flush=True)
    return counts


def _judged(device: str, rows: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield (row, class, explanation)."""
    for row in rows:
        outcome = "Triton" if row["outcome"] == "other" and _of_triton(row) else row["outcome"]
        outcome = "error" if outcome == "other" else outcome
        text = f"{device} {row['test']} {outcome}: {row.get('text', '')}"
        why = next((why for pattern, why in EXPECTED.items() if re.search(pattern, text, re.DOTALL)), "")
        if outcome in {"passed", "skipped"}:
            why = ""
        yield row, "explained" if why else outcome, why


def _of_triton(row: dict[str, Any]) -> bool:
    """Return whether an error was raised by Triton, its compilers or the test, and not by this project."""
    own = re.search(r"\b(interop|drivers|hcq|emulator)/\w[\w/]*\.py:\d+", row["trace"])
    return own is None


def _print(table: dict[str, Counter[str]]) -> None:
    print(f"| device | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
    for device, counts in table.items():
        print(f"| {device} | {' | '.join(str(counts[one]) for one in COLUMNS)} |", flush=True)


if __name__ == "__main__":
    sys.exit(reported(main))

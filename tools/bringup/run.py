"""Running one rung in this process, on a given interface to the operating system's kernel.

Not here: child processes and the order of rungs (`ladder`), the command line (`command`). Next: `evidence`.
"""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivers.kernel_trace import traced
from hcq.errors import HcqError, UnsupportedError
from tools.bringup.evidence import Trace
from tools.bringup.rung import Result
from tools.bringup.vendor import BenchOptions

if TYPE_CHECKING:
    import argparse

    from drivers.kernel import Kernel
    from tools.bringup.rung import Rung
    from tools.bringup.vendor import Vendor


def run_rung(rung: Rung, choices: Any, arguments: argparse.Namespace, kernel: Kernel) -> Result:
    """Run one rung with some values in this process, and return the result; errors of the rung are in it.

    `choices` are the vendor's `Quirks`, `arguments` those of `command.parse`.
    """
    vendor: Vendor[Any] = arguments.vendor
    trace = Trace(_path(arguments.trace), vendor.line)
    options = BenchOptions(
        index=arguments.device,
        dry=arguments.dry,
        emulate=arguments.emulate,
        kernels=_path(arguments.kernels),
        boost=arguments.boost,
    )
    bench = vendor.bench(traced(kernel, trace.note), choices, options)
    result = Result(rung.number, rung.name, vendor.describe(choices), passed=False, seconds=0.0)
    start = time.perf_counter()
    try:
        _run(rung, vendor, bench, result)
        result.passed = True
    except HcqError as error:
        result.error = f"{type(error).__name__}: {error}"
        result.offered = not isinstance(error, UnsupportedError)
    except Exception:  # noqa: BLE001 - any failure is the result of this rung
        result.error = traceback.format_exc()
    result.seconds = time.perf_counter() - start
    result.calls = [] if result.passed else trace.last
    trace.close()
    return result


def _run(rung: Rung, vendor: Vendor[Any], bench: Any, result: Result) -> None:
    """Run a rung; if it fails, read its rings into `result.memory` before they are closed."""
    with bench.stack:
        try:
            result.facts = rung.run(bench)
        except Exception:
            result.memory = vendor.memory(bench)
            raise


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def first_line(error: str) -> str:
    """Return the first line of an error, at most 160 characters."""
    return error.strip().split("\n", 1)[0][:160]

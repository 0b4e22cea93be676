"""Run a program that looks for planted bugs, and print its outcome as one JSON object.

The object has `outcome`, `type` and `text`. The outcome is `passed`, `error` (an error of `hcq.errors`),
`bare` (a fault without a report), `wrong` (wrong bytes without an error) or `untyped` (any other error).

Not here: the programs (a vendor's folder: `tests.mutants.nv.planted.program`), starting them with a bug
planted (`run`).
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import hcq

if TYPE_CHECKING:
    from collections.abc import Callable


class Advised(Exception):  # noqa: N818 - an outcome, not an error of the project
    """The program ended as it should, and the emulated kernel side has reported doubts."""


class Wrong(Exception):  # noqa: N818 - an outcome, not an error of the project
    """The program ended without an error, and some results are wrong."""


def _chain(error: BaseException) -> str:
    """Return the text of an error, and of those during whose handling it was raised, as a traceback does."""
    text, before = str(error), error.__context__
    return text if before is None or error.__suppress_context__ else f"{text}\nbehind: {_chain(before)}"


def report(play: Callable[[], None]) -> None:
    """Call `play`, which raises `Wrong` for wrong results, and print the outcome."""
    try:
        play()
    except hcq.DeviceFault as error:
        # The reports of the kernel side identify the bug; the fault's code does not.
        text = "\n".join(error.reports) or str(error)
        result = {"outcome": "error" if error.reports else "bare", "type": "DeviceFault", "text": text}
    except hcq.HcqError as error:
        result = {"outcome": "error", "type": type(error).__name__, "text": _chain(error)}
    except Advised as error:
        result = {"outcome": "error", "type": "advice", "text": str(error)}
    except Wrong as error:
        result = {"outcome": "wrong", "type": "", "text": str(error)}
    except Exception as error:  # noqa: BLE001 - an error that is not the project's own is an outcome, too
        result = {"outcome": "untyped", "type": type(error).__name__, "text": str(error)}
    else:
        result = {"outcome": "passed", "type": "", "text": ""}
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()

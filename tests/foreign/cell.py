"""`python -m tests.foreign.cell`: run cases of one driver on one emulated GPU, one line of JSON for each.

A line is {"case", "passed", "said", "cpu_s"}; the last is {"advice", "reports", "refusals"}, each a list.
Not here: the product of drivers and GPUs (`__main__`).
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator import devices
from tests.foreign import redirected
from tests.foreign.cases import CASES, Rig
from tools.arguments import command, positive, some_of

if TYPE_CHECKING:
    from argparse import Namespace

_WAIT_S = 600
"""How long tinygrad waits for a signal: a slow machine is no hang."""


def main() -> int:
    """Run the cases and return 0; a case that fails is data."""
    args = _arguments()
    settings = {"HCQDEV_WAIT_TIMEOUT_MS": str(1000 * args.wait_s), "AMD_AQL": str(int(args.mode == "aql"))}
    redirected.prepare(args.vendor, settings)
    driver = devices.AMD if args.vendor == "amd" else devices.NV
    kernel: Any = driver.make_kernel(args.variant)
    if args.vendor == "nv":
        kernel.machine.strict = False  # tinygrad's rings have no fence before GPPut; that is advice then
    redirected.redirect(args.vendor, kernel)
    rig: Rig | None = None
    for name in args.cases:
        started = time.process_time()
        try:
            if rig is None:
                device = redirected.tinygrad().Device[args.vendor.upper()]
                rig = Rig(args.vendor, kernel, device, np.random.default_rng(1))
            CASES[name](rig)
            said = ""
        except Exception as error:  # noqa: BLE001 - every failure of a foreign driver is the result of a case
            said = _words(error, kernel)
        spent = time.process_time() - started
        _print({"case": name, "passed": not said, "said": said, "cpu_s": round(spent, 2)})
        if rig is None or rig.device.error_state is not None:
            break  # tinygrad's device does not recover: what follows would tell nothing
    refusals = [str(one) for one in kernel.machine.refusals]
    advice = [str(one) for one in kernel.reports if not one.fatal]
    reports = [str(one) for one in kernel.reports if one.fatal]
    _print({"advice": advice, "reports": reports, "refusals": refusals})
    sys.stdout.flush()
    os._exit(0)  # tinygrad's finalizers wait for a device that has faulted


def _words(error: Exception, kernel: Any) -> str:
    told = [str(one) for one in kernel.reports if one.fatal][:1]
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(last.filename)}:{last.lineno}"  # noqa: PTH119 - of a text
    return "; ".join([f"{type(error).__name__} at {where}: {error}", *told])[:2000]


def _print(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _arguments() -> Namespace:
    parser = command("tests.foreign.cell", __doc__)
    parser.add_argument("--vendor", choices=("nv", "amd"), required=True)
    parser.add_argument("--variant", required=True, help="what follows the colon of a device's name")
    parser.add_argument("--mode", choices=("pm4", "aql", ""), default="")
    parser.add_argument("--cases", type=some_of(CASES), default=list(CASES))
    parser.add_argument(
        "--wait-s", type=positive, default=_WAIT_S, help="how long tinygrad waits for a signal"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

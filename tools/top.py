"""`hcq top [--once] [--json]`: what the devices of all processes of this user do.

Processes that run with `HCQ_TOP=1` publish their queues, the points that they wait for, and memory by owner.
For GPUs of the kernel driver amdgpu it also shows load, memory, power, temperature and clock from sysfs,
which count all processes.

Not here: what is published (`hcq.published`).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import size_text
from hcq.published import PERIOD_S, read_all
from tools.arguments import command, reported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SYSFS: Final = Path("/sys/class/drm")
_CLEAR: Final = "\x1b[H\x1b[2J"
_SENSORS: Final = (
    ("gpu_busy_percent", "load", 1, "%"),
    ("mem_info_vram_used", "memory", 1 << 20, " MiB"),
    ("hwmon/hwmon*/power1_average", "power", 1_000_000, " W"),
    ("hwmon/hwmon*/temp1_input", "temperature", 1000, " C"),
    ("hwmon/hwmon*/freq1_input", "clock", 1_000_000, " MHz"),
)
"""(file of a card, name, units in one of what is shown, its unit), of amdgpu and the kernel's hwmon."""


def cards(sysfs: Path = SYSFS) -> Iterator[dict[str, Any]]:
    """Yield the sensors of each card that has some, by name."""
    for device in sorted(sysfs.glob("card[0-9]*/device")):
        found: dict[str, Any] = {"card": device.parent.name}
        for pattern, name, unit, suffix in _SENSORS:
            for path in list(device.glob(pattern))[:1]:
                try:
                    found[name] = f"{int(path.read_text()) / unit:.0f}{suffix}"
                except (OSError, ValueError):  # a sensor that is off refuses to be read
                    continue
        if len(found) > 1:
            yield found


def lines(processes: list[dict[str, Any]], sensors: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the view, a line each."""
    for one in sensors:
        yield " ".join(f"{name} {value}" for name, value in one.items())
    for process in processes:
        age = max(0.0, time.time() - process["time"])
        stale = f", {age:.0f} s old" if age > 4 * PERIOD_S else ""
        yield f"{process['pid']} {' '.join(process['argv'])[:80]}{stale}"
        for device in process["devices"]:
            use = device["memory"]
            parts = [f"{size_text(use[part])} {part}" for part in ("used", "deferred", "cached")]
            yield f"  {device['device']} ({device['name']}): {', '.join(parts)}"
            for queue in device["queues"]:
                left = queue["issued"] - queue["reached"]
                yield f"    {queue['label']}: {queue['reached']:,} done, {left} left; {queue['at'] or 'idle'}"
                yield from (f"      waits: {wait}" for wait in queue["waits"])
                if queue["crumbs"]:
                    yield f"      {queue['crumbs']}"
            yield from (f"    {size_text(size)} in {count}: {name}" for name, size, count in device["owners"])
    if not processes:
        yield "no process publishes: start one with HCQ_TOP=1"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tools.top", __doc__)
    parser.add_argument("--once", action="store_true", help="print it once and stop")
    parser.add_argument("--json", action="store_true", help="print it once as JSON")
    options = parser.parse_args(argv)
    try:
        while True:
            processes, sensors = list(read_all()), list(cards())
            if options.json:
                print(json.dumps({"processes": processes, "cards": sensors}))
                return 0
            text = "\n".join(lines(processes, sensors))
            if options.once:
                print(text)
                return 0
            print(_CLEAR + text, flush=True)
            time.sleep(PERIOD_S)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(reported(main))

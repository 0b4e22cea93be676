"""Check the limits of the source tree, or lower them to today's sources: `python -m tools.walls`.

    python -m tools.walls            names what is beyond its limit, and limits that are not reached any more
    python -m tools.walls --rooms    the table of rooms (packages, tools, tests, docs): lines, ceiling, goal
    python -m tools.walls --write    rewrites `limits.toml` from the sources; refuses what would raise a limit

A change that needs a higher limit edits `limits.toml` by hand, with its reason.

Not here: what is counted (`arrows`, `names`, `clones`, `rooms`, `errors`). Next: `source`, the modules that
are read.
"""

from __future__ import annotations

import json
import sys
import tomllib
from typing import TYPE_CHECKING, Any, Final

from tools.arguments import command
from tools.walls import rooms
from tools.walls.arrows import arrows, knots
from tools.walls.clones import clones
from tools.walls.errors import unnamed_errors
from tools.walls.names import shared_names
from tools.walls.source import ROOT, product

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMITS: Final = ROOT / "tools/walls/limits.toml"
SECTIONS: Final = {
    "arrows": "Arrows between folders that lie on a circle. Cut them; add none.",
    "names": "Public classes of one name, and the modules that define one. Rename them; add none.",
    "clones": "Files that share runs of six statements, and how many runs. Merge them; add none.",
    "rooms": "Lines of each room: its ceiling, where it is to go, and why the ceiling is above that.",
}


def seen() -> dict[str, Any]:
    """Return what the sources have today, by the sections of `limits.toml`."""
    modules = product()
    return {
        "arrows": knots(arrows(modules)),
        "names": shared_names(modules),
        "clones": clones(modules),
        "rooms": rooms.sizes(),
        "errors": unnamed_errors(modules | product(packages=("tools",))),
    }


def beyond(limits: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return a line for each limit that the sources exceed, and for each error that no contract names."""
    out = [
        f"arrows: {arrow} lies on a circle"
        for arrow in found["arrows"]
        if arrow not in limits["arrows"]["cut"]
    ]
    for name, owners in found["names"].items():
        if new := set(owners) - set(limits["names"].get(name, ())):
            out.append(
                f"names: class {name} of {', '.join(sorted(new))} has the name of another: "
                f"{', '.join(owners)}"
            )
    for pair, runs in found["clones"].items():
        if runs > (allowed := limits["clones"].get(pair, 0)):
            out.append(f"clones: {pair}, {runs} runs of six statements, {allowed} are allowed")
    for room, lines in found["rooms"].items():
        if lines > (ceiling := limits["rooms"][room]["ceiling"]):
            out.append(
                f"rooms: {room} has {lines:,} lines, {ceiling:,} are allowed: "
                "delete, or say why in limits.toml"
            )
    return out + [f"errors: {one}, which no docstring names" for one in found["errors"]]


def stale(limits: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return a line for each exception that the sources no longer need; rooms may be below their ceilings."""
    out = [f"arrows: {arrow} is gone" for arrow in limits["arrows"]["cut"] if arrow not in found["arrows"]]
    for name, owners in limits["names"].items():
        if gone := set(owners) - set(found["names"].get(name, ())):
            out.append(f"names: {name} of {', '.join(sorted(gone))} is gone, or has its name alone")
    out += [
        f"clones: {pair} has {found['clones'].get(pair, 0)} runs, not {runs}"
        for pair, runs in limits["clones"].items()
        if found["clones"].get(pair, 0) < runs
    ]
    return out


def written(limits: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return the text of `limits.toml` with today's exceptions; ceilings, goals and reasons stay."""
    out = [f"# {SECTIONS['arrows']}", "[arrows]", "cut = ["]
    out += [*(f'  "{arrow}",' for arrow in found["arrows"]), "]", "", f"# {SECTIONS['names']}", "[names]"]
    for name, owners in found["names"].items():
        out.append(f"{name} = {json.dumps(owners)}")
    out += ["", f"# {SECTIONS['clones']}", "[clones]"]
    out += [f'"{pair}" = {runs}' for pair, runs in found["clones"].items()]
    out += ["", f"# {SECTIONS['rooms']}", "[rooms]"]
    for room, row in limits["rooms"].items():
        key = json.dumps(room) if "/" in room else room
        out.append(f'{key} = {{ ceiling = {row["ceiling"]}, goal = {row["goal"]}, why = "{row["why"]}" }}')
    return "\n".join(out) + "\n"


def table(limits: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return the rooms as text: lines, ceiling, goal, and why the ceiling is above the goal."""
    head = f"{'room':<13}{'lines':>9}{'ceiling':>9}{'goal':>9}  why"
    rows = [
        f"{room:<13}{found['rooms'][room]:>9,}{row['ceiling']:>9,}{row['goal']:>9,}  {row['why']}"
        for room, row in limits["rooms"].items()
    ]
    return "\n".join([head, *rows]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Name what is beyond its limit; return 1 if something is, or if an exception is no longer needed."""
    parser = command("tools.walls", __doc__)
    parser.add_argument("--rooms", action="store_true", help="print the table of rooms")
    parser.add_argument(
        "--write", action="store_true", help="rewrite limits.toml; what is beyond a limit is refused"
    )
    options = parser.parse_args(argv)
    limits, found = tomllib.loads(LIMITS.read_text()), seen()
    if options.rooms:
        sys.stdout.write(table(limits, found))
        return 0
    wrong = beyond(limits, found)
    if options.write and not wrong:
        LIMITS.write_text(written(limits, found))
        return 0
    wrong += stale(limits, found) if not options.write else []
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Facts of hardware, typed in from its documents alone, as tables: `from tests.facts import amd_pm4`.

A table is a TOML file beside this one; its head names the source. Arrays are tuples here. `["map", [key,
value], ...]` is a dictionary, `["range", first, end]` a range, "@NAME" the value of that name, "@errno.NAME"
an errno. Values that are not data are modules: forms of PTX.

Not here: the comparison with layouts (`test_*`).
"""

from __future__ import annotations

import errno
import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def __getattr__(name: str) -> Any:
    """Return the table of a file, its values as attributes."""
    if not (Path(__file__).parent / f"{name}.toml").exists():
        raise AttributeError(f"no table of facts is called {name!r}")
    return _table(name)


@cache
def _table(name: str) -> SimpleNamespace:
    raw = tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text())

    def value(given: Any) -> Any:
        if isinstance(given, list):
            if given[:1] == ["map"]:
                return {value(key): value(one) for key, one in given[1:]}
            return range(*given[1:]) if given[:1] == ["range"] else tuple(map(value, given))
        if isinstance(given, str) and given.startswith("@"):
            if given == "@None":
                return None
            known = given.removeprefix("@errno.")
            return getattr(errno, known) if known != given else value(raw[given[1:]])
        return given

    return SimpleNamespace(**{key: value(one) for key, one in raw.items()})

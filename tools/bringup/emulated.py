"""The part of an emulated GPU's name that makes it refuse a driver's default: "gfx1100+other=order".

Not here: the rows (`tools.bringup.amd.rejections`, `tools.bringup.nv.rejections`). Next:
`emulator.shared.surprises`, how an emulated GPU uses a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from emulator.shared.surprises import Rejections
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.shared.surprises import Rejection

PREFIX: Final = "other="


def split(variant: str, rows: Mapping[str, Rejection]) -> tuple[str, Rejections | None]:
    """Return a variant without its parts "other=NAME", and the rows that they name; None without such a part.

    Raises `UsageError`, which lists the names, for a name that `rows` lacks.
    """
    parts = [part for part in variant.split("+") if part]
    names = [part.removeprefix(PREFIX) for part in parts if part.startswith(PREFIX)]
    for name in names:
        if name not in rows:
            raise UsageError(
                f"{name!r} names no quirk that an emulated GPU can reject\nhint: there are: {', '.join(rows)}"
            )
    rest = "+".join(part for part in parts if not part.startswith(PREFIX))
    return rest, Rejections({name: rows[name] for name in names}) if names else None

"""Record PyTorch's 8-bit floats, as test data: the values of all codes, the codes of all boundaries.

    python -m tests.oracles.float8

Run it by hand in an environment with PyTorch. It writes `tests/compiler/data/float8.json`: for each dtype the
values as `repr` writes them, and the codes of `tests.float8.boundaries` in hexadecimal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.float8 import FIELDS, boundaries
from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACE = Path(__file__).parents[2] / "tests/compiler/data/float8.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tables; return 0."""
    command("tests.oracles.float8", __doc__).parse_args(argv)
    torch = pytorch()
    found: dict[str, object] = {"torch": torch.__version__}
    for name in FIELDS:
        dtype = getattr(torch, name)
        values = torch.arange(256, dtype=torch.uint8).view(dtype).float().tolist()
        codes = torch.from_numpy(boundaries(name)).to(dtype).view(torch.uint8).numpy()
        found[name] = {"values": " ".join(map(repr, values)), "codes": codes.tobytes().hex()}
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(json.dumps(found, indent=0) + "\n")
    print(f"written: {PLACE}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))

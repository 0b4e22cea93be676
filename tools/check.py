"""Run what CI checks besides the tests: lint, types, layers, walls, counted calls, the wheel.

`python -m tools.check` runs all checks; `python -m tools.check ruff mypy` runs only these two. Exits with 1
if a check failed.

Not here: the tests; .ci/run runs both in fresh environments. Next: `tools.walls` and `tools.walk`, two of the
checks.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools.arguments import command

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"hcq", "drivers", "emulator", "compiler", "frontend", "interop"}


def _command(*words: str) -> bool:
    return subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=False).returncode == 0


def ruff() -> bool:
    """Lint the whole tree."""
    return _command("ruff", "check", "--quiet", ".")


def mypy() -> bool:
    """Check types, strictly."""
    return _command("mypy")


def users() -> bool:
    """Check the types of two programs that use the public names, strictly."""
    return _command("mypy", "--strict", "tests/house/typed_program.py", "examples/digits.py")


def layers() -> bool:
    """Check which packages import which, by the contracts in pyproject.toml."""
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([str(program), "--no-cache"], cwd=ROOT, check=False).returncode == 0


def walls() -> bool:
    """Check what the linter does not: circles between folders, names, sizes of packages, clones."""
    return _command("tools.walls")


def walk() -> bool:
    """Check that one tensor operation calls no more functions than `tools/walk.toml` allows."""
    return _command("tools.walk", "--check")


def wheel_packages() -> set[str]:
    """Build the wheel and return the top-level names in it, without its metadata.

    Raises `RuntimeError` with the output of the build if it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = ["hatchling", "build", "--target", "wheel", "--directory", folder]
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the wheel could not be built:\n{done.stdout}{done.stderr}")
        (path,) = Path(folder).glob("*.whl")
        tops = {name.split("/")[0] for name in zipfile.ZipFile(path).namelist()}
    return {top for top in tops if not top.endswith(".dist-info")}


def wheel() -> bool:
    """Check that the wheel holds `PACKAGES` and nothing else. Raises as `wheel_packages`."""
    seen = wheel_packages()
    if seen != PACKAGES:
        sys.stderr.write(f"the wheel must hold {sorted(PACKAGES)}, it holds {sorted(seen)}\n")
    return seen == PACKAGES


CHECKS = {
    "ruff": ruff, "mypy": mypy, "users": users, "layers": layers, "walls": walls, "walk": walk,
    "wheel": wheel,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named checks, or all; print which failed, and return 1 if one did. Raises as `wheel`."""
    parser = command("tools.check", __doc__)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"of: {', '.join(CHECKS)} (default: all)")
    names = parser.parse_args(argv).checks or list(CHECKS)
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        parser.error(f"no check called {', '.join(unknown)}; there are: {', '.join(CHECKS)}")
    failed = []
    for name in names:
        sys.stderr.write(f"== {name}\n")
        if not CHECKS[name]():
            failed.append(name)
    sys.stderr.write(f"failed: {', '.join(failed)}\n" if failed else "all checks passed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

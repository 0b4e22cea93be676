"""Command lines of the tools: their parser, types that refuse wrong values, and errors as one line.

    parser = command("tools.NAME", __doc__)
    parser.add_argument("--cases", type=positive, help="how many")
    parser.add_argument("--device", type=device_name, help="a name for hcq.open")
    ...
    if __name__ == "__main__":
        sys.exit(reported(main))

A wrong value ends the program with status 2 and a line that says what was wanted and what was seen, before
anything is opened or written. The types raise `ArgumentTypeError`, which argparse prints as that line.

Not here: the settings of the environment (`hcq.config`), names of devices (`hcq.registry`).
"""

from __future__ import annotations

import math
import re
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hcq.cli import prog
from hcq.errors import HcqError, UnsupportedError, UsageError
from hcq.registry import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

REFUSED: Final = 2
"""The exit status of a program that could not do what the command line asks, as argparse gives it."""
_POINTERS: Final = re.compile(r"\s*\b(?:Not here|Next): .*?(?=\n\n|\Z)", re.DOTALL)
_USAGE: Final = re.compile(r"\A`python -m [^`]*`[.:]\s*")


def command(name: str, doc: str | None) -> ArgumentParser:
    """Return the parser of `python -m NAME`, which `hcq` may have started under a name of its own.

    Its help is the docstring of the module with its line breaks, without the pointers to other modules and
    without a first line that repeats the usage; `doc` None: it has none.
    """
    text = _USAGE.sub("", _POINTERS.sub("", doc or "")).strip()
    called = prog(name)
    text = text.replace(f"python -m {name}", called)
    return ArgumentParser(
        prog=called,
        description=text[:1].upper() + text[1:],
        formatter_class=RawDescriptionHelpFormatter,
    )


def library(name: str, *, cure: str) -> Any:
    """Return an optional library. Raises `UnsupportedError` with `cure` as its hint if it is not installed.

    If a module that the library imports is missing, its `ModuleNotFoundError` passes. The result is Any
    because the library has no types where it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise UnsupportedError(
            f"this command needs {name}, which {sys.executable} lacks\nhint: {cure}"
        ) from None


def pytorch() -> Any:
    """Return PyTorch. Raises `UnsupportedError` where this Python lacks it."""
    return library("torch", cure="run it with the Python of an environment that has PyTorch")


def natural(text: str) -> int:
    """Return a whole number of at least 0."""
    return _whole(text, 0)


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise ArgumentTypeError(f"wanted a whole number of at least {least}, saw {text!r}")
    return number


def above_zero(text: str) -> float:
    """Return a finite number above 0."""
    number = _number(text)
    if not 0 < number < math.inf:
        raise ArgumentTypeError(f"wanted a number above 0, saw {text!r}")
    return number


def seconds(text: str) -> float:
    """Return a number of at least 0, which may be infinite."""
    number = _number(text)
    if not number >= 0:
        raise ArgumentTypeError(f"wanted seconds, a number of at least 0, saw {text!r}")
    return number


def share(text: str) -> float:
    """Return a number from 0 to 1."""
    number = _number(text)
    if not 0 <= number <= 1:
        raise ArgumentTypeError(f"wanted a number from 0 to 1, saw {text!r}")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def device_name(text: str) -> str:
    """Return the name of a device in the form that `hcq.open` takes; the device need not exist."""
    try:
        if text != "auto":
            parse(text)
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from None
    return text


def existing(text: str) -> Path:
    """Return the path of a file that exists."""
    path = Path(text)
    if not path.is_file():
        raise ArgumentTypeError(f"wanted a file, {text!r} is {'a folder' if path.is_dir() else 'not there'}")
    return path


def output(text: str) -> Path:
    """Return the path of a file that can be written: its folder exists."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        what = "a folder" if path.is_dir() else f"in {str(path.parent)!r}, which is no folder"
        raise ArgumentTypeError(f"wanted a file to write, {text!r} is {what}")
    return path


def made_folder(text: str) -> Path:
    """Return the path of a folder, which is made where it is missing."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentTypeError(f"wanted a folder that can be written: {error}") from None
    return path


def folder(text: str) -> Path:
    """Return the path of a folder that exists."""
    path = Path(text)
    if not path.is_dir():
        raise ArgumentTypeError(f"wanted a folder, {text!r} is {'a file' if path.exists() else 'not there'}")
    return path


def program(text: str) -> str:
    """Return the path or name of a program that can be run."""
    if shutil.which(text) is None:
        raise ArgumentTypeError(f"wanted a program, nothing that can be run is at {text!r}")
    return text


def part(text: str) -> tuple[int, int]:
    """Return the number of a part and the number of parts: (1, 2) for "1/2", the first of two."""
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise ArgumentTypeError(f"wanted a part as 1/2 or 2/2, saw {text!r}")
    return int(number), int(parts)


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return an argparse type for one or more names of `known`, separated by commas."""

    def names(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        unknown = [name for name in found if name not in known]
        if unknown or not found:
            seen = ", ".join(unknown) or "none"
            raise ArgumentTypeError(f"wanted some of {', '.join(known)}, separated by commas; saw {seen}")
        return found

    return names


def reported(main: Callable[[], int]) -> int:
    """Run `main` and return its exit status.

    If it raises an `HcqError`, that is printed on stderr without a traceback, and the status is `REFUSED`: a
    device that cannot be opened is no fault of the tool. Other exceptions pass.
    """
    try:
        return main()
    except HcqError as error:
        sys.stderr.write(f"error: {error}\n")
        return REFUSED

"""The command `hcq`, also `python -m hcq`: a table of subcommands, each the command of another module.

`hcq --help` lists them; `hcq NAME --help` is the help of the module. Without a name: the report of `doctor`.

The modules of `tools` lie in a folder `bundled` of the installed package, which only this command adds to the
path of imports: the wheel installs no package of that general name.

Not here: what the subcommands do; the report (`hcq.__main__`). Next: docs/tools.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hcq.errors import HcqError, UnsupportedError
from hcq.names import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REFUSED: Final = 2
"""The exit status of a command line that cannot be done, as argparse gives it."""


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A subcommand: the function of a module that gets its arguments, and what the help says of it."""

    name: str
    module: str
    line: str
    example: str
    takes: str
    """How long it takes."""
    function: str = "main"


COMMANDS: Final = tuple(
    Subcommand(*row)
    for row in (
        ("doctor", "hcq.__main__", "devices, what is missing and its cure, cache, settings, packages",
         "hcq doctor --json", "1 s"),
        ("devices", "hcq.__main__", "the devices that open, and why the others do not", "hcq devices", "1 s",
         "list_devices"),
        ("bringup", "tools.bringup.command", "test a GPU one step at a time",
         "hcq bringup --device nv-emu --variants none", "30 s; minutes with all variants"),
        ("hardware-run", "tools.hardware_run", "all tests and benchmarks on a GPU, one report; in a checkout",
         "hcq hardware-run --dry", "10 minutes at most"),
        ("bench", "tools.bench.__main__", "benchmarks of queues, drivers, tensors and kernels",
         "hcq bench submit --quick --device cpu", "seconds to minutes a case"),
        ("top", "tools.top", "queues, waits and memory of the processes that run with HCQ_TOP=1",
         "hcq top --once", "until Ctrl-C; at once with --once"),
        ("trace", "tools.trace.__main__", "print, compare and replay what HCQ_CAPTURE=FILE recorded",
         "hcq trace dump FILE", "seconds"),
        ("view", "tools.view.__main__", "one HTML page of recorded files, or of a program that is run",
         "hcq view trace.json capture.jsonl", "seconds; of a program its own time"),
        ("sanitize", "interop.sanitize", "run a program on emulated GPUs with all checks",
         "hcq sanitize --device nv-emu:sm_80 program.py", "many times the program's own"),
        ("counters", "interop.counters", "run a program on emulated GPUs and count what its kernels do",
         "hcq counters --device amd-emu program.py", "many times the program's own"),
        ("llm", "frontend.llm.__main__", "talk with a language model, serve or measure it",
         "hcq llm chat FOLDER", "until you leave it"),
    )
)  # fmt: skip

_SHELLS: Final = {
    "bash": 'complete -o default -W "{names}" hcq',
    "zsh": "#compdef hcq\n_hcq() {{ (( CURRENT == 2 )) && compadd {names} || _files; }}\ncompdef _hcq hcq",
    "fish": "complete -c hcq -n __fish_use_subcommand -f -a '{names}'",
}
_OTHERS: Final = "completion"
_FIRST: Final = ("-h", "--help")
_VERSION: Final = ("-V", "--version")


def prog(module: str) -> str:
    """Return what usage lines call the command of a module: "hcq top", or "python -m tools.top"."""
    started = Path(sys.argv[0])
    if started.name == "hcq" or started.parts[-2:] == ("hcq", "__main__.py"):
        for command in COMMANDS:
            if module in {command.module, command.module.rpartition(".")[0]}:
                return f"hcq {command.name}"
    return f"python -m {module}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit status; `REFUSED` for an unknown one, and for an `HcqError`."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words and words[0] in _VERSION:
        found = import_module("hcq.doctor").installed_version("hcq")
        sys.stdout.write(f"hcq {found or '(not installed: run from a checkout)'}\n")
        return 0
    if words and words[0] in _FIRST:
        sys.stdout.write(_help())
        return 0
    if not words or words[0].startswith("-"):
        words = ["doctor", *words]
    name, *rest = words
    if name == _OTHERS:
        return _completion(rest)
    command = next((one for one in COMMANDS if one.name == name), None)
    if command is None:
        return _refuse(name, [*(one.name for one in COMMANDS), _OTHERS], "hcq --help")
    try:
        return _function(command)(rest)
    except HcqError as error:
        sys.stderr.write(f"error: {error}\n")
        return REFUSED


def _function(command: Subcommand) -> Callable[[Sequence[str]], int]:
    """Return what runs a subcommand. Raises `UnsupportedError` where a module of the checkout is missing."""
    if command.module.startswith("tools."):
        bundled = Path(__file__).with_name("bundled")
        if bundled.is_dir() and str(bundled) not in sys.path:
            sys.path.insert(0, str(bundled))
        top, _, rest = command.module.removesuffix(".__main__").partition(".")
        if find_spec(top) is None or find_spec(f"{top}.{rest.partition('.')[0]}") is None:
            raise UnsupportedError(
                f"`hcq {command.name}` needs the files of a checkout, which this installation lacks\n"
                "hint: clone the repository and run it there after: pip install -e '.[test]'"
            )
    function: Callable[[Sequence[str]], int] = getattr(import_module(command.module), command.function)
    return function


def _help() -> str:
    lines = ["usage: hcq COMMAND [ARGUMENTS], hcq help COMMAND, hcq --version, hcq completion SHELL", ""]
    for one in COMMANDS:
        lines += [f"  {one.name:13s} {one.line}", f"  {'':13s}   {one.example}   ({one.takes})"]
    return "\n".join([*lines, "", "Without a command: the report of doctor.", ""])


def _completion(words: Sequence[str]) -> int:
    shell = words[0] if len(words) == 1 else ""
    if shell in _FIRST:
        sys.stdout.write(
            f'usage: hcq completion {"|".join(_SHELLS)}; for example: eval "$(hcq completion bash)"\n'
        )
        return 0
    if shell not in _SHELLS:
        return _refuse(" ".join(words), list(_SHELLS), "hcq completion bash")
    names = " ".join([*(one.name for one in COMMANDS), _OTHERS])
    sys.stdout.write(_SHELLS[shell].format(names=names) + "\n")
    return 0


def _refuse(seen: str, known: Sequence[str], example: str) -> int:
    near = nearest(seen, known)
    hint = f"did you mean {near!r}?" if near else f"try: {example}"
    sys.stderr.write(f"error: wanted one of {', '.join(known)}; saw {seen!r}\nhint: {hint}\n")
    return REFUSED

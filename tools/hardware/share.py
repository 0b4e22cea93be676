"""A hardware report without what identifies a machine or its user: `python -m tools.hardware.share FILE`.

It replaces host and user names, home folders, the folder of the checkout, addresses of networks (IPv4, IPv6,
MAC, mail), UUIDs, serial numbers and unique numbers of GPUs, and names of other processes. They are found in
each form that a report has: text, hexadecimal bytes of a call, Python's bytes. The replaced text reads
`[host]`, `[uuid]`, and so on. It keeps the GPU, its kernel driver, addresses on the PCI bus, versions, times,
figures and the words of every failure.

    python -m tools.hardware.share report/report.json              writes report/shared.json
    python -m tools.hardware.share --check docs/hardware/*.json    names what still identifies a machine

A secret of another kind is not found: for example a name in an error's text that is neither the host's nor
the user's. Read the file before you send it.

Not here: the report (`tools.hardware_run`), its tables (`tools.hardware.tables`).
"""

from __future__ import annotations

import ast
import getpass
import json
import platform
import re
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.arguments import REFUSED, command
from tools.hardware.stage import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Replace = Callable[[str], str]

_UUID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
_ROCM_UUID: Final = re.compile(r"\bGPU-([0-9a-f]{16})\b", re.IGNORECASE)
_BYTES: Final = re.compile(r"uuid\w*=(b'(?:[^'\\]|\\.)*'|b\"(?:[^\"\\]|\\.)*\")", re.IGNORECASE)
_SERIAL: Final = re.compile(r"\bserial(?: number)?\s*[:=]\s*((?=[\w-]*[1-9])[\w-]+)", re.IGNORECASE)
_UNIQUE: Final = re.compile(r"\b(?:unique_id|hive_id)\\?[\"']?[:=]?\s*(\d*[1-9]\d*)")
_KEYS: Final = re.compile(r"uuid|unique_id|hive_id|serial", re.IGNORECASE)
"""Keys whose values identify a GPU."""
_ADDRESS: Final = re.compile(
    r"(?<![\w.:])(?:(?:\d{1,3}\.){3}\d{1,3}|(?=[0-9a-f]*:[0-9a-f]*:)[0-9a-f:]+(?:\.[\d.]+)?)(?![\w.:])",
    re.IGNORECASE,
)
_PATTERNS: Final = (
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]*\w"), "[mail]"),
    (re.compile(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE), "[address]"),
    (re.compile(r"(?<=\bLinux )(?!version |\[)[\w.-]+(?= \d+\.\d)"), "[host]"),
    (re.compile(r"(?<=/home/)[^/\s\"'\[]+"), "[user]"),
    (re.compile(r"(\bpid=\d+, name=)(?!python|\[)[^,]+"), r"\1[process]"),
    (re.compile(r"(\| +\d+ +\S+ +\S+ +\d+ +[CGM+]+ +)(?!\[)\S.*?( +\d+MiB \|)"), r"\1[process]\2"),
)
"""(pattern, replacement), applied to every string in this order."""
_VERSIONS: Final = ("packages",)
"""Stages whose facts are versions. A version may have four numbers, as an IPv4 address has."""
_LEAST: Final = 4
"""Names of hosts and users with fewer characters are not replaced: "vm" is a common word."""


def shared(report: Any, *, names: Mapping[str, str] | None = None) -> Any:
    """Return a copy of a report without what identifies its machine.

    `names` maps whole words to their replacements; without it they are the names of this machine and of this
    process. Raises `ValueError` if a pattern still matches in the copy, which is a bug of this module.
    """
    known = {**identifiers(report), **(_here() if names is None else names)}
    longest = sorted(known, key=len, reverse=True)
    words = re.compile(
        "|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in longest) or r"(?!)", re.IGNORECASE
    )
    inside = {word for word in longest if known[word] == "[uuid]"}
    anywhere = re.compile(
        "|".join(map(re.escape, sorted(inside, key=len, reverse=True))) or r"(?!)", re.IGNORECASE
    )
    lower = {word.lower(): stands for word, stands in known.items()}

    def replace(text: str) -> str:
        text = anywhere.sub("[uuid]", text)
        return words.sub(lambda found: lower[found[0].lower()], text)

    cleaned = _each(report, replace)
    if left := remaining(cleaned):
        raise ValueError(f"wanted a report that identifies no machine, saw {'; '.join(left[:5])}")
    return cleaned


def write(report: Any, path: Path) -> None:
    """Write the shared form of a report; the file is whole or not there. Raises as `shared` does."""
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(json.dumps(shared(json.loads(json.dumps(report, default=str))), indent=1) + "\n")
    beside.replace(path)


def identifiers(report: Any) -> dict[str, str]:
    """Return a mapping from each text that identifies the report's GPUs or host to its replacement."""
    found: dict[str, str] = {}
    for key, text in _texts(report):
        raw = [bytes.fromhex(uuid.replace("-", "")) for uuid in _UUID.findall(text)]
        raw += [ast.literal_eval(literal) for literal in _BYTES.findall(text)]
        if _KEYS.search(key) and re.fullmatch(r"[0-9a-f]{32}", text):
            raw.append(bytes.fromhex(text))
        for data in raw:
            digits = data.hex()
            dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
            forms = (digits, dashed, repr(data)[2:-1]) if any(data) else ()
            found |= dict.fromkeys(forms, "[uuid]")
        found |= dict.fromkeys(_ROCM_UUID.findall(text), "[uuid]")
        numbers = [*_SERIAL.findall(text), *_UNIQUE.findall(text)]
        numbers += [text] if _KEYS.search(key) and text.isdecimal() else []
        found |= {
            number: "[serial]" for number in numbers if number.strip("0N/A") and any(map(str.isdigit, number))
        }
        host = text.split(" ")[1:2] if key == "uname" else []
        found |= {name: "[host]" for name in host if len(name) >= _LEAST and name != "[host]"}
    return found


def remaining(report: Any) -> list[str]:
    """Return "path: text" for each string of a report that a pattern finds to identify its machine."""
    found = []
    for path, text in _paths(report):
        if (rest := _fixed(text, path)) != text:
            at = next(at for at, (a, b) in enumerate(zip(f"{rest}\0", f"{text}\1", strict=False)) if a != b)
            found.append(f"{path}: {text[max(0, at - 20) : at + 40]!r}")
        found += [
            f"{path}: {one!r}"
            for pattern in (_UUID, _ROCM_UUID, _SERIAL, _UNIQUE)
            for one in pattern.findall(text)
        ]
    return found


def _fixed(text: str, path: str) -> str:
    """Return a text with every pattern replaced; addresses stay in the stages of `_VERSIONS`."""
    for pattern, stands in _PATTERNS:
        text = pattern.sub(stands, text)
    return text if any(f"/{name}/" in path for name in _VERSIONS) else _ADDRESS.sub(_address, text)


def _address(found: re.Match[str]) -> str:
    """Return the replacement of a text that may be an IP address; another text is returned unchanged.

    Times and addresses on the PCI bus are no IP addresses. The address 0.0.0.0, or ::, stays.
    """
    try:
        address = ip_address(found[0])
    except ValueError:
        return found[0]
    return found[0] if address.is_unspecified else "[address]"


def _each(data: Any, replace: Replace, path: str = "") -> Any:
    """Return a copy of JSON data with every string, and every identifying number, replaced."""
    if isinstance(data, dict):
        return {_fixed(replace(key), path): _named(key, value, replace, path) for key, value in data.items()}
    if isinstance(data, list):
        return [_each(value, replace, f"{path}/{_label(value, at)}") for at, value in enumerate(data)]
    return _fixed(replace(data), path) if isinstance(data, str) else data


def _named(key: str, value: Any, replace: Replace, path: str) -> Any:
    if _KEYS.search(key) and isinstance(value, int) and not isinstance(value, bool) and value:
        return "[serial]"
    return _each(value, replace, f"{path}/{key}")


def _label(value: Any, at: int) -> str:
    """Return the label of a list's member in a path: its "name" if it has one, else its index."""
    return str(value["name"]) if isinstance(value, dict) and "name" in value else str(at)


def _paths(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each string of JSON data, keys included."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield f"{path}/", key
            yield from _paths(value, f"{path}/{key}")
    elif isinstance(data, list):
        for at, value in enumerate(data):
            yield from _paths(value, f"{path}/{_label(value, at)}")
    elif isinstance(data, str):
        yield path, data


def _texts(data: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key, text) of each string and each whole number of JSON data."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield name, name
            yield from _texts(value, name)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value, key)
    elif isinstance(data, str) or (isinstance(data, int) and not isinstance(data, bool)):
        yield key, str(data)


def _here() -> dict[str, str]:
    """Return the names of this machine and user, and the folders of user and checkout, with replacements."""
    home, node = str(Path.home()), platform.node()
    hosts = {node, node.split(".", 1)[0]}
    names = {name: "[host]" for name in hosts if len(name) >= _LEAST and name != "localhost"}
    user = getpass.getuser()
    names |= {user: "[user]"} if len(user) >= _LEAST and user != "root" else {}
    names |= {home: "~"} if home not in {"/", "/root"} else {}
    return {**names, str(REPOSITORY): "."}


def main(argv: Sequence[str] | None = None) -> int:
    """Write shared.json beside each report; with `--check` name what identifies a machine, and return 1 then.

    Return `REFUSED` at the first file that is no JSON.
    """
    parser = command("tools.hardware.share", __doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="reports of tools.hardware_run")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail where a file identifies a machine"
    )
    options = parser.parse_args(argv)
    told = 0
    for name in options.files:
        path = Path(name)
        try:
            report = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            sys.stderr.write(f"error: wanted the report.json of a hardware run, saw {path}: {error}\n")
            return REFUSED
        if options.check:
            left = remaining(report)
            told += len(left)
            sys.stderr.write("".join(f"{path}{line}\n" for line in left))
            continue
        out = path.with_name("shared.json")
        write(report, out)
        sys.stderr.write(f"read it before you send it: {out}\n")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())

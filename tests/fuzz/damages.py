"""Damages of a cache folder: the table from which `tests.fuzz.caches` chooses.

A damage changes files below one folder. Most damages change the file of one entry. Some give a folder to
another user and store valid but wrong code in it. A damage declares whether a lookup must repair the entry.

Not here: applying and checking them (`caches`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcq.store import MOST_BYTES, sealed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

STRANGER = 54321
"""The id of another user."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One valid entry of the cache."""

    kind: str
    key: str
    payload: bytes

    def path(self, root: Path) -> Path:
        """Return the entry's file in a cache."""
        return root / self.kind / self.key[:2] / self.key[2:]


@dataclass(frozen=True, slots=True)
class Scene:
    """The cache at `root` with its entries, of which `hurt` is damaged."""

    root: Path
    entries: Sequence[Entry]
    hurt: Entry
    rng: random.Random

    @property
    def file(self) -> Path:
        """The file of the damaged entry."""
        return self.hurt.path(self.root)

    @property
    def folders(self) -> list[Path]:
        """The folders of the cache, of the entry's kind, and of the entry."""
        return [self.root, self.root / self.hurt.kind, self.file.parent]

    def other(self) -> Entry:
        """Return another entry, of the same kind if there is one."""
        others = [entry for entry in self.entries if entry is not self.hurt]
        alike = [entry for entry in others if entry.kind == self.hurt.kind]
        return self.rng.choice(alike or others)

    def away(self) -> Path:
        """Return a new path outside the cache."""
        return self.root.parent / f"away-{self.rng.randrange(1 << 30)}"

    def forge(self) -> bytes:
        """Return a valid file for the entry's key with the code of another, as an attacker writes it."""
        return sealed(self.hurt.kind, self.hurt.key, self.other().payload)

    def valid(self, entry: Entry | None = None) -> bytes:
        """Return the valid content of an entry's file."""
        one = entry or self.hurt
        return sealed(one.kind, one.key, one.payload)

    def replace(self, data: bytes, mode: int = 0o600, *, of: Entry | None = None) -> None:
        """Replace an entry's file without opening the old one, which may be a FIFO."""
        file = (of or self.hurt).path(self.root)
        file.unlink(missing_ok=True)
        file.write_bytes(data)
        file.chmod(mode)


@dataclass(frozen=True, slots=True)
class Damage:
    """One kind of damage; `mended` says whether one lookup must repair the entry."""

    name: str
    do: Callable[[Scene], None]
    mended: bool = True


def _flip(scene: Scene) -> None:
    data = bytearray(scene.valid())
    for _ in range(scene.rng.choice((1, 1, 1, 2, 40))):
        data[scene.rng.randrange(len(data))] ^= 1 << scene.rng.randrange(8)
    scene.replace(bytes(data))


def _cut(scene: Scene) -> None:
    data = scene.valid()
    scene.replace(
        data[: scene.rng.choice((0, 1, 16, 31, 32, 33, scene.rng.randrange(len(data)), len(data) - 1))]
    )


def _extend(scene: Scene) -> None:
    scene.replace(scene.valid() + scene.rng.randbytes(scene.rng.choice((1, 100, 4096))))


def _zero(scene: Scene) -> None:
    data = scene.valid()
    at = scene.rng.randrange(len(data))
    scene.replace(data[:at] + bytes(len(data) - at))


def _random(scene: Scene) -> None:
    scene.replace(scene.rng.randbytes(scene.rng.choice((1, 32, 100, 5000))))


def _swap(scene: Scene) -> None:
    other = scene.other()
    scene.replace(scene.valid(other))
    scene.replace(scene.valid(), of=other)


def _copy(scene: Scene) -> None:
    scene.replace(scene.valid(scene.rng.choice([one for one in scene.entries if one is not scene.hurt])))


def _seal_of_another(scene: Scene) -> None:
    """Store a payload whose digest is of another key, kind or neither."""
    other = scene.other()
    wrong = [(other.kind, other.key), (scene.hurt.kind, ""), ("", scene.hurt.key)]
    scene.replace(sealed(*scene.rng.choice(wrong), other.payload))


def _sealed_invalid(scene: Scene) -> None:
    """Store an invalid payload with a valid digest."""
    payload, rng = scene.hurt.payload, scene.rng
    head, newline, code = payload.partition(b"\n")
    broken = [
        b"",
        b"\n",
        rng.randbytes(200),
        payload[: rng.randrange(len(payload) // 2)],
        b"\x7fELF" + bytes(100),
    ]
    if head.startswith(b"{"):
        facts = json.loads(head)
        name = rng.choice(sorted(facts))
        value: object = rng.choice((None, -1, "x", [], {}, 1.5, [[]], True))
        broken += [
            json.dumps({key: fact for key, fact in facts.items() if key != name}).encode() + newline + code,
            json.dumps({**facts, name: value}).encode() + newline + code if value != "x" else head + newline,
            json.dumps({**facts, "new": value}).encode() + newline + code,
            b"[" * rng.randrange(1, 5000) + payload,
            head + newline + code[: rng.randrange(len(code))],
        ]
    scene.replace(sealed(scene.hurt.kind, scene.hurt.key, rng.choice(broken)))


def _huge(scene: Scene) -> None:
    scene.replace(scene.valid())
    os.truncate(scene.file, MOST_BYTES + scene.rng.choice((1, 1 << 20, 8 << 30)))


def _missing(scene: Scene) -> None:
    scene.file.unlink()


def _fifo(scene: Scene) -> None:
    scene.file.unlink()
    os.mkfifo(scene.file, 0o600)


def _socket(scene: Scene) -> None:
    scene.file.unlink()
    with contextlib.chdir(scene.file.parent), socket.socket(socket.AF_UNIX) as server:  # names are short
        server.bind(scene.file.name)


def _folder(scene: Scene) -> None:
    scene.file.unlink()
    scene.file.mkdir(mode=0o700)
    if scene.rng.random() < 0.5:
        (scene.file / "something").write_bytes(b"x")


def _link(scene: Scene) -> None:
    """Replace the file by a link: to another entry, to nothing, to itself, to /dev/zero, to a forged file."""
    aside = scene.away()
    aside.write_bytes(scene.forge())
    to = (str(scene.other().path(scene.root)), "nothing", scene.file.name, "/dev/zero", str(aside))
    scene.file.unlink()
    scene.file.symlink_to(scene.rng.choice(to))


def _file_of_others(scene: Scene) -> None:
    """Replace the file by valid but wrong code in a file that another user owns or can write."""
    aside = scene.away()
    aside.write_bytes(scene.forge())
    if os.geteuid() == 0 and scene.rng.random() < 0.5:
        os.chown(aside, STRANGER, STRANGER)
    else:
        aside.chmod(scene.rng.choice((0o666, 0o620, 0o602, 0o777)))
    scene.file.unlink(missing_ok=True)
    aside.replace(scene.file)


def _folder_of_others(scene: Scene) -> None:
    """Store valid but wrong code in a folder that another user owns or can write."""
    _give(scene.rng.choice(scene.folders), scene.rng)
    scene.replace(scene.forge())


def _folder_elsewhere(scene: Scene) -> None:
    """Replace a folder by a link to a folder of another user, with valid but wrong code."""
    folder, away = scene.rng.choice(scene.folders), scene.away()
    folder.rename(away)
    _give(away, scene.rng)
    folder.symlink_to(away)
    scene.replace(scene.forge())


def _parent_of_others(scene: Scene) -> None:
    """Give the parent folder of the cache to another user, and store valid but wrong code."""
    _give(scene.root.parent, scene.rng)
    scene.replace(scene.forge())


def _give(folder: Path, rng: random.Random) -> None:
    if os.geteuid() == 0 and rng.random() < 0.5:
        os.chown(folder, STRANGER, STRANGER)
    else:
        folder.chmod(rng.choice((0o777, 0o707, 0o772)))


def _folder_is_file(scene: Scene) -> None:
    folder = scene.rng.choice(scene.folders)
    folder.rename(scene.away())
    if scene.rng.random() < 0.5:
        folder.write_bytes(b"no folder")
    else:
        os.mkfifo(folder, 0o600)


def _folder_is_closed(scene: Scene) -> None:
    """Remove this user's rights to a folder; rights of others stay, and root ignores them."""
    folder = scene.rng.choice(scene.folders)
    folder.chmod(folder.stat().st_mode & 0o077 | scene.rng.choice((0, 0o500, 0o300)))


def _folder_is_gone(scene: Scene) -> None:
    scene.rng.choice(scene.folders).rename(scene.away())


def _left_over(scene: Scene) -> None:
    """Leave the temporary files of a killed writer, under all names that this process can choose."""
    for number in range(5):
        (scene.file.parent / f".new-{os.getpid()}-{number}").write_bytes(scene.rng.randbytes(20))


DAMAGES = {
    damage.name: damage
    for damage in (
        Damage("bits flipped", _flip),
        Damage("cut short", _cut),
        Damage("extended", _extend),
        Damage("zeros from an offset on", _zero),
        Damage("random bytes", _random),
        Damage("swapped with another", _swap),
        Damage("copy of another", _copy),
        Damage("sealed for another key", _seal_of_another),
        Damage("sealed invalid payload", _sealed_invalid),
        Damage("oversized", _huge),
        Damage("missing", _missing),
        Damage("a FIFO", _fifo),
        Damage("a socket", _socket),
        Damage("a folder", _folder, mended=False),
        Damage("a link", _link),
        Damage("a file of others", _file_of_others),
        Damage("a folder of others", _folder_of_others, mended=False),
        Damage("a folder elsewhere", _folder_elsewhere, mended=False),
        Damage("a parent folder of others", _parent_of_others, mended=False),
        Damage("a file for a folder", _folder_is_file, mended=False),
        Damage("a closed folder", _folder_is_closed, mended=False),
        Damage("no folder", _folder_is_gone),
        Damage("left over by a killed writer", _left_over),
    )
}
"""By name. Seeds depend on the set of names, not on their order."""

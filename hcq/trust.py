"""Which files and folders another user could change: the rules by which cached native code is trusted.

Native code is as trustworthy as the folder that it comes from. A path is refused if it is owned by neither
this user nor root, writable by group or others, or reached through such a folder or link.

Not here: the stored files, and the warning after a refusal (`store`). Next: `store`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_LINKS = 40
"""The most symbolic links that a path may contain, as in Linux."""


class RefusedError(Exception):
    """A folder or file that another user could change; the text says why. `Store` catches it."""


class Status(Protocol):
    """The part of `os.stat_result` that decides whether a file is trusted."""

    @property
    def st_mode(self) -> int:
        """Type and permissions."""

    @property
    def st_uid(self) -> int:
        """Owner."""

    @property
    def st_gid(self) -> int:
        """Group."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The rules of trust: the user of this process, and the function that reads the status of a path.

    `status_of` does not follow links, as `os.lstat`.
    """

    uid: int = field(default_factory=os.geteuid)
    status_of: Callable[[str], Status] = os.lstat

    def check(self, path: str, found: Status) -> None:
        """Raise `RefusedError` for a file or folder of the store that another user owns or may write."""
        if found.st_uid not in {self.uid, 0}:
            raise RefusedError(f"{path} belongs to user {found.st_uid}, not to user {self.uid} or root")
        if found.st_mode & _OTHERS:
            raise RefusedError(
                f"{path} has mode {stat.S_IMODE(found.st_mode):04o}: others can write to it; "
                f"chmod go-w makes it yours alone"
            )

    def real_path(self, folder: str) -> str:
        """Return the real path of a folder. Raises `RefusedError` if another user could redirect it.

        Raises `OSError` when a part of the path cannot be read.

        Parent folders may be writable by others if they are sticky, as /tmp is, or by the user's own group.
        Parts that do not exist yet are trusted, as this process makes them.
        """
        status_of, uid = self.status_of, self.uid
        roots = {uid, 0, status_of("/").st_uid}  # in a user namespace root may have another number
        at, links = "", 0
        names = [name for name in reversed(os.path.abspath(folder).split("/")) if name]  # noqa: PTH100 - links are followed below
        while names:
            name = names.pop()
            if name == "..":
                at = at.rpartition("/")[0]
                continue
            path = f"{at}/{name}"
            try:
                found = status_of(path)
            except FileNotFoundError:
                return "/".join([path, *reversed(names)])
            if found.st_uid not in roots:
                raise RefusedError(f"{path} belongs to user {found.st_uid}, not to user {uid} or root")
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _LINKS:
                    raise RefusedError(f"{folder} leads through more than {_LINKS} symbolic links")
                target = os.readlink(path)  # noqa: PTH115 - plain strings: this is called often
                at = "" if target.startswith("/") else at
                names += [part for part in reversed(target.split("/")) if part not in {"", "."}]
                continue
            at = path
            if names and found.st_mode & _OTHERS and not found.st_mode & stat.S_ISVTX:
                own_group = found.st_gid == uid and not found.st_mode & stat.S_IWOTH
                if not own_group:
                    mode = stat.S_IMODE(found.st_mode)
                    raise RefusedError(f"{at} has mode {mode:04o}: others can replace what is in it")
        return at or "/"

"""Compiled code on disk: entries bound to their key, in folders that no other user can write.

A store is a folder with one folder for each kind and one file for each entry. An entry is a digest followed
by the payload. The digest covers kind, key and payload, and the key covers everything that determines the
payload (`key_of`). An entry that was renamed, truncated or altered therefore counts as absent, and an
outdated one is never found.

A folder or file that another user could change (`hcq.trust`) is refused with one `CacheWarning`, and the
program works without it. Folders are made with mode 0700 and files with 0600, independent of the umask.
Inside a store links are not followed, and only regular files of at most `MOST_BYTES` are read.

Any number of threads and processes may use a store at the same time: a file is written under a temporary
name, then renamed.

Not here: the keys (`compiler.cache` for kernels), what the payload is, who may change it (`trust`). Next: the
users `compiler.compile`, `drivers.cpu.image`, `emulator.ir.jit`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

from hcq.config import config
from hcq.errors import CacheWarning
from hcq.trust import RefusedError, Trust

MOST_BYTES = 64 << 20
"""The largest file that is read or written."""
_DIGEST_BYTES = 32
_PERSONALISATION = b"hcq entry v2"
_TEMPORARY = ".new-"
_PART, _OWN = re.compile("[0-9a-f]{2}"), re.compile(r"[0-9a-f]{46}|\.new-[0-9-]+")
"""Names of an entry's folder and file: 2 and 46 digits of its key, or a temporary name."""
_SHARDS, _SAMPLED_SHARDS = 256, 4
"""Folders that share the files of a kind, and how many of them are sampled to estimate its size."""
_MIN_SAMPLED_FILES = 256
"""Fewest files in the sampled folders for an estimate; with fewer, all are counted."""
_ABANDONED_S = 3600
"""Age in seconds from which a temporary file counts as left by a killed process."""
_USED_S = 86400
"""Seconds after which reading an entry renews its modification time."""


def key_of(*parts: str | bytes) -> str:
    """Return the key of an entry that is determined by `parts`: 48 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=24)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


class Store:
    """Compiled code below one folder; a `root` of None keeps nothing. Thread-safe.

    `limit` is the most bytes to keep; see `trim`. A `kind` is the name of a folder, a `key` a `key_of`.
    """

    def __init__(self, root: Path | None, *, trust: Trust | None = None, limit: int = 2 << 30) -> None:
        self._root = root
        self._trust = trust or Trust()
        self._limit = limit
        self._warned: set[str] = set()
        self._written = 0
        self._lock = threading.Lock()

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the payload of a key; None when there is no valid, trusted entry. Raises nothing."""
        try:
            folder = self._folder(kind, key, make=False)
            data = None if folder is None else self._read(f"{folder}/{key[2:]}")
        except FileNotFoundError:
            return None
        except RefusedError as error:
            self._refuse(error)
            return None
        except OSError as error:
            _debug(f"cannot read an entry of {self._root}: {error}; compiling instead")
            return None
        if data is None:
            return None
        payload = data[_DIGEST_BYTES:]
        if _digest(kind, key, payload) != data[:_DIGEST_BYTES]:
            _debug(f"{self._path(kind, key)} is damaged; compiling again")
            return None
        return payload

    def put(self, kind: str, key: str, payload: bytes) -> None:
        """Store a payload, replacing an older entry.

        When the folder cannot be written nothing is stored, and DEBUG=1 prints why. Raises nothing.
        """
        if len(payload) + _DIGEST_BYTES > MOST_BYTES:
            _debug(f"{len(payload)} bytes for {self._path(kind, key)} are more than an entry's {MOST_BYTES}")
            return
        try:
            folder = self._folder(kind, key, make=True)
            if folder is None:
                return
            self._write(Path(folder), key[2:], sealed(kind, key, payload))
            self._count(len(payload), key)
        except RefusedError as error:
            self._refuse(error)
        except OSError as error:
            _debug(f"cannot keep compiled code below {self._root}: {error}")

    def files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield (path, status) of the store's own files: entries, and files that are being written.

        Other files below the folder are left out, and links are not followed. Raises `OSError` for a folder
        that cannot be read.
        """
        for kind in _folders(self._root) if self._root is not None else ():
            for part in _folders(kind):
                if _PART.fullmatch(part.name):
                    yield from self._files_of(part)

    @staticmethod
    def _files_of(part: Path) -> Iterator[tuple[Path, os.stat_result]]:
        for entry in _listed(part):
            found = _present(entry) if _OWN.fullmatch(entry.name) else None
            if found is not None and stat.S_ISREG(found.st_mode):
                yield part / entry.name, found

    def trim(self) -> None:
        """Remove abandoned temporary files and, above the limit, the least recently used entries.

        Entries are removed until three quarters of the limit remain. Raises `OSError` if a file cannot be
        removed.
        """
        now, total, kept = time.time(), 0, []
        for path, found in self.files():
            size = _kept_bytes(path, found, now)
            if size:
                total += size
                kept.append((found.st_mtime_ns, path, size))
        if total <= self._limit:
            return
        for _, path, size in sorted(kept):
            if total <= self._limit * 3 // 4:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _path(self, kind: str, key: str) -> Path:
        return (self._root or Path()) / kind / key[:2] / key[2:]

    def _folder(self, kind: str, key: str, *, make: bool) -> str | None:
        """Return the trusted folder of an entry; None when nothing is kept.

        Raises `FileNotFoundError` when it is absent and `make` is false, `RefusedError` when it is not
        trusted, and other `OSError`s.
        """
        if self._root is None:
            return None
        at = self._trust.real_path(str(self._root))
        for name in ("", kind, key[:2]):
            at = f"{at}/{name}" if name else at
            try:
                found = self._trust.status_of(at)
            except FileNotFoundError:
                if not make:
                    raise
                _make_folders(Path(at))
                found = self._trust.status_of(at)
            if not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(f"{at} is no folder")
            self._trust.check(at, found)
        return at

    def _read(self, path: str) -> bytes | None:
        """Return the bytes of a regular file; None for another file, or one of an impossible size.

        Raises `RefusedError` when it is not trusted, `OSError` when it cannot be read or is a link.
        """
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(file, "rb", buffering=0) as stream:  # noqa: PTH123 - opened above with flags of its own
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                _debug(f"{path} is no regular file; compiling instead")
                return None
            self._trust.check(path, found)
            if not _DIGEST_BYTES <= found.st_size <= MOST_BYTES:
                _debug(f"{path} is damaged: it has {found.st_size} bytes; compiling again")
                return None
            if time.time() - found.st_mtime > _USED_S:
                _renew(file, path)
            return stream.read(found.st_size)

    def _write(self, folder: Path, name: str, data: bytes) -> None:
        part = folder / f"{_TEMPORARY}{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(part, flags, 0o600)
        try:
            with open(file, "wb") as stream:  # noqa: PTH123 - opened above with flags of its own
                os.fchmod(file, 0o600)
                stream.write(data)
            part.replace(folder / name)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _count(self, size: int, key: str) -> None:
        """Trim the store if it is near its limit; call it after each entry of `size` bytes.

        The size is estimated after this process has written 1/64 of the limit, and for one key in 256, so
        that processes that write little trim as well. A trim reads the status of every file. An estimate
        reads a few of the 256 parts: keys are digests, so all parts have about the same size.
        """
        with self._lock:
            self._written += size
            if self._written < self._limit // 64 and not key.endswith("00"):
                return
            self._written = 0
        if self._estimated_bytes(int(key[:2], 16)) > self._limit * 7 // 8:
            self.trim()

    def _estimated_bytes(self, first: int) -> int:
        """Return an estimate of the bytes of the store, from every 64th part, beginning with part `first`.

        If these have few files, all parts are read. Abandoned temporary files among them are removed.
        """
        step = _SHARDS // _SAMPLED_SHARDS
        parts = [f"{number % _SHARDS:02x}" for number in range(first, first + _SHARDS, step)]
        kinds = [] if self._root is None else list(_folders(self._root))
        found = [one for kind in kinds for part in parts for one in self._files_of(kind / part)]
        share = _SAMPLED_SHARDS
        if len(found) < _MIN_SAMPLED_FILES:
            found, share = list(self.files()), _SHARDS
        now = time.time()
        return sum(_kept_bytes(path, status, now) for path, status in found) * _SHARDS // share

    def _refuse(self, error: RefusedError) -> None:
        text = f"compiled code is not kept: {error}\nhint: HCQ_CACHE may name another folder"
        with self._lock:
            if text in self._warned:
                return
            self._warned.add(text)
        warnings.warn(text, CacheWarning, stacklevel=4)


def _kept_bytes(path: Path, found: os.stat_result, now: float) -> int:
    """Return the bytes of an entry; 0 of a temporary file, which is removed if it is abandoned."""
    if not path.name.startswith(_TEMPORARY):
        return found.st_size
    if now - found.st_mtime > _ABANDONED_S:
        path.unlink(missing_ok=True)
    return 0


def store(root: Path | None, limit: int | None = None) -> Store:
    """Return the store of this process for a folder. Sharing it makes warnings appear once.

    `limit` is its most bytes; None: the setting.
    """
    return _store(root, config().cache_bytes if limit is None else limit)


@functools.lru_cache(maxsize=64)
def _store(root: Path | None, limit: int) -> Store:
    return Store(root, limit=limit)


def sealed(kind: str, key: str, payload: bytes) -> bytes:
    """Return the contents of an entry's file: the digest, then the payload."""
    return _digest(kind, key, payload) + payload


def _digest(kind: str, key: str, payload: bytes) -> bytes:
    digest = hashlib.blake2b(f"{kind}\0{key}\0".encode(), digest_size=_DIGEST_BYTES, person=_PERSONALISATION)
    digest.update(payload)
    return digest.digest()


def _make_folders(folder: Path) -> None:
    """Make a folder and its missing parents, each with mode 0700."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue  # another process was first
        path.chmod(0o700)  # the umask may have cleared bits of the owner


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder ordered by name; none when another process has removed it."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=attrgetter("name"))  # faster than paths, for 100,000 files
    except (FileNotFoundError, NotADirectoryError):
        return []


def _present(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the status of an entry, not following links; None when another process has removed it."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _folders(folder: Path) -> Iterator[Path]:
    for entry in _listed(folder):
        found = _present(entry)
        if found is not None and stat.S_ISDIR(found.st_mode):
            yield folder / entry.name


def _renew(file: int, path: str) -> None:
    """Set the modification time of an open entry to now."""
    try:
        os.utime(file)
    except OSError as error:  # a read-only file system, or a file of root: the entry is used anyway
        _debug(f"cannot renew the time of {path}: {error}")


def _debug(text: str) -> None:
    if config().debug:
        print(f"cache: {text}", file=sys.stderr)  # noqa: T201 - DEBUG output goes to stderr

"""The store of compiled code: what it keeps, what it refuses, and how its files are made."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import warnings
from typing import TYPE_CHECKING, NamedTuple

import pytest

from hcq.errors import CacheWarning
from hcq.store import MOST_BYTES, Store, key_of
from hcq.trust import Status, Trust
from tests.together import together

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = key_of("a kernel")
OTHER = key_of("another kernel")
STRANGER = 4242


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def entry(root: Path, key: str = KEY, kind: str = "kernels") -> Path:
    return root / kind / key[:2] / key[2:]


class Seen(NamedTuple):
    """A file status that a test chooses."""

    st_mode: int
    st_uid: int
    st_gid: int


def owned_by_a_stranger(*paths: Path) -> Trust:
    def status_of(path: str) -> Status:
        found = os.lstat(path)
        return Seen(found.st_mode, STRANGER, STRANGER) if path in map(str, paths) else found

    return Trust(status_of=status_of)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_stored_entries_are_returned_unchanged(root: Path):
    Store(root).put("kernels", KEY, b"code")
    store = Store(root)
    assert store.get("kernels", KEY) == b"code"
    assert store.get("kernels", OTHER) is None
    assert store.get("emu", KEY) is None


def test_without_a_folder_nothing_is_stored():
    store = Store(None)
    store.put("kernels", KEY, b"code")
    assert store.get("kernels", KEY) is None


def test_keys_distinguish_part_boundaries():
    parts = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("a\0b", "c"), ("a", "b\0c")]
    assert len({key_of(*each) for each in parts}) == len(parts)


def test_an_entry_under_another_key_or_kind_is_absent(root: Path):
    store = Store(root)
    store.put("kernels", KEY, b"code")
    store.put("kernels", OTHER, b"other code")
    store.put("emu", KEY, b"object")
    data = entry(root).read_bytes()
    entry(root, OTHER).write_bytes(data)
    entry(root, KEY, "emu").write_bytes(data)
    assert store.get("kernels", OTHER) is None
    assert store.get("emu", KEY) is None
    assert store.get("kernels", KEY) == b"code"


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(root: Path, umask: int, usual_umask: None):
    os.umask(umask)
    Store(root / "below").put("kernels", KEY, b"code")
    os.umask(0o022)
    made = [root, root / "below", root / "below" / "kernels", entry(root / "below").parent]
    assert [mode_of(path) for path in made] == [0o700] * 4
    assert mode_of(entry(root / "below")) == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
@pytest.mark.parametrize("which", ["root", "kind", "part"])
def test_a_folder_that_others_may_write_is_refused_once(root: Path, mode: int, which: str):
    Store(root).put("kernels", KEY, b"code")
    folder = {"root": root, "kind": root / "kernels", "part": entry(root).parent}[which]
    folder.chmod(mode)
    store = Store(root)
    with pytest.warns(CacheWarning, match=f"mode {mode:04o}"):
        assert store.get("kernels", KEY) is None
    store.put("kernels", KEY, b"new code")
    assert store.get("kernels", KEY) is None
    folder.chmod(0o700)
    assert Store(root).get("kernels", KEY) == b"code", "nothing was written there"


@pytest.mark.parametrize("which", ["above", "root", "kind", "part"])
def test_a_folder_of_another_user_is_refused(root: Path, which: str):
    Store(root).put("kernels", KEY, b"code")
    folders = {"above": root.parent, "root": root, "kind": root / "kernels", "part": entry(root).parent}
    store = Store(root, trust=owned_by_a_stranger(folders[which]))
    with pytest.warns(CacheWarning, match=f"belongs to user {STRANGER}"):
        assert store.get("kernels", KEY) is None
    store.put("kernels", KEY, b"new code")
    assert Store(root).get("kernels", KEY) == b"code"


def test_a_file_of_another_user_is_refused(root: Path):
    Store(root).put("kernels", KEY, b"code")
    trust = Trust()
    if os.geteuid() == 0:
        os.chown(entry(root), STRANGER, STRANGER)
    else:  # who may not give a file away is another user to it
        other = os.geteuid() + 1
        trust = Trust(uid=other, status_of=lambda path: Seen(os.lstat(path).st_mode, other, other))
    with pytest.warns(CacheWarning, match=f"{entry(root)} belongs to user"):
        assert Store(root, trust=trust).get("kernels", KEY) is None


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_may_write_is_refused_and_replaced(root: Path, mode: int):
    Store(root).put("kernels", KEY, b"code")
    entry(root).chmod(mode)
    with pytest.warns(CacheWarning, match=f"mode {mode:04o}"):
        assert Store(root).get("kernels", KEY) is None
    Store(root).put("kernels", KEY, b"code")
    assert mode_of(entry(root)) == 0o600
    assert Store(root).get("kernels", KEY) == b"code"


def test_a_parent_folder_may_be_writable_only_if_it_is_sticky(root: Path):
    root.mkdir(mode=0o700)
    root.parent.chmod(0o777)
    with pytest.warns(CacheWarning, match="mode 0777"):
        Store(root).put("kernels", KEY, b"code")
    root.parent.chmod(0o1777)
    Store(root).put("kernels", KEY, b"code")
    assert Store(root).get("kernels", KEY) == b"code"


def test_a_parent_folder_that_becomes_writable_is_refused_from_then_on(root: Path):
    store = Store(root)
    store.put("kernels", KEY, b"code")
    assert store.get("kernels", KEY) == b"code"
    root.parent.chmod(0o777)
    with pytest.warns(CacheWarning, match="mode 0777"):
        assert store.get("kernels", KEY) is None


def test_a_parent_folder_may_be_writable_by_the_users_own_group(root: Path):
    uid = os.geteuid() or 1000

    def group(gid: int) -> Trust:
        def status_of(path: str) -> Status:
            mode = 0o770 if path == str(root.parent) else 0o700
            return Seen(stat.S_IFDIR | mode, uid if path.startswith(str(root.parent)) else 0, gid)

        return Trust(uid=uid, status_of=status_of)

    assert group(uid).real_path(str(root)) == str(root)
    with pytest.warns(CacheWarning, match="mode 0770"):
        assert Store(root, trust=group(uid + 1)).get("kernels", KEY) is None


def test_a_link_to_a_trusted_folder_is_followed(root: Path, tmp_path: Path):
    Store(root).put("kernels", KEY, b"code")
    (tmp_path / "link").symlink_to(root)
    assert Store(tmp_path / "link").get("kernels", KEY) == b"code"


def test_a_link_into_a_folder_that_others_may_write_is_refused(root: Path, tmp_path: Path):
    Store(root).put("kernels", KEY, b"code")
    (tmp_path / "link").symlink_to("cache")
    root.chmod(0o777)
    with pytest.warns(CacheWarning, match="mode 0777"):
        assert Store(tmp_path / "link").get("kernels", KEY) is None


def test_a_link_of_another_user_is_refused(root: Path, tmp_path: Path):
    link = tmp_path / "link"
    Store(root).put("kernels", KEY, b"code")
    link.symlink_to(root)
    with pytest.warns(CacheWarning, match=f"belongs to user {STRANGER}"):
        assert Store(link, trust=owned_by_a_stranger(link)).get("kernels", KEY) is None


def test_cyclic_links_are_refused(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.warns(CacheWarning, match="symbolic links"):
        assert Store(tmp_path / "a").get("kernels", KEY) is None


@pytest.mark.parametrize("which", ["kind", "part", "entry"])
def test_no_link_is_followed_inside_the_store(root: Path, tmp_path: Path, which: str):
    Store(root).put("kernels", KEY, b"code")
    path = {"kind": root / "kernels", "part": entry(root).parent, "entry": entry(root)}[which]
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert Store(root).get("kernels", KEY) is None


@pytest.mark.parametrize("what", ["fifo", "socket", "folder", "link to itself", "huge", "short", "empty"])
def test_an_entry_that_is_no_regular_file_is_absent_without_blocking(root: Path, what: str):
    store = Store(root)
    store.put("kernels", KEY, b"code")
    path = entry(root)
    path.unlink()
    match what:
        case "fifo":
            os.mkfifo(path, 0o600)
        case "socket":
            with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:  # names are short
                server.bind(path.name)
        case "folder":
            path.mkdir(mode=0o700)
        case "link to itself":
            path.symlink_to(path.name)
        case "huge":
            path.touch(mode=0o600)
            os.truncate(path, 8 << 30)
        case _:
            path.touch(mode=0o600)
            path.write_bytes(b"x" * {"short": 31, "empty": 0}[what])
    assert store.get("kernels", KEY) is None
    if what != "folder":
        store.put("kernels", KEY, b"code")
        assert store.get("kernels", KEY) == b"code"


def test_entries_above_the_size_limit_are_not_stored(root: Path):
    Store(root).put("kernels", KEY, bytes(MOST_BYTES))
    assert not root.exists()


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path):
    (tmp_path / "file").touch()
    store = Store(tmp_path / "file" / "cache")
    store.put("kernels", KEY, b"code")
    assert store.get("kernels", KEY) is None


def test_concurrent_writes_of_one_entry_leave_it_valid(root: Path):
    payload = [bytes([number]) * (1 << 16) for number in range(8)]
    got = []

    def work(number: int) -> None:
        store = Store(root)
        for _ in range(20):
            store.put("kernels", KEY, payload[number])
            got.append(store.get("kernels", KEY))

    together(work, len(payload))
    assert set(got) <= set(payload)
    assert [path.name for path in entry(root).parent.iterdir()] == [entry(root).name]


def test_above_its_limit_a_store_drops_the_least_recently_used_entries(root: Path):
    keys = [key_of(str(number)) for number in range(12)]
    for age, key in enumerate(keys):
        Store(root).put("kernels", key, bytes(100 - 32))
        os.utime(entry(root, key), (age + 1e9, age + 1e9))
    os.utime(entry(root, keys[0]), (2e9, 2e9))
    Store(root, limit=1000).trim()
    assert [n for n, key in enumerate(keys) if Store(root).get("kernels", key)] == [0, 6, 7, 8, 9, 10, 11]


@pytest.mark.slow
def test_a_store_stays_near_its_limit(root: Path):
    store = Store(root, limit=10_000)
    for number in range(300):
        store.put("kernels", key_of(str(number)), bytes(100))
    assert sum(found.st_size for _, found in store.files()) < 11_000


def test_a_few_parts_with_many_entries_tell_whether_a_store_is_above_its_limit(root: Path):
    store, few, many = Store(root, limit=2 << 20), "01" + 46 * "0", 48 * "0"
    for key in (few, few[:-1] + "1"):
        Store(root).put("kernels", key, bytes(3 << 19))
    entry(root, many).parent.mkdir()
    for number in range(300):
        entry(root, f"00{number:046d}").write_bytes(bytes(32))
    abandoned = entry(root, many).with_name(".new-1-2-3")
    abandoned.touch()
    os.utime(abandoned, (1e9, 1e9))
    store.put("kernels", many, b"")
    assert sum(found.st_size for _, found in store.files()) > 3 << 20, "the others were not looked at"
    assert not abandoned.exists()
    store.put("kernels", few, bytes(100))
    assert sum(found.st_size for _, found in store.files()) < 2 << 20


def test_trimming_removes_no_foreign_file(root: Path):
    store = Store(root, limit=0)
    Store(root).put("kernels", KEY, b"code")
    notes = ("notes.txt", "kernels/notes", f"kernels/{KEY[:2]}/notes", "ab/x")
    foreign = [root / name for name in notes]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    store.trim()
    assert all(path.exists() for path in foreign)
    assert not entry(root).exists()


def test_trimming_removes_abandoned_temporary_files_only(root: Path):
    store = Store(root)
    store.put("kernels", KEY, b"code")
    old, new = (entry(root).with_name(f".new-{name}") for name in ("1-2-3", "4-5-6"))
    old.touch()
    new.touch()
    os.utime(old, (1e9, 1e9))
    store.trim()
    assert not old.exists()
    assert new.exists()
    assert store.get("kernels", KEY) == b"code"


def test_reading_an_old_entry_refreshes_its_age(root: Path):
    store = Store(root)
    store.put("kernels", KEY, b"code")
    os.utime(entry(root), (1e9, 1e9))
    assert store.get("kernels", KEY) == b"code"
    assert entry(root).stat().st_mtime > 1.5e9


def test_an_absent_store_gives_no_warning(root: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Store(root).get("kernels", KEY) is None
    assert not root.exists()

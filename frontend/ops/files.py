"""Tensors of the bytes of a file at an address.

`device` None is the default one. Flags that are no bools raise `UsageTypeError`.

Not here: files of weights (`frontend.nn.state`). Next: `creation`, tensors of host data.
"""

from __future__ import annotations

import gzip
from typing import Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from compiler.dtype import dtypes
from frontend.arguments.conversion import flag
from frontend.device import Device
from frontend.evaluation.base import T
from frontend.evaluation.storage import stored
from hcq.errors import UsageError

_SCHEMES: Final = ("https", "http", "file", "data")


def from_url(cls: type[T], url: str, gunzip: bool = False, *, device: str | None = None) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return the bytes (uint8) of the file at an address with the scheme https, http, file or data.

    `gunzip` decompresses them. Raises `UsageError` for another scheme, and for a file that cannot be read or
    decompressed.
    """
    if not isinstance(url, str) or urlsplit(url).scheme not in _SCHEMES:
        raise UsageError(f"from_url: wanted an address of {', '.join(_SCHEMES)}, saw {url!r}")
    try:
        with urlopen(url) as answer:  # noqa: S310 - the schemes are checked
            content = answer.read()
        content = gzip.decompress(content) if flag(gunzip, "from_url, gunzip") else content
    except (URLError, OSError, EOFError) as error:
        raise UsageError(f"from_url: cannot read {url[:80]}: {error}") from error
    return cls.of_part(stored(content, (len(content),), dtypes.uint8, Device.named(device)))

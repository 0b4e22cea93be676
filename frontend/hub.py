"""PyTorch's `hub`: weights by their address, from files that are here. Nothing is downloaded.

    torch.hub.load_state_dict_from_url("https://…/resnet18-f37072fd.pth")

Not here: the format of the file (`frontend.load`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from frontend.nn.state.saving import load
from hcq.errors import UsageError

__all__ = ["get_dir", "load_state_dict_from_url", "load_url"]


def _get_torch_home() -> str:
    """Return PyTorch's folder: `$TORCH_HOME`, else `$XDG_CACHE_HOME/torch`, else `~/.cache/torch`."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return str(Path(os.environ.get("TORCH_HOME") or f"{cache}/torch").expanduser())


def get_dir() -> str:
    """Return the folder `hub` in PyTorch's."""
    return str(Path(_get_torch_home()) / "hub")


def load_state_dict_from_url(  # noqa: PLR0917 - PyTorch's order
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,  # noqa: FBT001, FBT002
    check_hash: bool = False,  # noqa: FBT001, FBT002
    file_name: str | None = None,
    weights_only: bool = False,  # noqa: FBT001, FBT002
) -> Any:
    """Return what is in the file of an address, as PyTorch would have stored it.

    The file is `file_name`, else the last part of the address, in `model_dir`, else in
    `get_dir()/checkpoints`. `map_location` is that of `frontend.load`; `progress`, `check_hash` and
    `weights_only` change nothing: a file that is here is not checked by PyTorch either, and no code of a file
    is run.

    Raises `UsageError` if it is not there, and as `frontend.load`.
    """
    del progress, check_hash, weights_only
    folder = Path(model_dir) if model_dir is not None else Path(get_dir()) / "checkpoints"
    path = folder / (file_name or Path(urlparse(url).path).name)
    if not path.is_file():
        raise UsageError(
            f"load_state_dict_from_url: wanted the file {path}, which is not there\n"
            f"hint: nothing is downloaded: get {url} with a tool of yours and store it there"
        )
    return load(path, map_location=map_location)


load_url = load_state_dict_from_url

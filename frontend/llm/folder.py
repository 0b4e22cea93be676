"""Folders of a model: `config.json` and safetensors files, one or several with an index.

The index `model.safetensors.index.json` maps the name of a weight to its file ({"weight_map": {...}}); files
are names within the folder. Nothing of a folder is run.

Not here: the settings (`families`). Next: `weights`.
"""

from __future__ import annotations

import errno
import json
import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from frontend.device import Device
from frontend.llm.families import LLAMA, ModelFamily, described
from frontend.llm.settings import ModelSettings
from frontend.llm.weights import Progress, Stored
from frontend.nn.state.safetensors import SafeFile
from frontend.nn.state.tensor_file import Contents
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.llm.description import Description

CONFIG: Final = "config.json"
_GENERATION: Final = "generation_config.json"
_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_BUFFERS: Final = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")
"""Ends of names that are no weights, though files have them."""
_PREFIXES: Final = ("", "language_model.")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file. Raises `UsageError` if it is none, `OSError` if it cannot be read."""
    try:
        with Contents(path, "model's JSON file") as file:
            found = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: wanted an object of names and values, saw {type(found).__name__}")
    return found


def existing(path: Path) -> Path:
    """Return the path of a model. Raises `FileNotFoundError` where there is nothing."""
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "wanted a model's folder or GGUF file, saw nothing", str(path))
    return path


class Folder:
    """The weights of a folder under the names of `families`. A context manager, which closes the files.

    Raises `OSError` for a file that cannot be read, `UsageError` for a malformed one, `UnsupportedError` for
    a model that no family describes.
    """

    def __init__(
        self, path: Path, device: str | None, show: Callable[[int, int], object] | None = None
    ) -> None:
        self.path, self.device = path, Device.named(device)
        self.description: Description
        self.family: ModelFamily
        self.description, self.family = described(read_json(path / CONFIG), str(path / CONFIG))
        if (path / _GENERATION).exists():  # chat models end an answer by further ids
            further = ModelSettings(read_json(path / _GENERATION), str(path / _GENERATION)).ids(
                "eos_token_id"
            )
            stops = dict.fromkeys([*self.description.stops, *further])
            self.description = replace(self.description, stops=tuple(stops))
        self._undo, self._used = ExitStack(), set[str]()
        self._files: dict[str, SafeFile] = {}
        """Name of a weight in the files -> the file that has it."""
        try:
            for name in self._names():
                file = self._undo.enter_context(SafeFile(path / name, self.device))
                self._files |= dict.fromkeys(file.entries, file)
            self._prefix = self._found_prefix()
        except BaseException:
            self._undo.close()
            raise
        each = [e for file in set(self._files.values()) for e in file.entries.values()]
        self.progress = Progress(show, sum([e.end - e.begin for e in each]))

    def _names(self) -> list[str]:
        """Return the names of the safetensors files."""
        if not (self.path / _INDEX).exists():
            if not (self.path / _SINGLE).exists():
                raise UsageError(
                    f"{self.path}: wanted {_SINGLE} or {_INDEX} beside {CONFIG}; there is none\n"
                    "hint: load() reads safetensors and GGUF files; save pickled weights as safetensors first"
                )
            return [_SINGLE]
        named = read_json(self.path / _INDEX).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(n, str) for n in named.values()):
            raise UsageError(f"{self.path / _INDEX}: wanted names of files by weight for weight_map")
        names = sorted(set(named.values()))
        if outside := [n for n in names if Path(n).name != n]:
            raise UsageError(f"{self.path / _INDEX}: {outside[0]!r} is no file within the folder")
        return names

    def _found_prefix(self) -> tuple[str, str]:
        """Return what the files put in front of the names of weights, and what they leave out."""
        table = self._template("token_embd")
        for left_out in ("", table.partition(".")[0] + "."):
            for prefix in _PREFIXES:
                name = table.removeprefix(left_out)
                if f"{prefix}{name}.weight" in self._files:
                    return prefix, left_out
        raise UsageError(f"{self.path}: no file has {table}.weight; the settings are those of another model")

    def _template(self, name: str) -> str:
        return self.family.names.get(name) or LLAMA.get(name) or name

    def find(self, name: str) -> Stored | None:
        """Return the weight of a name (`frontend.llm.families`), None if there is none."""
        *layer, own, kind = name.removeprefix("blk.").split(".")
        template = self._template(own).format(*layer, e="{e}")
        prefix, left_out = self._prefix
        full = f"{prefix}{template.removeprefix(left_out)}.{kind}"
        if kind == "bias" and not own.startswith(self.description.biased):
            return None
        experts = self.description.experts
        if "{e}" not in full:
            names = [full]
        else:
            names = [full.replace("{e}", str(e)) for e in range(experts.count if experts else 0)]
        if any(n not in self._files for n in names):
            return None
        self._used |= {*names}
        parts = tuple([(self._files[n], self._files[n].entries[n]) for n in names])
        if len({(e.dtype, e.shape) for _, e in parts}) > 1:
            raise UsageError(f"{self.path}: the experts' {names[0]} differ in shape or dtype")
        shape = parts[0][1].shape
        columns = self.family.columns and bool(layer) and len(shape) == 2
        return Stored(parts, shape if len(names) == 1 else (len(names), *shape), columns)

    def unused(self) -> list[str]:
        """Return the names of weights that nothing has looked for; buffers and further layers are none."""
        prefix, d = self._prefix[0], self.description
        left = [n for n in self._files if n not in self._used and n.startswith(prefix)]
        layer = re.compile(r"(?:^|\.)(?:layers|h)\.([0-9]+)\.")
        further = {n for n in left if (at := layer.search(n)) and int(at[1]) >= len(d.layers)}
        return sorted([n for n in left if n not in further and not n.endswith(_BUFFERS)])

    def __str__(self) -> str:
        return str(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

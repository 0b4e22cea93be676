"""Loading a language model: the kind of a path, its settings and its weights.

Not here: folders (`folder`), GGUF files (`metadata`). Next: `model`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from frontend.llm.block import Decoder
from frontend.llm.folder import Folder, existing
from frontend.llm.metadata import Gguf
from frontend.llm.model import LanguageModel
from hcq.errors import UsageError


def load(
    path: str | Path, *, device: str | None = None, progress: Callable[[int, int], object] | None = None
) -> LanguageModel:
    """Return the language model of a GGUF file, or of a folder with `config.json` and safetensors files.

    Weights are read once into memory of the device (None: the default one), and stay in the file's form.
    Nothing of the files is run. `progress(done, total)` is called with bytes after each weight.

    Raises `OSError` for a file that cannot be read, `UsageError` for a malformed one and for weights that are
    missing, not used, or of another shape than the settings say, `UnsupportedError` for a family, a setting
    or a form that is not known.
    """
    place = existing(Path(path))
    source = Folder(place, device, progress) if place.is_dir() else Gguf(place, device, progress)
    with source:
        decoder = Decoder(source.description, source)
        if unused := source.unused():
            raise UsageError(
                f"{path}: {len(unused)} weights are not used, such as {', '.join(unused[:3])}\n"
                "hint: the settings are those of another model, or one such as attention_bias is missing"
            )
        return LanguageModel(decoder, str(path))

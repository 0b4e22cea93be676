"""GGUF files of a model: its settings from the metadata, its weights under their own names.

Metadata becomes the settings of `config.json`, so that the rows of `families` describe both. What files have
in another form: norms of Gemma include their offset, heads of the architecture "llama" are stored for a
rotation of neighbouring pairs, long contexts of Llama 3 and Phi-3 have tensors of divisors. Names of keys:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.

Not here: reading a file (`frontend.nn.state.gguf`), its vocabulary (`tokenizer`). Next: `families`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from frontend.device import Device
from frontend.llm.families import described
from frontend.llm.settings import ModelSettings
from frontend.llm.weights import Progress, Stored
from frontend.nn.state.gguf import GgufFile
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from frontend.llm.description import Description, Layer
    from frontend.nn.state.tensor_file import TensorEntry

_FAMILIES: Final = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3": "gemma3_text", "phi3": "phi3", "olmo2": "olmo2", "gpt2": "gpt2", "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
}  # fmt: skip
"""`general.architecture` -> the row; "llama" with experts is Mixtral."""
_KEYS: Final = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "rms_norm_eps", "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta", "rope.freq_base_swa": "rope_local_base_freq",
    "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok",
    "expert_weights_norm": "norm_topk_prob", "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping", "vocab_size": "vocab_size",
    "attention.sliding_window_pattern": "sliding_window_pattern",
}  # fmt: skip
"""Key of metadata, without the architecture -> the setting."""
_FURTHER: Final[dict[str, tuple[object, ...]]] = {
    **dict.fromkeys(
        ("rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor",
         "rope.scaling.original_context_length", "rope.scaling.finetuned", "attention.value_length",
         "expert_feed_forward_length", "expert_shared_feed_forward_length", "expert_shared_count",
         "tensor_data_layout"), ()),
    "attention.causal": (True,), "expert_gating_func": (1,), "expert_weights_scale": (0.0, 1.0),
    "pooling_type": (0,),
}  # fmt: skip
"""Further keys that are read, or that weights must fit -> the values that are known; (): all."""
_LARGEST: Final = {"gemma2": 46, "gemma3": 62}
"""Layers of the models whose scores are scaled by width / heads instead of by the size of a head."""


class Gguf:
    """The weights of a GGUF file. A context manager, which closes the file.

    Raises `OSError` for a file that cannot be read, `UsageError` for a malformed one, `UnsupportedError` for
    an architecture, a scaling or a form of weights that is not known.
    """

    def __init__(
        self, path: Path, device: str | None, show: Callable[[int, int], object] | None = None
    ) -> None:
        self.device, self._used = Device.named(device), set[str]()
        self._file = GgufFile(path, self.device)
        try:
            self.description: Description = self._described()
        except BaseException:
            self._file.close()
            raise
        self.progress = Progress(show, sum([e.end - e.begin for e in self._file.entries.values()]))

    def find(self, name: str) -> Stored | None:
        """Return the weight of a name, None if there is none."""
        entry = self._entry(name)
        if entry is None:
            return None
        single = name.endswith("ffn_gate_inp_shexp.weight") and len(entry.shape) == 1
        return Stored(((self._file, entry),), (1, *entry.shape) if single else entry.shape)

    def _entry(self, name: str) -> TensorEntry | None:
        self._used.add(name)
        return self._file.entries.get(name)

    def unused(self) -> list[str]:
        """Return the names of weights that nothing has looked for."""
        return sorted({*self._file.entries} - self._used)

    def _described(self) -> Description:
        m = ModelSettings(self._file.metadata, self._file.path)
        kind = m.text("general.architecture")
        if kind not in _FAMILIES:
            known = ", ".join(_FAMILIES)
            raise UnsupportedError(f"{m.path}: wanted an architecture of {known}, saw {kind!r}")
        for name, value in m.values.items():
            own = name.removeprefix(f"{kind}.")
            if own == name or own in _KEYS or (own in _FURTHER and value in (_FURTHER[own] or (value,))):
                continue
            raise UnsupportedError(f"{m.path}: {name} is {str(value)[:80]}, and not known")
        given = [(own, m.raw(f"{kind}.{key}")) for key, own in _KEYS.items()]
        values = {own: value for own, value in given if value is not None}
        values |= self._further(m, kind, values)
        made, _ = described(values, m.path)
        offset = 0.0 if kind.startswith("gemma") else made.norm_offset
        layers = tuple([self._layer(layer, m, kind) for layer in made.layers])
        return replace(made, layers=layers, norm_offset=offset, biased=("",))

    def _further(self, m: ModelSettings, kind: str, values: dict[str, Any]) -> dict[str, Any]:
        """Return the settings that have no key of their own."""
        table = self._file.entries.get("token_embd.weight")
        found: dict[str, Any] = {
            "model_type": "mixtral" if kind == "llama" and values.get("num_experts") else _FAMILIES[kind],
            "tie_word_embeddings": "output.weight" not in self._file.entries,
            "eos_token_id": list(self.stops(m)),
        }
        if table is not None and table.shape:
            found["vocab_size"] = table.shape[0]
        if "num_experts" in values:
            found["num_local_experts"] = values["num_experts"]
            found.setdefault("norm_topk_prob", values.get("norm_topk_prob", kind == "qwen3moe"))
        depth = values.get("head_dim")
        if kind in _LARGEST and type(depth) is int:
            width, heads = m.count(f"{kind}.embedding_length"), m.count(f"{kind}.attention.head_count")
            large = values.get("num_hidden_layers") == _LARGEST[kind]
            found["query_pre_attn_scalar"] = width // heads if large else depth
        if kind == "llama":  # Mixtral's default base is another one
            found["rope_theta"] = values.get("rope_theta", 10000.0)
        scaling = m.text(f"{kind}.rope.scaling.type", "none")
        if scaling != "longrope" and m.number(f"{kind}.rope.scaling.attn_factor", 1.0) != 1:
            raise UnsupportedError(f"{m.path}: {kind}.rope.scaling.attn_factor of the scaling {scaling!r}")
        if scaling in {"linear", "yarn"}:
            found["rope_scaling"] = {
                "rope_type": scaling,
                "factor": m.raw(f"{kind}.rope.scaling.factor"),
                "original_max_position_embeddings": m.raw(f"{kind}.rope.scaling.original_context_length"),
            }
        elif scaling not in {"none", "longrope"}:
            known = "none, linear, yarn or longrope"
            raise UnsupportedError(f"{m.path}: wanted a scaling of {known}, saw {scaling!r}")
        return found

    def _layer(self, layer: Layer, m: ModelSettings, kind: str) -> Layer:
        """Return a layer with the rotation that the file has."""
        rope = layer.rope
        if rope is None:
            return layer
        size = m.count(f"{kind}.rope.dimension_count", rope.size)
        if size % 2 or size > rope.size:
            raise m.wrong(f"{kind}.rope.dimension_count", f"an even number up to {rope.size}")
        rope = replace(rope, paired=kind == "llama", size=size)
        short, long = self._divisors("rope_factors_short", size), self._divisors("rope_factors_long", size)
        plain = self._divisors("rope_freqs", size)
        if short is not None and long is not None:
            factor = m.number(f"{kind}.rope.scaling.attn_factor", 1.0)
            original = m.count(f"{kind}.rope.scaling.original_context_length")
            rope = replace(rope, divisors=short, long=long, factor=factor, original=original)
        elif plain is not None:
            rope = replace(rope, divisors=plain)
        return replace(layer, rope=rope)

    def _divisors(self, name: str, size: int) -> tuple[float, ...] | None:
        """Return the divisors of the rotation's pairs that the file has under a name."""
        entry = self._entry(f"{name}.weight")
        if entry is None:
            return None
        found = self._file[f"{name}.weight"].flatten().tolist()
        if len(found) != size // 2:
            raise UsageError(f"{self}: wanted {size // 2} numbers in {name}.weight, saw {len(found)}")
        return tuple(found)

    def stops(self, m: ModelSettings) -> tuple[int, ...]:
        """Return the ids that end a text."""
        names = ("eos_token_id", "eot_token_id")
        return tuple([i for name in names for i in m.ids(f"tokenizer.ggml.{name}")])

    def __str__(self) -> str:
        return str(self._file.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

"""Families of language models: a row for each `model_type` of `config.json` makes a `Description`.

A row states what differs from Llama: settings that the description takes over, and the names of the weights
in safetensors files. The names here are those of GGUF files, for every source (`blk.0.attn_q.weight`).
What a setting means is in the documentation of `transformers` (https://huggingface.co/docs/transformers).

Not here: reading weights (`folder`). Next: `settings`, `rope`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frontend.llm.description import Description, Experts, Layer
from frontend.llm.rope import rope_of
from frontend.llm.settings import ModelSettings
from hcq.errors import UnsupportedError, UsageError

LLAMA: Final = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "model.layers.{}.input_layernorm", "ffn_norm": "model.layers.{}.post_attention_layernorm",
    "attn_q": "model.layers.{}.self_attn.q_proj", "attn_k": "model.layers.{}.self_attn.k_proj",
    "attn_v": "model.layers.{}.self_attn.v_proj", "attn_output": "model.layers.{}.self_attn.o_proj",
    "attn_q_norm": "model.layers.{}.self_attn.q_norm", "attn_k_norm": "model.layers.{}.self_attn.k_norm",
    "ffn_gate": "model.layers.{}.mlp.gate_proj", "ffn_up": "model.layers.{}.mlp.up_proj",
    "ffn_down": "model.layers.{}.mlp.down_proj",
}  # fmt: skip
"""Name of a weight -> its name in safetensors files, for Llama; `{}` is the layer, `{e}` an expert."""
_AFTER: Final = {
    "post_attention_norm": "model.layers.{}.post_attention_layernorm",
    "post_ffw_norm": "model.layers.{}.post_feedforward_layernorm",
}
_BOTH: Final = {**_AFTER, "ffn_norm": "model.layers.{}.pre_feedforward_layernorm"}
_FUSED: Final = {
    "attn_qkv": "model.layers.{}.self_attn.qkv_proj", "ffn_up": "model.layers.{}.mlp.gate_up_proj",
}  # fmt: skip
_GPT2: Final = {
    "token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f",
    "output": "lm_head", "attn_norm": "transformer.h.{}.ln_1", "ffn_norm": "transformer.h.{}.ln_2",
    "attn_qkv": "transformer.h.{}.attn.c_attn", "attn_output": "transformer.h.{}.attn.c_proj",
    "ffn_up": "transformer.h.{}.mlp.c_fc", "ffn_down": "transformer.h.{}.mlp.c_proj",
}  # fmt: skip
_MIXTRAL: Final = {
    "ffn_gate_inp": "model.layers.{}.block_sparse_moe.gate",
    "ffn_gate_exps": "model.layers.{}.block_sparse_moe.experts.{e}.w1",
    "ffn_up_exps": "model.layers.{}.block_sparse_moe.experts.{e}.w3",
    "ffn_down_exps": "model.layers.{}.block_sparse_moe.experts.{e}.w2",
}
_QWEN_EXPERTS: Final = {
    "ffn_gate_inp": "model.layers.{}.mlp.gate",
    "ffn_gate_exps": "model.layers.{}.mlp.experts.{e}.gate_proj",
    "ffn_up_exps": "model.layers.{}.mlp.experts.{e}.up_proj",
    "ffn_down_exps": "model.layers.{}.mlp.experts.{e}.down_proj",
    "ffn_gate_inp_shexp": "model.layers.{}.mlp.shared_expert_gate",
    "ffn_gate_shexp": "model.layers.{}.mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "model.layers.{}.mlp.shared_expert.up_proj",
    "ffn_down_shexp": "model.layers.{}.mlp.shared_expert.down_proj",
}

_ACTIVATIONS: Final = {
    "silu": "silu", "swish": "silu", "gelu": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """A row: how a family differs from Llama."""

    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the description that all its models have."""
    read: Callable[[ModelSettings], dict[str, Any]] = lambda _: {}
    """Returns the fields that settings decide."""
    slides: Callable[[ModelSettings, int], bool] = lambda s, _: s.raw("sliding_window") is not None
    """Whether a layer has a window, where the file does not list kinds of layers."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that files leave out."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Llama's name of a setting -> its name in the family."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of weights that differ from Llama's."""
    columns: bool = False
    """Whether files store the matrices of layers as (inputs, outputs)."""
    biased: Mapping[str, str | bool] = field(default_factory=lambda: {"attn_": "attention_bias"})
    """How names of matrices with biases begin -> True, or the setting that says whether they have them."""
    listed: bool = False
    """Whether files may list the kinds of layers (`layer_types`)."""
    partial: bool = False
    """Whether a part of a head may turn (`partial_rotary_factor`)."""


def _head(s: ModelSettings) -> int:
    """Return the elements of a head."""
    width, heads = s.count("hidden_size"), s.count("num_attention_heads")
    if s.raw("head_dim") is None and width % heads:
        raise UsageError(f"{s.path}: {heads} heads do not divide a width of {width}")
    return s.count("head_dim", width // heads, most=1 << 16)


def _upper_slide(s: ModelSettings, layer: int) -> bool:
    return s.raw("sliding_window") is not None and layer >= s.count("max_window_layers", 28, least=0)


def _lower_slide(s: ModelSettings, layer: int) -> bool:
    lower = layer % 2 == 0 and layer < s.count("max_window_layers", 28, least=0)
    return s.raw("sliding_window") is not None and lower


def _capped(s: ModelSettings) -> dict[str, Any]:
    """Return the caps, scales and bounds of Gemma."""
    if s.text("model_type") == "gemma3_text" and s.raw("attn_logit_softcapping") is not None:
        raise UnsupportedError(
            f"{s.path}: attn_logit_softcapping, of which implementations differ in Gemma 3"
        )
    return {
        "scale": s.number("query_pre_attn_scalar") ** -0.5,
        "score_cap": s.number("attn_logit_softcapping", 0.0),
        "logit_cap": s.number("final_logit_softcapping", 0.0),
        **_scaled(s),
    }


def _scaled(s: ModelSettings) -> dict[str, Any]:
    return {"embedding_scale": math.sqrt(s.count("hidden_size"))}


def _first_gemma(s: ModelSettings) -> dict[str, Any]:
    act = {"activation": "gelu_tanh"} if s.text("hidden_act") == "gelu" else {}  # its files' word for it
    return {**_scaled(s), **act}


def _qwen_experts(s: ModelSettings) -> dict[str, Any]:
    experts = Experts(
        count=s.count("num_experts", s.raw("num_local_experts"), most=1 << 12),
        used=s.count("num_experts_per_tok"),
        normalised=s.flag("norm_topk_prob", default=False),
    )
    return {"experts": experts}


def _mixtral_experts(s: ModelSettings) -> dict[str, Any]:
    experts = Experts(
        count=s.count("num_local_experts", most=1 << 12), used=s.count("num_experts_per_tok"), normalised=True
    )
    return {"experts": experts}


def _learned(s: ModelSettings) -> dict[str, Any]:
    for name in ("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"):
        if s.flag(name, default=False):
            raise UnsupportedError(f"{s.path}: {name}")
    scale = _head(s) ** -0.5 if s.flag("scale_attn_weights", default=True) else 1.0
    return {"hidden": s.count("intermediate_size", 4 * s.count("hidden_size")), "scale": scale}


_GEMMA: Final = {"norm_offset": 1.0}
_GEMMA_DEFAULTS: Final = {
    "tie_word_embeddings": True, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096,
    "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
_QKV: Final = {"attn_q": True, "attn_k": True, "attn_v": True}
_QWEN: Final = {"use_sliding_window": False, "sliding_window": 4096}

FAMILIES: Final[Mapping[str, ModelFamily]] = {
    "llama": ModelFamily(
        slides=lambda _s, _i: False, biased={"attn_": "attention_bias", "ffn_": "mlp_bias"}
    ),
    "mistral": ModelFamily(defaults={"sliding_window": 4096}, biased={}),
    "qwen2": ModelFamily(slides=_upper_slide, defaults=_QWEN, biased=_QKV, listed=True),
    "qwen3": ModelFamily(
        fixed={"norm_qk": "head"}, slides=_upper_slide, defaults={**_QWEN, "head_dim": 128}, listed=True
    ),
    "gemma": ModelFamily(
        fixed=_GEMMA, read=_first_gemma, slides=lambda _s, _i: False,
        defaults={"tie_word_embeddings": True, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh"},
    ),
    "gemma2": ModelFamily(
        fixed={**_GEMMA, "norms": "both"}, read=_capped, slides=lambda _s, i: i % 2 == 0, listed=True,
        defaults={**_GEMMA_DEFAULTS, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        names={**_AFTER, **_BOTH}, renamed={"hidden_act": "hidden_activation"},
    ),
    "gemma3_text": ModelFamily(
        fixed={**_GEMMA, "norms": "both", "norm_qk": "head"}, read=_capped, listed=True,
        slides=lambda s, i: (i + 1) % s.count("sliding_window_pattern", 6) != 0,
        defaults={**_GEMMA_DEFAULTS, "rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0,
                  "max_position_embeddings": 131_072, "vocab_size": 262_208,
                  "num_attention_heads": 8, "num_key_value_heads": 4, "rms_norm_eps": 1e-6},
        names={**_AFTER, **_BOTH}, renamed={"hidden_act": "hidden_activation"},
    ),
    "phi3": ModelFamily(
        names=_FUSED, biased={}, partial=True, defaults={"original_max_position_embeddings": 4096}
    ),
    "olmo2": ModelFamily(
        fixed={"norms": "after", "norm_qk": "whole"}, slides=lambda _s, _i: False, names=_AFTER
    ),
    "mixtral": ModelFamily(
        read=_mixtral_experts, names=_MIXTRAL, biased={}, defaults={"rope_theta": 1_000_000.0}
    ),
    "qwen2_moe": ModelFamily(
        read=_qwen_experts, slides=_lower_slide, names=_QWEN_EXPERTS, biased=dict.fromkeys(_QKV, "qkv_bias"),
        defaults={**_QWEN, "qkv_bias": True}, listed=True,
    ),
    "qwen3_moe": ModelFamily(
        fixed={"norm_qk": "head"}, read=_qwen_experts, names=_QWEN_EXPERTS, defaults=_QWEN
    ),
    "gpt2": ModelFamily(
        fixed={"norm": "layer", "gated": False, "learned": True}, read=_learned, columns=True, names=_GPT2,
        defaults={"tie_word_embeddings": True, "activation_function": "gelu_new"},
        renamed={"hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
                 "max_position_embeddings": "n_positions", "rms_norm_eps": "layer_norm_epsilon",
                 "hidden_act": "activation_function", "intermediate_size": "n_inner"},
        biased={"": True},
    ),
}  # fmt: skip
"""`model_type` of `config.json` -> the row."""


def described(values: Mapping[str, Any], path: str) -> tuple[Description, ModelFamily]:
    """Return the description and the row of a `config.json`.

    Raises `UsageError` for a missing or malformed setting, `UnsupportedError` for another family, activation
    or scaling, which the message names.
    """
    inner = values.get("text_config")
    if isinstance(inner, dict):  # a model of texts and pictures: its language model
        tied = (
            {"tie_word_embeddings": values["tie_word_embeddings"]} if "tie_word_embeddings" in values else {}
        )
        values = tied | inner
    kind = values.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise UnsupportedError(f"{path}: wanted a model_type of {', '.join(FAMILIES)}, saw {kind!r}")
    given = {"hidden_act": "silu", **family.defaults, **values}  # null is not the default
    if "use_sliding_window" in family.defaults and not given["use_sliding_window"]:
        given["sliding_window"] = None
    given = {name: value for name, value in given.items() if value is not None}
    given |= {name: given[own] for name, own in family.renamed.items() if own in given}
    return _made(ModelSettings(given, path), family), family


def _made(s: ModelSettings, family: ModelFamily) -> Description:
    depth, heads = _head(s), s.count("num_attention_heads")
    act = s.text("hidden_act")
    key_heads = s.count("num_key_value_heads", heads)
    if heads % key_heads:
        raise UsageError(f"{s.path}: {key_heads} heads of keys do not divide {heads} heads")
    if s.flag("use_bidirectional_attention", default=False) or not s.flag("is_causal", default=True):
        raise UnsupportedError(f"{s.path}: its tokens attend to later ones; wanted a causal model")
    if act not in _ACTIVATIONS:
        raise UnsupportedError(f"{s.path}: wanted an activation of {', '.join(_ACTIVATIONS)}, saw {act!r}")
    found: dict[str, Any] = {
        "family": s.text("model_type"), "width": s.count("hidden_size"), "vocabulary": s.count("vocab_size"),
        "heads": heads, "key_heads": key_heads, "depth": depth, "scale": depth**-0.5,
        "context": s.count("max_position_embeddings"), "eps": s.number("rms_norm_eps"),
        "activation": _ACTIVATIONS[act], "tied": s.flag("tie_word_embeddings", default=False),
        "stops": s.ids("eos_token_id"),
        "biased": tuple([
            part for part, has in family.biased.items() if has is True or s.flag(str(has), default=False)
        ]),
    }  # fmt: skip
    found |= {**family.fixed, **family.read(s)}
    found.setdefault("hidden", s.raw("intermediate_size", 0))
    found["layers"] = _layers(s, family, experts="experts" in found, turning="learned" not in found)
    experts = found.get("experts")
    if experts is not None and experts.used > experts.count:
        raise UsageError(f"{s.path}: {experts.used} of {experts.count} experts for each token")
    return Description(**found)


def _layers(s: ModelSettings, family: ModelFamily, *, experts: bool, turning: bool) -> tuple[Layer, ...]:
    step, dense = s.count("decoder_sparse_step", 1), s.ids("mlp_only_layers")
    found = []
    for i, kind in enumerate(_kinds(s, family)):
        rope = _rope_settings(s, kind)
        if family.partial:  # Phi-3's: "longrope" had other names
            named = rope.get("rope_type", rope.get("type", "default"))
            rope["rope_type"] = "longrope" if named in ("su", "yarn") else named
        elif rope["partial_rotary_factor"] not in (None, 1):
            raise UnsupportedError(f"{s.path}: partial_rotary_factor {rope['partial_rotary_factor']!r}")
        found.append(
            Layer(
                rope=rope_of(ModelSettings(rope, s.path), _head(s), s.count("max_position_embeddings"))
                if turning
                else None,
                window=s.count("sliding_window") if kind == "sliding_attention" else None,
                sparse=experts and (i + 1) % step == 0 and i not in dense,
            )
        )
    return tuple(found)


def _kinds(s: ModelSettings, family: ModelFamily) -> list[str]:
    """Return the kind of each layer: those that the file lists, else by the rule of the family."""
    count = s.count("num_hidden_layers", most=10_000)
    kinds = ("full_attention", "sliding_attention")
    listed = s.raw("layer_types")
    rule = [kinds[family.slides(s, i)] for i in range(count)]
    if listed in (None, rule):
        return rule
    if not isinstance(listed, list) or len(listed) != count:
        raise s.wrong("layer_types", f"a list of {count} kinds of layers")
    if unknown := {str(k) for k in listed} - {*kinds}:
        raise UnsupportedError(f"{s.path}: layers of the kinds {', '.join(sorted(unknown))}")
    if not family.listed:
        raise UnsupportedError(f"{s.path}: layer_types that are not {rule[0]} in each layer")
    return listed


def _rope_settings(s: ModelSettings, kind: str) -> dict[str, Any]:
    """Return the settings of the rotary embedding of a kind of layers, from each of their forms."""
    given = s.part("rope_scaling") or s.part("rope_parameters")
    nested = isinstance(given.get(kind), dict)
    given = given[kind] if nested else given
    base = s.raw("rope_theta")
    local = kind == "sliding_attention" and s.raw("rope_local_base_freq") is not None
    if local and "rope_theta" not in given:
        base, given = s.number("rope_local_base_freq"), {}
    original = s.raw("original_max_position_embeddings")
    outer = {
        "rope_theta": base,
        "partial_rotary_factor": s.raw("partial_rotary_factor"),
        "original_max_position_embeddings": s.count("max_position_embeddings"),
    }
    inner = {} if nested or original is None else {"original_max_position_embeddings": original}
    return outer | {name: value for name, value in given.items() if value is not None} | inner

"""Record what `transformers` computes for small GGUF files of quantised language models.

    python -m tests.oracles.gguf_models     # in an environment with PyTorch, transformers 5 and gguf

Writes `tests/frontend/data/gguf_models.json`: for each model of `MODELS` the logits after the tokens `SCORED`
of `IDS` and the most probable ids that follow, both of the weights that the package gguf dequantises.
`write` makes the files, here and in the tests: random blocks whose scales give weights of usual size.

Not here: the comparison (`tests/frontend/llm/test_gguf_models.py`).
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.oracles.language_models import IDS
from tools.arguments import command, library, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OUT: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data" / "gguf_models.json"
SCORED: Final = (0, 7, 39)
COUNT: Final = 40
"""Ids that follow."""
WIDTH, HIDDEN, WORDS, LAYERS, EXPERTS = 256, 256, 96, 2, 4

TYPES: Final = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
    "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2),
}  # fmt: skip
"""Name of a type -> its number, elements and bytes of a block."""
_HALVES: Final = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}
"""Where the float16 scales of a block are."""
_SPREAD: Final = {"Q4_0": 4.6, "Q4_1": 4.6, "Q5_0": 9.2, "Q8_0": 74.0, "Q4_K": 170.0, "Q6_K": 1400.0}
"""Deviation of the elements of a block whose scale is 1."""

_RMS: Final = "attention.layer_norm_rms_epsilon"
_MORE: Final[dict[str, dict[str, Any]]] = {
    "gemma2": {"attention.key_length": 64, "attention.sliding_window": 24, "attn_logit_softcapping": 50.0,
               "final_logit_softcapping": 30.0},
    "gemma3": {"attention.key_length": 64, "attention.sliding_window": 24},
    "qwen3": {"attention.key_length": 64},
    "qwen2moe": {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": HIDDEN,
                 "expert_shared_feed_forward_length": HIDDEN},
    "qwen3moe": {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": HIDDEN,
                 "attention.key_length": 64},
}  # fmt: skip

MODELS: Final[dict[str, tuple[str, str, str]]] = {
    "llama, Q8_0": ("llama", "Q8_0", "Q8_0"),
    "llama, Q4_0": ("llama", "Q4_0", "Q6_K"),
    "llama, Q4_1": ("llama", "Q4_1", "F16"),
    "qwen2, Q5_0": ("qwen2", "Q5_0", "Q8_0"),
    "qwen3, Q4_K": ("qwen3", "Q4_K", "Q6_K"),
    "gemma2, Q4_K": ("gemma2", "Q4_K", "Q6_K"),
    "gemma3, Q8_0": ("gemma3", "Q8_0", "Q8_0"),
    "phi3, Q4_K": ("phi3", "Q4_K", "Q4_K"),
    "qwen2moe, Q6_K": ("qwen2moe", "Q6_K", "Q8_0"),
    "qwen3moe, Q8_0": ("qwen3moe", "Q8_0", "Q4_K"),
    "gpt2, BF16": ("gpt2", "BF16", "BF16"),
}
"""Name -> its architecture, the type of its matrices, that of its tables."""


_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "gpt2": {"n_inner": HIDDEN, "n_positions": 512}, "phi3": {"pad_token_id": 0}, "qwen3": {"head_dim": 64},
    "gemma2": {"query_pre_attn_scalar": 64, "head_dim": 64, "sliding_window": 24},
    "gemma3": {"query_pre_attn_scalar": 64, "head_dim": 64, "sliding_window": 24},
    "qwen2moe": {"moe_intermediate_size": HIDDEN, "shared_expert_intermediate_size": HIDDEN},
    "qwen3moe": {"moe_intermediate_size": HIDDEN, "norm_topk_prob": True},
}  # fmt: skip
"""Settings that `transformers` does not take from the metadata."""


def metadata(kind: str) -> dict[str, Any]:
    """Return the metadata of a model's file."""
    values: dict[str, Any] = {
        "context_length": 512, "embedding_length": WIDTH, "block_count": LAYERS,
        "feed_forward_length": HIDDEN,
        "attention.head_count": 4, "attention.head_count_kv": 4 if kind == "gpt2" else 2,
    }  # fmt: skip
    values |= (
        {"attention.layer_norm_epsilon": 1e-5} if kind == "gpt2" else {_RMS: 1e-6, "rope.freq_base": 1e4}
    )
    if kind not in {"gpt2", "gemma3"}:
        values["rope.dimension_count"] = 64
    values |= _MORE.get(kind, {})
    return {
        "general.architecture": kind, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.bos_token_id": 1,
        **{f"{kind}.{name}": value for name, value in values.items()},
    }  # fmt: skip


def tensors(kind: str, matrices: str, tables: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the type and shape (slowest axis first) of each tensor of a model."""
    keys = 256 if kind == "gpt2" else 128
    found = {"token_embd.weight": (tables, (WORDS, WIDTH)), "output_norm.weight": ("F32", (WIDTH,))}
    if not kind.startswith("gemma") and kind != "gpt2":
        found["output.weight"] = tables, (WORDS, WIDTH)
    if kind == "gpt2":
        found |= {"position_embd.weight": ("F32", (512, WIDTH)), "output_norm.bias": ("F32", (WIDTH,))}
    experts = (EXPERTS,) if "moe" in kind else ()
    suffix = "_exps" if experts else ""
    fused = kind in {"phi3", "gpt2"}
    shapes: dict[str, tuple[int, ...]] = {"attn_qkv": (WIDTH + 2 * keys, WIDTH)} if fused else {
        "attn_q": (WIDTH, WIDTH), "attn_k": (keys, WIDTH), "attn_v": (keys, WIDTH)}  # fmt: skip
    shapes |= {"attn_output": (WIDTH, WIDTH), f"ffn_down{suffix}": (*experts, WIDTH, HIDDEN)}
    shapes[f"ffn_up{suffix}"] = (*experts, HIDDEN * 2 if kind == "phi3" else HIDDEN, WIDTH)
    if not fused:
        shapes[f"ffn_gate{suffix}"] = (*experts, HIDDEN, WIDTH)
    if experts:
        shapes["ffn_gate_inp"] = EXPERTS, WIDTH
    if kind == "qwen2moe":
        shapes |= {"ffn_gate_inp_shexp": (WIDTH,), "ffn_gate_shexp": (HIDDEN, WIDTH)}
        shapes |= {"ffn_up_shexp": (HIDDEN, WIDTH), "ffn_down_shexp": (WIDTH, HIDDEN)}
    norms = {"attn_norm": WIDTH, "ffn_norm": WIDTH}
    norms |= {"attn_q_norm": 64, "attn_k_norm": 64} if kind in {"qwen3", "qwen3moe", "gemma3"} else {}
    norms |= {"post_attention_norm": WIDTH, "post_ffw_norm": WIDTH} if kind.startswith("gemma") else {}
    biased: dict[str, tuple[str, ...]] = {
        "qwen2": ("attn_q", "attn_k", "attn_v"),
        "qwen2moe": ("attn_q", "attn_k", "attn_v"),
    }
    biased["gpt2"] = (*shapes, *norms)
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            found[f"blk.{layer}.{name}.weight"] = "F32" if "gate_inp" in name else matrices, shape
        found |= {f"blk.{layer}.{name}.weight": ("F32", (n,)) for name, n in norms.items()}
        for name in biased.get(kind, ()):
            found[f"blk.{layer}.{name}.bias"] = "F32", (shapes[name][0] if name in shapes else norms[name],)
    return found


def _stored(n: int, name: str, kind: str, shape: tuple[int, ...]) -> bytes:
    """Return the bytes of tensor n."""
    rng = np.random.RandomState(n)
    deviation = 0.4 if name.startswith(("token", "position")) else 1.8 / shape[-1] ** 0.5
    if kind in {"F32", "F16", "BF16"}:
        x = rng.uniform(-1, 1, shape)
        wide = (0.2 * x if "bias" in name else 0.6 + 0.3 * x) if len(shape) == 1 else x * deviation * 1.7
        bits = wide.astype(np.float32).view(np.uint32)
        if kind == "BF16":
            return (bits >> np.uint32(16)).astype("<u2").tobytes()
        return wide.astype("<f2" if kind == "F16" else "<f4").tobytes()
    _, elements, size = TYPES[kind]
    raw = rng.randint(0, 256, (int(np.prod(shape)) // elements, size), np.uint8)
    for at in _HALVES[kind]:
        scale = deviation / _SPREAD[kind] * rng.uniform(0.7, 1.3, len(raw))
        if at == 2:  # the least value
            scale *= -7.5 if kind == "Q4_1" else 7.5
        raw[:, at : at + 2] = scale.astype("<f2")[:, None].view(np.uint8)
    return raw.tobytes()


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _value(value: Any) -> bytes:
    """Return a value of metadata with its type: uint32, float32, bool, text, or an array of one of them."""
    if isinstance(value, list):
        parts = [_value(v) for v in value]
        return (
            struct.pack("<I", 9)
            + parts[0][:4]
            + struct.pack("<Q", len(parts))
            + b"".join(p[4:] for p in parts)
        )
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)


def write(
    path: Path,
    name: str,
    more: Mapping[str, Any] | None = None,
    changed: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
) -> Path:
    """Write the file of a model, with further metadata, further or changed tensors; return its path."""
    kind, matrices, tables = MODELS[name]
    values = metadata(kind) | dict(more or {})
    each = tensors(kind, matrices, tables) | dict(changed or {})
    head = b"GGUF" + struct.pack("<IQQ", 3, len(each), len(values))
    head += b"".join(_text(key) + _value(value) for key, value in values.items())
    data = b""
    for n, (key, (form, shape)) in enumerate(each.items()):
        head += _text(key) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", TYPES[form][0], len(data))
        stored = _stored(n, key, form, shape)
        data += stored + bytes(-len(stored) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def record(torch: Any, transformers: Any, name: str) -> dict[str, Any]:
    """Return the logits and ids of a model."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "model.gguf", name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file="model.gguf", dtype=torch.float32, attn_implementation="eager",
            vocab_size=WORDS, **_SETTINGS.get(MODELS[name][0], {}),
        ).eval()  # fmt: skip
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0]
        out = model.generate(
            torch.tensor([IDS]), max_new_tokens=COUNT, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    greedy = out[0, len(IDS) :].tolist()
    print(f"{name}: {len(set(greedy))} different ids, logits to {logits.abs().max():.3g}", file=sys.stderr)
    return {
        "logits": [[float(f"{v:.6g}") for v in logits[i].tolist()] for i in SCORED],
        "greedy": greedy,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records; return 0."""
    command("tests.oracles.gguf_models", __doc__).parse_args(argv)
    torch = pytorch()
    transformers = library("transformers", cure="run it where transformers 5 and gguf are installed")
    lines = [f"{json.dumps(name)}: {json.dumps(record(torch, transformers, name))}" for name in MODELS]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} models of transformers {transformers.__version__} in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))

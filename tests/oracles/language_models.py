"""Record what `transformers` computes for small language models of every family.

    python -m tests.oracles.language_models        # in an environment with PyTorch and transformers 5

Writes `tests/frontend/data/language_models.json`: for each model of `MODELS` its settings as `transformers`
saves them, the names and shapes of its weights, logits after the tokens `SCORED` of `PROMPTS[0]`, and the
most probable ids that follow each prompt. Weights are those of `weights`, which the tests make again.

Not here: the comparison (`tests/frontend/llm/test_language_models.py`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.arguments import command, library, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OUT: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data" / "language_models.json"
IDS: Final = [(7 * i * i + 3 * i + 1) % 96 for i in range(40)]
PROMPTS: Final = ((IDS, 200), (IDS[:5], 40), (IDS[3:30], 40))
"""Prompts of different lengths, and how many ids follow each."""
SCORED: Final = (0, 7, 39)
"""Positions of the first prompt whose logits are recorded."""

_SMALL: Final = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1,
}  # fmt: skip
_HEAD: Final = {"head_dim": 24}
_WINDOW: Final = {"sliding_window": 24}
_EXPERTS: Final = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}


def _rope(kind: str, **settings: object) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **settings}}


_GPT2: Final = {
    "vocab_size": 96, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512, "eos_token_id": 2,
}  # fmt: skip

MODELS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "llama 2": ("Llama", {"num_key_value_heads": 4}),
    "llama 3": ("Llama", {"tie_word_embeddings": True, **_rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64)}),
    "llama, yarn": ("Llama", _rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    "llama, linear, biases": ("Llama", {
        "attention_bias": True, "mlp_bias": True, **_rope("linear", factor=4.0)}),
    "mistral": ("Mistral", {**_HEAD, **_WINDOW}),
    "qwen 2": ("Qwen2", {
        **_WINDOW, "use_sliding_window": True, "max_window_layers": 1, "tie_word_embeddings": True}),
    "qwen 3": ("Qwen3", _HEAD),
    "gemma": ("Gemma", _HEAD),
    "gemma 2": ("Gemma2", {**_HEAD, **_WINDOW, "query_pre_attn_scalar": 20}),
    "gemma 3": ("Gemma3Text", {**_HEAD, **_WINDOW, "query_pre_attn_scalar": 20, "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}),
    "phi 3": ("Phi3", _WINDOW),
    "phi 3, long": ("Phi3", _rope(
        "longrope", short_factor=[1 + i / 10 for i in range(8)], long_factor=[2.0 + i for i in range(8)],
        original_max_position_embeddings=256, factor=2.0)),
    "olmo 2": ("Olmo2", {}),
    "gpt 2": ("GPT2", _GPT2),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen 2 moe": ("Qwen2Moe", {**_EXPERTS, "shared_expert_intermediate_size": 40}),
    "qwen 3 moe": ("Qwen3Moe", {**_EXPERTS, **_HEAD, "norm_topk_prob": True, "mlp_only_layers": [0]}),
    "gemma 2, without caps": ("Gemma2", {
        **_HEAD, **_WINDOW, "query_pre_attn_scalar": 20, "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "hidden_activation": "gelu"}),
    "gpt 2, scores as they are": ("GPT2", {**_GPT2, "scale_attn_weights": False}),
    "qwen 2 moe, lower windows": ("Qwen2Moe", {
        **_EXPERTS, **_WINDOW, "shared_expert_intermediate_size": 40, "num_hidden_layers": 3,
        "use_sliding_window": True, "max_window_layers": 2, "num_experts_per_tok": 1}),
    "qwen 3 moe, windows": ("Qwen3Moe", {
        **_EXPERTS, **_HEAD, "sliding_window": 8, "use_sliding_window": True, "decoder_sparse_step": 2}),
    "mixtral, no base": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 1}),
    "llama, two forms, another head": ("Llama", {}),
    "phi 3, past its context": ("Phi3", {"original_max_position_embeddings": 64, **_rope(
        "longrope", short_factor=[1 + i / 10 for i in range(8)], long_factor=[2.0 + i for i in range(8)],
        original_max_position_embeddings=300, factor=2.0)}),
}  # fmt: skip
"""Name -> the class of its settings (without "Config"), and the settings that differ from `_SMALL`."""
CHANGED: Final[dict[str, dict[str, Any]]] = {
    "qwen 2 moe, lower windows": {"layer_types": None},
    "mixtral, no base": {"rope_parameters": None},
    "llama, two forms, another head": {
        "rope_scaling": {"type": "linear", "factor": 3.0}, "rope_theta": 5000.0, "tie_word_embeddings": True},
}  # fmt: skip
"""Name -> what differs in `config.json` from the settings as they are saved."""


def weights(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the weights of some names and shapes: float32 numbers that bfloat16 has, too."""
    found, table = {}, 1.5 if "lm_head.weight" in shapes else 0.15
    for n, (name, shape) in enumerate(sorted(shapes.items())):
        x = np.random.RandomState(n).uniform(-1, 1, shape)
        if len(shape) == 1:
            x = 0.2 * x if "bias" in name else 0.6 + 0.3 * x
        else:
            x *= table if "embed" in name or ".wte" in name else 4 / shape[-1] ** 0.5
        found[name] = (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF_0000)).view(np.float32)
    return found


def record(torch: Any, transformers: Any, name: str) -> dict[str, Any]:
    """Return the settings, shapes, logits and ids of a model."""
    kind, settings = MODELS[name]
    given = settings if kind == "GPT2" else _SMALL | settings
    config = getattr(transformers, f"{kind}Config")(**given)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)  # the names in files differ from those in memory
        files = library("safetensors.numpy", cure="run it where transformers 5 is installed")
        shapes = {n: list(t.shape) for n, t in files.load_file(f"{folder}/model.safetensors").items()}
        files.save_file(weights(shapes), f"{folder}/model.safetensors", {"format": "pt"})
        kept = json.loads((Path(folder) / "config.json").read_text()) | CHANGED.get(name, {})
        (Path(folder) / "config.json").write_text(json.dumps(kept))
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32
        ).eval()
    greedy, margin = [], 1.0
    with torch.no_grad():
        logits = model(torch.tensor([PROMPTS[0][0]])).logits[0]
        for prompt, count in PROMPTS:
            out = model.generate(
                torch.tensor([prompt]), max_new_tokens=count, do_sample=False, eos_token_id=None,
                pad_token_id=0, output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
            greedy.append(out.sequences[0, len(prompt) :].tolist())
            top = torch.stack(out.logits)[:, 0].topk(2).values
            margin = min(margin, float(((top[:, 0] - top[:, 1]) / top.abs().amax()).min()))
    print(f"{kind}: {len(set(greedy[0]))} different ids, least margin {margin:.1e}", file=sys.stderr)
    return {
        "config": {k: v for k, v in kept.items() if k not in {"architectures", "transformers_version"}},
        "shapes": shapes,
        "logits": [[float(f"{v:.6g}") for v in logits[i].tolist()] for i in SCORED],
        "greedy": greedy,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records; return 0."""
    command("tests.oracles.language_models", __doc__).parse_args(argv)
    torch = pytorch()
    transformers = library("transformers", cure="run it where transformers 5 is installed")
    lines = [f"{json.dumps(name)}: {json.dumps(record(torch, transformers, name))}" for name in MODELS]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} models of transformers {transformers.__version__} in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))

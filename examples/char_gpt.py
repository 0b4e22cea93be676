"""Train a small character GPT on Python's own documentation, and let it write with a key-value cache.

    python examples/char_gpt.py
    python examples/char_gpt.py --device nv --steps 2000 --prompt "The class statement"

The text is the reference that every Python installation has (`pydoc_data.topics`). A training step (drawing
windows of the text, forward, backward, AdamW) is one captured launch. Writing is another one: a single
captured graph serves every position, because the position is a `Variable` and the keys and values of earlier
characters stay on the device.

Not here: how capture and symbolic sizes work. Next: docs/nn-and-tinyjit.md.
"""

from __future__ import annotations

import argparse
import math
import pydoc_data.topics
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from frontend import Device, Tensor, TinyJit, Variable, nn, stats
from hcq.errors import HcqError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Block(nn.Module):
    """Causal attention and two linear layers, each with a layer norm before it and a residual."""

    def __init__(self, width: int, heads: int, context: int) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads
        shape = (heads, context, width // heads)
        self.keys, self.values = [Tensor.zeros(*shape).contiguous().realize() for _ in range(2)]
        self.keys.requires_grad = self.values.requires_grad = False

    def parts(self, x: Tensor) -> list[Tensor]:
        """Return query, key and value (..., heads, time, depth) of (..., time, width)."""
        every = self.qkv(self.norm1(x)).chunk(3, -1)
        return [p.reshape(*x.shape[:-1], self.heads, -1).transpose(-3, -2) for p in every]

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """Return the block's result of its input and of the attended values (..., heads, time, depth)."""
        x = x + self.out(attended.transpose(-3, -2).reshape(x.shape))
        return x + self.down(self.up(self.norm2(x)).gelu())

    def forward(self, x: Tensor) -> Tensor:
        """Return the same shape of (batch, time, width)."""
        q, k, v = self.parts(x)
        return self.rest(x, q.scaled_dot_product_attention(k, v, is_causal=True))

    def at(self, x: Tensor, place: Variable) -> Tensor:
        """Return (1, width) of the character at a place, and store its key and value."""
        q, k, v = self.parts(x)
        self.keys[:, place : place + 1] = k
        self.values[:, place : place + 1] = v
        attended = q.scaled_dot_product_attention(self.keys[:, : place + 1], self.values[:, : place + 1])
        return self.rest(x, attended)


class CharGPT(nn.Module):
    """Characters (batch, time) to logits of the next ones (batch, time, vocabulary)."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, context: int) -> None:
        self.characters, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, context) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of all characters at once."""
        x = self.characters(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        found: Tensor = self.head(self.norm(x))
        return found

    def at(self, character: Tensor, place: Variable) -> Tensor:
        """Return the logits (vocabulary,) after a character (1,) at a place; those before it were given."""
        x = self.characters(character) + self.places.weight[place].reshape(1, -1)
        for block in self.blocks:
            x = block.at(x, place)
        found: Tensor = self.head(self.norm(x))
        return found.reshape(-1)


def text() -> str:
    """Return Python's reference as one text of plain characters."""
    every = "\n".join(pydoc_data.topics.topics.values())
    return "".join([c for c in every if c == "\n" or " " <= c <= "~"])


def windows(data: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return characters (windows, length) from each start on, and those after them."""
    places = starts.reshape(-1, 1) + Tensor.arange(length)
    return data[places], data[places + 1]


def train(model: CharGPT, data: Tensor, steps: int, batch: int, context: int) -> int:
    """Train; return how many kernels a step runs."""
    optimiser = nn.optim.AdamW(model.parameters(), lr=0.0)

    @TinyJit
    def step() -> Tensor:
        with Tensor.train():
            ids, after = windows(data, Tensor.randint(batch, high=len(data) - context - 1), context)
            loss = model(ids).flatten(0, 1).sparse_categorical_crossentropy(after.flatten()).backward()
            optimiser.step()
            return loss

    start, kernels = time.perf_counter(), 0
    for i in range(1, steps + 1):
        rise = min(1.0, i / 20)
        optimiser.lr = 4e-3 * rise * (0.1 + 0.45 * (1 + math.cos(math.pi * i / steps)))
        before = stats.kernels
        loss = step()
        kernels = stats.kernels - before
        if i % 10 == 0 or i == steps:
            progress(i, steps, f"loss {loss.item():.3f}", start)
    sys.stderr.write("\n")
    return kernels


def progress(done: int, every: int, what: str, start: float) -> None:
    """Draw the progress bar on stderr."""
    full = done * 30 // every
    bar = "#" * full + "." * (30 - full)
    sys.stderr.write(f"\r[{bar}] step {done}/{every}  {what}  {time.perf_counter() - start:.1f} s ")
    sys.stderr.flush()


class Writer:
    """Writes character by character with one captured graph: see `CharGPT.at`."""

    def __init__(self, model: CharGPT, context: int, temperature: float) -> None:
        self.place = Variable("place", 0, context - 1)
        self.context = context

        @TinyJit
        def step(character: Tensor, place: Variable) -> tuple[Tensor, Tensor]:
            logits = model.at(character, place)
            noise = -(-(Tensor.rand(*logits.shape) + 1e-9).log()).log()  # its largest sum is a draw
            return (logits / temperature + noise).argmax(0).reshape(1), logits

        self.step = step

    def write(self, prompt: list[int], count: int) -> Iterator[int]:
        """Yield `count` characters after a prompt; together they fit the context."""
        character = Tensor([prompt[0]]).realize()
        for i in range(min(len(prompt) + count - 1, self.context)):
            drawn, self.logits = self.step(character, self.place.bind(i))
            given = i + 1 < len(prompt)
            character = Tensor([prompt[i + 1]]).realize() if given else drawn
            if not given:
                yield int(character.item())


def main() -> int:
    """Train, test, write; 1 when the loss on held-out text is too high."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default=None, help="such as cpu, nv; default: HCQ_DEVICE or any")
    parser.add_argument("--steps", type=int, default=300, help="(default 300)")
    parser.add_argument("--batch", type=int, default=12, help="windows a step")
    parser.add_argument("--context", type=int, default=96, help="characters of a window")
    parser.add_argument("--width", type=int, default=96, help="of the model (default 96)")
    parser.add_argument("--layers", type=int, default=3, help="of the model (default 3)")
    parser.add_argument("--prompt", default="The statement ", help="the text begins so")
    parser.add_argument(
        "--temperature", type=float, default=0.6, help="small: likely characters only (default 0.6)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches (default 0)")
    parser.add_argument("--max-loss", type=float, default=2.3, help="exit with 1 above it, nats a character")
    args = parser.parse_args()
    try:
        Device.DEFAULT = args.device or Device.DEFAULT
        Device[Device.DEFAULT]  # opens it
    except HcqError as error:
        parser.error("\n".join([str(error), *getattr(error, "__notes__", [])]))
    Tensor.manual_seed(args.seed)
    whole = text()
    characters = sorted(set(whole) | set(args.prompt))
    number = {c: i for i, c in enumerate(characters)}
    ids = np.array([number[c] for c in whole])
    cut = len(ids) * 9 // 10
    start = time.perf_counter()
    model = CharGPT(len(characters), args.width, 4, args.layers, args.context)
    kernels = train(model, Tensor(ids[:cut]), args.steps, args.batch, args.context)
    model.eval()
    held = Tensor(ids[cut:])
    starts = Tensor(np.linspace(0, len(ids) - cut - args.context - 2, 32).astype(np.int64))
    given, after = windows(held, starts, args.context)
    loss = model(given).flatten(0, 1).sparse_categorical_crossentropy(after.flatten()).item()
    print(f"device: {Device.DEFAULT} ({Device[Device.DEFAULT].hcq.info.name})")
    print(f"kernels a step: {kernels}")
    print(f"time: {time.perf_counter() - start:.1f} s for {args.steps} steps of {args.batch} windows")
    writer, start = Writer(model, args.context, args.temperature), time.perf_counter()
    prompt = [number[c] for c in args.prompt]
    written = "".join([characters[i] for i in writer.write(prompt, args.context - len(prompt))])
    rate = len(written) / (time.perf_counter() - start)
    print(f"written at {rate:.0f} characters/s, one captured graph: {args.prompt}{written!r}")
    print(f"held-out loss: {loss:.3f} nats a character (uniform: {math.log(len(characters)):.3f})")
    return 0 if loss <= args.max_loss else 1


if __name__ == "__main__":
    sys.exit(main())

"""GGUF files of quantised language models equal `transformers` (recorded by `tests.oracles.gguf_models`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, llm, nn
from frontend.llm.weights import WeightMatrix
from frontend.nn.state.gguf import PACKINGS
from hcq.errors import UnsupportedError, UsageError
from tests.frontend.llm.test_language_models import near
from tests.oracles.gguf_models import COUNT, IDS, MODELS, SCORED, tensors, write

DATA = Path(__file__).parents[1] / "data"
WANT = json.loads((DATA / "gguf_models.json").read_text())


@pytest.mark.slow
@pytest.mark.sampled(144)
@pytest.mark.parametrize("name", MODELS)
def test_quantised_models_equal_transformers(name: str, tmp_path: Path):
    model = llm.load(write(tmp_path / "model.gguf", name))
    near(model.logits(IDS).numpy()[list(SCORED)], np.array(WANT[name]["logits"]))
    assert list(model.generate(IDS, max_tokens=COUNT, stop=())) == WANT[name]["greedy"]


def test_weights_keep_the_bytes_of_the_file(tmp_path: Path):
    model = llm.load(write(tmp_path / "model.gguf", "llama, Q8_0"))
    block = model.decoder.blocks[0]
    matrix, _, sizes = block.attention.qkv.parts[0]  # one product of three matrices
    assert (matrix.data.shape, matrix.data.dtype.name, sizes) == ((512, 8, 34), "uint8", (256, 128, 128))
    assert matrix.data[:256].tobytes() in (tmp_path / "model.gguf").read_bytes()
    assert matrix.floats().shape == (512, 256)
    x = Tensor.ones(1, 256).realize()
    near(matrix.product(x).numpy(), matrix.floats().numpy().sum(1)[None], 1e-5)


@pytest.mark.parametrize("kind", PACKINGS, ids=lambda kind: PACKINGS[kind].name)
@pytest.mark.parametrize(("outputs", "blocks"), [(1, 1), (1, 3), (2, 1), (5, 2), (33, 7)])
def test_products_with_one_row_equal_those_of_dequantised_blocks(kind: int, outputs: int, blocks: int):
    packing = PACKINGS[kind]
    with np.load(DATA / "checkpoints" / "blocks.npz") as data:
        raw, want = data[f"raw_{packing.name}"], data[f"want_{packing.name}"]
    drawn = np.random.RandomState(outputs * blocks).randint(0, len(raw), (outputs, blocks))
    x = np.cos(np.arange(blocks * packing.elements, dtype=np.float32))
    got = WeightMatrix(Tensor(raw[drawn]), packing).product(Tensor(x[None])).numpy()
    w, most = want[drawn].astype(np.float64), np.abs(x.reshape(blocks, -1)).max(-1)
    rounded = np.abs(w).sum(-1) @ most * (0.5 / 32767 if packing.elements == 256 else 0)  # elements of x
    bound = rounded + 1e-6 * np.abs(w.reshape(outputs, -1)) @ np.abs(x)
    assert (np.abs(got[0] - w.reshape(outputs, -1) @ x) <= bound).all()


@pytest.mark.slow
@pytest.mark.parametrize("device", ["nv-emu", "amd-emu"])
def test_emulated_gpus_multiply_quantised_matrices(device: str):
    """Each packing: a product of 3 rows of one block, which the kernel dequantises or takes as integers."""
    with np.load(DATA / "checkpoints" / "blocks.npz") as data:
        for packing in PACKINGS.values():
            raw, want = data[f"raw_{packing.name}"], data[f"want_{packing.name}"]
            matrix = WeightMatrix(Tensor(raw[:, None], device=device), packing)
            x = np.cos(np.arange(packing.elements, dtype=np.float32))[None]
            near(matrix.product(Tensor(x, device=device)).numpy(), x @ want.T, 1e-5)
            if packing.factors is not None and not packing.table:
                got = matrix._in_whole_numbers(Tensor(x, device=device), packing).numpy()
                near(got[None], x @ want.T, 1e-4)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"general.architecture": "mamba"}, "wanted an architecture of llama, .*saw 'mamba'"),
        ({"general.architecture": 3}, "a text for general.architecture"),
        ({"llama.block_count": 3}, "no weight attn_"),
        ({"llama.block_count": "2"}, "whole number"),
        ({"llama.attention.head_count_kv": [2, 2]}, "whole number"),
        ({"llama.embedding_length": 512}, "wanted the shape"),
        ({"llama.rope.scaling.type": "other"}, "wanted a scaling"),
        ({"llama.rope.scaling.type": "yarn"}, "factor"),
        ({"llama.rope.dimension_count": 63}, "even"),
        ({"llama.attention.layer_norm_rms_epsilon": "x"}, "number"),
        ({"llama.attention.clamp_kqv": 3.0}, "clamp_kqv is 3.0, and not known"),
        ({"llama.logit_scale": 0.5}, "logit_scale is 0.5"),
        ({"llama.rope.scale_linear": 2.0}, "scale_linear"),
        ({"llama.attention.causal": False}, "causal"),
        ({"llama.expert_gating_func": 2}, "gating_func"),
        ({"llama.rope.scaling.attn_factor": 1.5}, "attn_factor"),
    ],
)
def test_metadata_that_no_model_has_are_refused(more: dict[str, Any], match: str, tmp_path: Path):
    path = write(tmp_path / "model.gguf", "llama, Q8_0", more)
    with pytest.raises((UsageError, UnsupportedError), match=match) as seen:
        llm.load(path)
    assert "model.gguf" in str(seen.value)


def test_norms_in_blocks_are_read_as_blocks(tmp_path: Path):
    """Norms of Q8_0 equal those of float32 with the values of the blocks; other tensors are not used."""
    norms = {n: ("Q8_0", s) for n, (_, s) in tensors("llama", "Q8_0", "Q8_0").items() if "norm" in n}
    path = write(tmp_path / "model.gguf", "llama, Q8_0", changed=norms)
    model = llm.load(path)
    with nn.state.gguf_open(path) as file:
        assert file.entries["output_norm.weight"].packing is not None
        near(model.decoder.norm.weight.numpy(), file["output_norm.weight"].numpy(), 0)
    further = {"blk.1.attn_q.bias": ("F32", (256,)), "blk.0.attn_q_norm.weight": ("F32", (64,))}
    with pytest.raises(UsageError, match=r"1 weights are not used, such as blk\.0\.attn_q_norm\.weight"):
        llm.load(write(tmp_path / "model.gguf", "llama, Q8_0", changed=further))

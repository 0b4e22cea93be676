"""Layers against NumPy, and their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from frontend import Tensor, dtypes, nn
from hcq.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(2)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def close(got: Tensor, want: object) -> None:
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


def test_conv2d_layer():
    layer, x = nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), array(1, 4, 7, 7)
    assert layer.weight.shape == (6, 2, 3, 3)
    want = Tensor(x).conv2d(layer.weight, layer.bias, groups=2, stride=2, padding=1).numpy()
    close(layer(Tensor(x)), want)
    assert np.abs(layer.weight.numpy()).max() <= 1 / np.sqrt(18)
    with pytest.raises(UsageError, match="groups"):
        nn.Conv2d(3, 6, 3, groups=2)


def test_batchnorm_updates_statistics_in_training_and_uses_them_after():
    layer, x = nn.BatchNorm(3), array(8, 3, 4, 4)
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    want = (x - mean[:, None, None]) / np.sqrt(var[:, None, None] + 1e-5)
    with Tensor.train():
        close(layer(Tensor(x)), want)
    close(layer.running_mean, 0.1 * mean)
    close(layer.running_var, 0.9 + 0.1 * var * 128 / 127)
    assert layer.num_batches_tracked.item() == 1
    m, v = layer.running_mean.numpy(), layer.running_var.numpy()
    layer.eval()
    close(layer(Tensor(x)), (x - m[:, None, None]) / np.sqrt(v[:, None, None] + 1e-5))
    assert layer.num_batches_tracked.item() == 1


def test_embedding():
    layer = nn.Embedding(7, 3)
    close(layer(Tensor([[0, 6], [2, 2]])), layer.weight.numpy()[[[0, 6], [2, 2]]])
    with pytest.raises(UsageError, match="integers"):
        layer(Tensor([0.5]))


def test_dropout_layer():
    x = Tensor.ones(100)
    assert 0 < nn.Dropout(0.5)(x).sum().item() < 200
    assert nn.Dropout(0.5).eval()(x) is x
    with Tensor.train(False):
        assert nn.Dropout(0.5)(x) is x
    with Tensor.train():
        assert 0 < nn.Dropout(0.5)(x).sum().item() < 200


def test_training_mode_is_restored_after_an_error():
    with pytest.raises(ValueError, match="x"), Tensor.train():
        raise ValueError("x")
    assert not Tensor.training


class Model:
    def __init__(self) -> None:
        self.layers = [nn.Linear(4, 8), Tensor.relu, nn.BatchNorm(8)]
        self.head = {"out": nn.Linear(8, 2)}
        self.name = "model"

    def __call__(self, x: Tensor) -> Tensor:
        return self.head["out"](x.sequential(self.layers))


def test_the_state_is_found_by_walking_attributes():
    names = list(nn.state.get_state_dict(Model()))
    assert names == [
        "layers.0.weight",
        "layers.0.bias",
        "layers.2.weight",
        "layers.2.bias",
        "layers.2.running_mean",
        "layers.2.running_var",
        "layers.2.num_batches_tracked",
        "head.out.weight",
        "head.out.bias",
    ]


def test_safetensors_round_trip(tmp_path: Path):
    state = {
        "a": Tensor(array(2, 3)),
        "b": Tensor([1, 2, 3], dtype=dtypes.int8),
        "c": Tensor([1.5], dtype=dtypes.bfloat16),
        "d": Tensor(2.5),
    }
    path = tmp_path / "x.safetensors"
    nn.state.safe_save(state, path, {"note": "hello"})
    got = nn.state.safe_load(path)
    assert list(got) == list(state)
    for name, t in state.items():
        assert (got[name].dtype, got[name].shape) == (t.dtype, t.shape)
        np.testing.assert_array_equal(got[name].numpy(), t.numpy())
    assert nn.state.safe_metadata(path) == {"note": "hello"}


def test_the_safetensors_layout_is_the_published_one(tmp_path: Path):
    import json

    path = tmp_path / "x.safetensors"
    nn.state.safe_save({"t": Tensor([1.0, 2.0])}, path)
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    assert json.loads(raw[8 : 8 + size]) == {"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    assert np.frombuffer(raw[8 + size :], np.float32).tolist() == [1.0, 2.0]
    assert (8 + size) % 8 == 0


def test_broken_files_are_refused(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(UsageError, match="no safetensors file"):
        nn.state.safe_load(path)
    path.write_bytes(b"")
    for read in (nn.state.safe_load, nn.state.safe_metadata):
        with pytest.raises(UsageError, match="empty"):
            read(path)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        {},
        {"dtype": "F32"},
        {"dtype": "F9", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, "8"]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [2], "data_offsets": [True, 9]},
    ],
)
def test_malformed_entries_are_refused_by_name(entry: object, tmp_path: Path):
    import json

    path = tmp_path / "x.safetensors"
    header = json.dumps({"weight": entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(UsageError, match="weight"):
        nn.state.safe_load(path)


def test_loading_a_state_stores_in_place_and_checks():
    one, two = Model(), Model()
    x = Tensor(array(3, 4))
    Tensor.realize(*nn.state.get_parameters(one))
    before = one.layers[0].weight.leaves[0].buffer
    nn.state.load_state_dict(one, nn.state.get_state_dict(two))
    close(one(x), two(x).numpy())
    assert one.layers[0].weight.leaves[0].buffer is before
    with pytest.raises(UsageError, match="missing"):
        nn.state.load_state_dict(one, {"x": Tensor([1.0])})
    with pytest.raises(UsageError, match=r"shape \(8, 4\)"):
        nn.state.load_state_dict(one, {"layers.0.weight": Tensor([1.0])}, strict=False)

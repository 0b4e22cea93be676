"""Models of ONNX files that tests write: values against NumPy, dtypes, control flow, errors, captures."""

from __future__ import annotations

import contextlib
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import frontend
from frontend import Tensor, TinyJit, onnx
from frontend.onnx import wire
from frontend.onnx.table import TABLE
from hcq.errors import HcqError, UnsupportedError, UsageError
from tests.support.onnx_files import encoded, graph, info, model, node

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 6, 5)).astype(np.float32)


def saved(folder: Path, stored: wire.StoredModel) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(encoded(stored))
    return path


def run(folder: Path, kind: str, *inputs: Any, opset: int = 17, outputs: int = 1, **attributes: Any) -> Any:
    """Return the outputs of a model of one operator, whose inputs are arrays; None leaves one out."""
    arrays = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if x is not None}
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    ends = [f"y{i}" for i in range(outputs)]
    body = graph(
        [node(kind, names, ends, **attributes)],
        [info(n, a.dtype.name, a.shape) for n, a in arrays.items()],
        [wire.ValueInfo(n) for n in ends],
    )
    found = onnx.load(saved(folder, model(body, opset=opset)))(**{n: Tensor(a) for n, a in arrays.items()})
    values = [t.numpy() for t in found.values()]
    return values[0] if outputs == 1 else values


@pytest.mark.parametrize(
    ("kind", "values", "attributes", "want"),
    [
        ("Max", np.float16([0.5, 1, -0.5]), {}, np.float16(1)), ("Min", [3, -1, 2], {}, -1),
        ("Sum", np.float32([1, 2, 4]), {}, np.float32(7)),
        ("Cast", np.float16([-1.75]), {"to": 5}, np.int16(-1)),
        ("CastLike", np.float64([2.5, 1]), {}, 2.5), ("Clip", [9, -1, 5], {}, 5), ("Div", [-7, 2], {}, -3),
    ],
)  # fmt: skip
def test_constants_of_no_axis_are_computed_on_the_host(
    kind: str, values: Any, attributes: Any, want: Any, tmp_path: Path
):
    constants = {f"c{i}": np.asarray(v) for i, v in enumerate(values)}
    assert all(v.shape == () for v in constants.values())
    body = graph([node(kind, [*constants], ["y"], **attributes)], [], [wire.ValueInfo("y")], constants)
    found = onnx.load(saved(tmp_path, model(body, opset=19)))()["y"].numpy()
    assert (found, found.dtype) == (want, np.asarray(want).dtype)


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def convolved(x: Any, w: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w.shape[2:], (2, 3)
    )
    return np.einsum("bchwij,ocij->bohw", windows, w)


WEIGHT = RNG.standard_normal((4, 2, 3, 3)).astype(np.float32)
I64 = np.int64
PADS, PAIRS = np.array([0, 1, 0, 0, 0, 2]), ((0, 0), (1, 0), (0, 2))
DEVIATION = np.sqrt(X.var(-1, keepdims=True) + 1e-5)
HALF = np.float32(0.5)
ONES = np.full((1, 1, 1), -2, np.float32), np.ones((2, 1, 1), np.float32)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "want"),
    [
        ("Add", (X, X[0]), {}, X + X[0]),
        ("Div", (np.array([-7, 7]), np.array([2, -2])), {}, np.array([-3, -3])),
        ("Mod", (np.array([-7, 7]), np.array([2, -2])), {}, np.array([1, -1])),
        ("Mod", (np.array([-7, 7]), np.array([2, -3])), {"fmod": 1}, np.array([-1, 1])),
        ("Relu", (X,), {}, np.maximum(X, 0)),
        ("LeakyRelu", (X,), {"alpha": 0.2}, np.where(X < 0, X * np.float32(0.2), X)),
        ("Clip", (X, np.float32(-0.5), None), {}, np.maximum(X, -0.5)),
        ("Cast", (X,), {"to": 7}, X.astype(I64)),
        ("Where", (X > 0, X, -X), {}, np.abs(X)),
        ("Reshape", (X, np.array([0, -1])), {}, X.reshape(2, 12)),
        ("Transpose", (X,), {"perm": [2, 0, 1]}, X.transpose(2, 0, 1)),
        ("Squeeze", (X[:1], np.array([0])), {}, X[0]),
        ("Unsqueeze", (X, np.array([0, -1])), {}, X[None, ..., None]),
        ("Concat", (X, X + 1), {"axis": -1}, np.concatenate([X, X + 1], -1)),
        ("Slice", (X, *map(np.array, ([9, 0], [-9, 2], [2, 1], [-2, 1]))), {}, X[:, 0:2, ::-2]),
        ("Gather", (X, np.array([[0, -1]])), {"axis": 1}, X[:, [[0, -1]]]),
        ("GatherElements", (X, np.zeros((1, 3, 4), I64)), {}, X[:1]),
        ("GatherND", (X, np.array([[0, 1], [1, -1]])), {}, X[[0, 1], [1, -1]]),
        ("Expand", (X[:, :1], np.array([3, 1])), {}, np.broadcast_to(X[:, :1], (2, 3, 4))),
        ("Tile", (X, np.array([1, 2, 1])), {}, np.tile(X, (1, 2, 1))),
        ("Pad", (X, PADS, np.float32(7)), {}, np.pad(X, PAIRS, constant_values=7)),
        ("Pad", (X, PADS), {"mode": "reflect"}, np.pad(X, PAIRS, mode="reflect")),
        ("ReduceSum", (X, np.array([1])), {"keepdims": 0}, X.sum(1)),
        ("ReduceMean", (X,), {"axes": [0, 2]}, X.mean((0, 2), keepdims=True)),
        ("ArgMax", (X,), {"axis": 2, "keepdims": 0}, X.argmax(2)),
        ("Softmax", (X,), {"axis": 1}, softmax(X, 1)),
        ("CumSum", (X, np.array(1)), {"exclusive": 1}, np.cumsum(X, 1) - X),
        ("MatMul", (X, X[0].T), {}, X @ X[0].T),
        ("Gemm", (X[0], X[1], X[0, :, :3]), {"transB": 1, "alpha": 0.5}, 0.5 * X[0] @ X[1].T + X[0, :, :3]),
        ("Conv", (IMAGE, WEIGHT), {"pads": [1, 1, 1, 1]}, convolved(IMAGE, WEIGHT)),
        ("Conv", (IMAGE, WEIGHT), {"auto_pad": "SAME_UPPER"}, convolved(IMAGE, WEIGHT)),
        ("MaxPool", (IMAGE,), {"kernel_shape": [2, 5], "strides": [2, 1]},
         IMAGE.reshape(1, 2, 3, 10).max(-1)[..., None]),
        ("AveragePool", (IMAGE,), {"kernel_shape": [6, 5]}, IMAGE.mean((2, 3), keepdims=True)),
        ("GlobalAveragePool", (IMAGE,), {}, IMAGE.mean((2, 3), keepdims=True)),
        ("LayerNormalization", (X, np.ones(4, np.float32)), {}, (X - X.mean(-1, keepdims=True)) / DEVIATION),
        ("ScatterND", (X[0], np.array([[1]]), X[1, :1]), {}, np.stack([X[0, 0], X[1, 0], X[0, 2]])),
        ("OneHot", (np.array([1, -1]), np.array(3), np.array([True, False])), {},
         ~np.eye(3, dtype=bool)[[1, 2]]),
        ("OneHot", (np.array([1, -1]), np.array(3), np.array([0, 2], np.int32)), {},
         np.eye(3, dtype=np.int32)[[1, 2]] * 2),
        ("Trilu", (X, np.array(1)), {}, np.triu(X, 1)),
        ("NonZero", (np.array([[0, 1], [2, 0]]),), {}, np.array([[0, 1], [1, 0]])),
        ("DequantizeLinear", (np.array([3, 255], np.uint8), HALF, np.uint8(3)), {},
         np.array([0, 126], np.float32)),
        ("QuantizeLinear", (np.array([1.25, -9, 900], np.float32), HALF, np.int8(1)), {},
         np.array([3, -17, 127], np.int8)),
        ("Range", (np.array(1), np.array(8), np.array(3)), {}, np.array([1, 4, 7])),
        ("RNN", (*ONES, np.zeros((2, 1, 1), np.float32)),
         {"direction": "bidirectional", "activations": ["Relu", "Affine"], "activation_alpha": [0.5],
          "activation_beta": [0.25]}, np.float32([0, -0.75]).reshape(1, 2, 1, 1)),
        ("Einsum", (X, X), {"equation": "bij, bkj -> bik"}, X @ X.transpose(0, 2, 1)),
    ],
)  # fmt: skip
def test_operators_compute_what_numpy_does(
    kind: str, inputs: Any, attributes: Any, want: Any, tmp_path: Path
):
    found = run(tmp_path, kind, *inputs, **attributes)
    assert (found.dtype, found.shape) == (want.dtype, want.shape)
    if want.dtype.kind == "f":
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("opset", "kind", "inputs", "attributes", "want"),
    [
        (7, "Softmax", (X,), {}, softmax(X.reshape(2, 12), 1).reshape(X.shape)),
        (7, "Slice", (X,), {"starts": [1], "ends": [9], "axes": [2]}, X[..., 1:]),
        (7, "Squeeze", (X[:1],), {"axes": [0]}, X[0]),
        (9, "TopK", (X,), {"k": 2}, np.sort(X, -1)[..., :-3:-1]),
        (7, "Unsqueeze", (X,), {"axes": [-1]}, X[..., None]),
        (8, "Upsample", (X[None],), {"scales": [1.0, 1.0, 2.0, 2.0]}, X[None].repeat(2, 2).repeat(2, 3)),
        (
            10,
            "Pad",
            (X,),
            {"pads": [0, 1, 0, 0, 0, 2], "value": 3.0},
            np.pad(X, [(0, 0), (1, 0), (0, 2)], constant_values=3),
        ),
        (10, "Clip", (X,), {"max": 0.25}, np.minimum(X, 0.25)),
        (10, "Clip", (np.float32([-np.inf, 3]),), {}, np.float32([np.finfo(np.float32).min, 3])),
        (13, "DynamicQuantizeLinear", (np.zeros(3, np.float32),), {}, np.zeros(3)),
        (12, "Split", (X,), {"axis": 2}, X[..., :2]),
        (12, "ReduceSum", (X,), {"axes": [1], "keepdims": 0}, X.sum(1)),
        (22, "ReduceMax", (X, np.array([-1])), {}, X.max(-1, keepdims=True)),
    ],
)
def test_operators_have_the_meaning_of_their_opset(  # noqa: PLR0917 - one case
    opset: int, kind: str, inputs: Any, attributes: Any, want: Any, tmp_path: Path
):
    outputs = {"TopK": 2, "Split": 2, "DynamicQuantizeLinear": 3}.get(kind, 1)
    found = run(tmp_path, kind, *inputs, opset=opset, outputs=outputs, **attributes)
    assert outputs < 3 or [v.item() for v in found[1:]] == [np.float32(1 / 255), 0]  # ONNX's reference
    np.testing.assert_allclose(found[0] if outputs > 1 else found, want, rtol=1e-6)


def reshaping() -> wire.StoredModel:
    """Return a model that flattens all but the first axis, by arithmetic on the shape, times a constant."""
    return model(
        graph(
            [
                node("Shape", ["x"], ["shape"]),
                node("Gather", ["shape", "zero"], ["n"]),
                node("Unsqueeze", ["n", "axes"], ["first"]),
                node("Concat", ["first", "rest"], ["sizes"], axis=0),
                node("Reshape", ["x", "sizes"], ["flat"]),
                node("Transpose", ["w"], ["turned"]),
                node("MatMul", ["flat", "turned"], ["y"]),
            ],
            [info("x", "float32", ["n", 3, 4])],
            [info("y", "float32", ["n", 2])],
            {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1]),
             "w": np.arange(24, dtype=np.float32).reshape(2, 12)},
        )
    )  # fmt: skip


def test_shapes_are_computed_without_reading_the_device_and_calls_are_captured(tmp_path: Path):
    loaded = onnx.load(saved(tmp_path, reshaping()))
    assert loaded.inputs["x"].shape == ("n", 3, 4)
    assert loaded.outputs["y"].shape == ("n", 2)
    want = np.arange(24, dtype=np.float32).reshape(2, 12).T
    jitted = TinyJit(loaded)
    for k in range(4):
        np.testing.assert_allclose(
            jitted(x=Tensor(X + k))["y"].numpy(), (X + k).reshape(2, 12) @ want, rtol=1e-5
        )
    np.testing.assert_allclose(loaded(x=X[:1])["y"].numpy(), X[:1].reshape(1, 12) @ want, rtol=1e-5)


def test_a_model_is_compiled_with_an_array_from_outside(tmp_path: Path):
    loaded = onnx.load(saved(tmp_path, counting()))
    flag, count, x = np.array([True]).reshape(()), np.array(2), np.array([1.0, 2.0], np.float32)
    jitted = TinyJit(lambda x: loaded(flag=flag, count=count, x=x)["y"])
    compiled = frontend.compile(onnx.load(saved(tmp_path, reshaping())))
    for k in range(4):
        np.testing.assert_allclose(jitted(Tensor(x + k)).numpy(), (x + k) * 3)
        found = compiled(x=Tensor(X + k))["y"].numpy()
        np.testing.assert_allclose(found, (X + k).reshape(2, 12) @ np.arange(24).reshape(2, 12).T, rtol=1e-5)
    assert not compiled.plain


def counting() -> wire.StoredModel:
    """Return a model of an If around a Loop: adds x `count` times if `flag` is set, else returns x."""
    turn = graph(
        [node("Add", ["carried", "x"], ["sum"]), node("Identity", ["going"], ["again"]),
         node("Identity", ["sum"], ["collected"])],
        [info("i", "int64", []), info("going", "bool", []), info("carried", "float32", None)],
        [wire.ValueInfo("again"), wire.ValueInfo("sum"), wire.ValueInfo("collected")],
    )  # fmt: skip
    looped = graph(
        [node("Loop", ["count", "", "x"], ["total", "all"], body=turn)],
        [],
        [wire.ValueInfo("total"), wire.ValueInfo("all")],
    )
    plain = graph(
        [node("Identity", ["x"], ["same"]), node("Unsqueeze", ["x", "axes"], ["one"])],
        [], [wire.ValueInfo("same"), wire.ValueInfo("one")], {"axes": np.array([0])},
    )  # fmt: skip
    return model(
        graph(
            [node("If", ["flag"], ["y", "rows"], then_branch=looped, else_branch=plain)],
            [info("flag", "bool", []), info("count", "int64", []), info("x", "float32", [2])],
            [info("y", "float32", [2]), info("rows", "float32", [None, 2])],
        )
    )


@pytest.mark.parametrize("host", [1, 0])
def test_branches_and_loops_read_outer_values(host: int, tmp_path: Path):
    loaded = onnx.load(saved(tmp_path, counting()))
    x = np.array([1.0, 2.0], np.float32)
    for flag, count in ((True, 3), (False, 3)):
        given: list[Any] = [np.array(flag), np.array(count)]
        if not host:
            given = [Tensor(v) for v in given]
        found = loaded(flag=given[0], count=given[1], x=x)
        want = [x * 2, x * 3, x * 4] if flag else [x]
        np.testing.assert_allclose(found["y"].numpy(), want[-1])
        np.testing.assert_allclose(found["rows"].numpy(), want)


def test_functions_of_the_file_take_attributes(tmp_path: Path):
    scaled = wire.StoredFunction(
        "Scaled", ["v"], ["w"], ["alpha"],
        [wire.StoredNode(["v"], ["w"], "", "LeakyRelu", [wire.Attribute("alpha", ref_attr_name="alpha")])],
        [wire.OperatorSet("", 17)], "own",
    )  # fmt: skip
    body = graph(
        [node("Scaled", ["x"], ["y"], domain="own", alpha=0.5), node("Scaled", ["x"], ["z"], domain="own")],
        [info("x", "float32", [2])], [info("y", "float32", [2]), info("z", "float32", [2])],
    )  # fmt: skip
    found = onnx.load(saved(tmp_path, model(body, functions=[scaled])))(x=[-1.0, 1.0])
    np.testing.assert_allclose(found["y"].numpy(), [-0.5, 1])
    np.testing.assert_allclose(found["z"].numpy(), [-0.01, 1], rtol=1e-6)


def with_file(location: str, length: int = 8, offset: int = 4) -> wire.StoredModel:
    """Return a model whose constant of two floats is in a file."""
    stored = wire.StoredTensor([2], 1, name="w", data_location=1)
    pairs = {"location": location, "offset": str(offset), "length": str(length)}
    stored.external_data = [wire.Entry(k, v) for k, v in pairs.items()]
    body = graph([node("Add", ["x", "w"], ["y"])], [info("x", "float32", [2])], [info("y", "float32", [2])])
    body.initializer.append(stored)
    return model(body)


def test_weights_are_read_from_files_beside_the_model(tmp_path: Path):
    (tmp_path / "weights").write_bytes(np.array([9, 1, 2], np.float32).tobytes())
    found = onnx.load(saved(tmp_path, with_file("weights")))(x=[1.0, 1.0])
    np.testing.assert_allclose(found["y"].numpy(), [2, 3])


@pytest.mark.parametrize("location", ["../secret", "{}/secret", "link", "", "..", "a/../../secret", "x\0y"])
def test_weights_outside_of_the_folder_are_refused(location: str, tmp_path: Path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(bytes(64))
    (inside / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="no file within the folder"):
        onnx.load(saved(inside, with_file(location.format(tmp_path))))


def test_weights_beyond_the_end_of_their_file_are_refused(tmp_path: Path):
    (tmp_path / "weights").write_bytes(bytes(8))
    with pytest.raises(UsageError, match="wanted 8 bytes at 4"):
        onnx.load(saved(tmp_path, with_file("weights")))
    with pytest.raises(UsageError, match="length of 4294967296"):
        onnx.load(saved(tmp_path, with_file("weights", length=1 << 32)))


def test_unknown_operators_are_refused_at_once_with_the_nearest(tmp_path: Path):
    body = graph(
        [node("Convv", ["x"], ["y"]), node("Own", ["y"], ["z"], domain="com.example")],
        [info("x", "float32", [2])], [info("z", "float32", [2])],
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"Convv of opset 17 \(nearest: Conv\); com.example.Own"):
        onnx.load(saved(tmp_path, model(body)))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "'x' is missing; the inputs are x"),
        ({"x": X, "z": X}, "there is no 'z'"),
        ({"x": X.astype(np.float64)}, "wanted float32, saw float64"),
        ({"x": X[0]}, r"wanted the shape \('n', 3, 4\)"),
    ],
)
def test_wrong_inputs_are_named(given: Any, match: str, tmp_path: Path):
    loaded = onnx.load(saved(tmp_path, reshaping()))
    with pytest.raises(UsageError, match=match):
        loaded(**given)


def test_attributes_that_an_operator_lacks_are_refused(tmp_path: Path):
    for attributes, match in (
        ({"alpha": 1.0}, "no attribute 'alpha'"),
        ({"axis": 1.0}, "wanted int"),
        ({}, "wanted 1"),
    ):
        inputs = ["x"] if attributes else ["x", "x"]
        body = graph(
            [node("Softmax", inputs, ["y"], **attributes)],
            [info("x", "float32", [2])],
            [info("y", "float32", [2])],
        )
        with pytest.raises(UsageError, match=match):
            onnx.load(saved(tmp_path, model(body)))


@pytest.mark.parametrize("n", [1 << 40, 1 << 62])
def test_constants_of_huge_shapes_are_not_computed_at_load(n: int, tmp_path: Path):
    body = graph(
        [node("ConstantOfShape", ["shape"], ["big"]), node("NonZero", ["big"], ["y"])], [],
        [info("y", "int64", None)], {"shape": np.array([n])},
    )  # fmt: skip
    assert onnx.load(saved(tmp_path, model(body))).outputs.keys() == {"y"}


@pytest.mark.parametrize("count", [300, pytest.param(4700, marks=pytest.mark.landing)])
def test_damaged_files_raise_clear_errors(count: int, tmp_path: Path):
    path = saved(tmp_path, reshaping())
    sources = [path.read_bytes(), encoded(counting()), encoded(with_file("weights"))]
    draw = random.Random(count)
    for _ in range(count):
        data = bytearray(draw.choice(sources))
        for _ in range(draw.randint(1, 4)):
            at, kind = draw.randrange(len(data)), draw.randrange(4)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                data[at] ^= 1 << draw.randrange(8)
            elif kind == 2:
                del data[at : at + draw.randint(1, 9)]
            else:
                data[at:at] = draw.randbytes(draw.randint(1, 9))
        path.write_bytes(data)
        with contextlib.suppress(UsageError, UnsupportedError):
            onnx.load(path)


def test_the_table_has_each_opset_of_an_operator_once():
    seen: dict[tuple[str, str], list[range]] = {}
    for row in TABLE:
        seen.setdefault((row.domain, row.name), []).append(range(row.since, row.until + 1))
    for name, opsets in seen.items():
        ordered = sorted(opsets, key=lambda r: r.start)
        assert all(a.stop == b.start for a, b in pairwise(ordered)), name
        assert ordered[-1].stop > 28, name


def test_messages_within_each_other_have_a_limit():
    data = b""
    for _ in range(100):  # a graph in an attribute of a node of a graph
        for key in (0x32, 0x2A, 0x0A):
            data = bytes([key]) + length_of(data) + data
    with pytest.raises(UsageError, match="within each other"):
        wire.parse_model(b"\x3a" + length_of(data) + data)


def length_of(data: bytes) -> bytes:
    return bytes([len(data) & 127 | 128, len(data) >> 7 & 127 | 128, len(data) >> 14])


def test_listed_elements_have_the_dtype_of_the_tensor(tmp_path: Path):
    listed = wire.StoredTensor([2], 10, int32_data=[0x3C00, 0xC000], name="a")  # 1 and -2
    body = graph([node("Identity", ["a"], ["y"])], [], [info("y", "float16", [2])])
    body.initializer.append(listed)
    assert onnx.load(saved(tmp_path, model(body)))()["y"].numpy().tolist() == [1, -2]
    packed = wire.StoredTensor([3], 22, raw_data=b"\xf1\x07", name="a")  # 4-bit integers
    body = graph([node("Identity", ["a"], ["y"])], [], [wire.ValueInfo("y")])
    body.initializer.append(packed)
    found = onnx.load(saved(tmp_path, model(body)))()["y"]
    assert (found.dtype.name, found.numpy().tolist()) == ("int8", [1, -1, 7])


def test_errors_of_a_node_name_it(tmp_path: Path):
    body = graph(
        [node("MatMul", ["x", "x"], ["y"])], [info("x", "float32", None)], [info("y", "float32", None)]
    )
    with pytest.raises(HcqError) as seen:
        onnx.load(saved(tmp_path, model(body)))(x=X)
    assert "MatMul ('y')" in "".join(getattr(seen.value, "__notes__", [])) + str(seen.value)

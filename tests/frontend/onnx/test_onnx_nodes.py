"""ONNX's own tests of operators, and models of packages against onnxruntime; skipped without onnx.

    pip install onnx onnxruntime silero-vad rapidocr-onnxruntime magika basic-pitch

The last four carry models; `--no-deps` is enough. Operators of strings, sequences, optional types, complex
and sparse tensors have no cases here. `LEFT_OUT` lists the cases that are not passed, and why.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from frontend import Tensor
from frontend import onnx as own
from frontend.onnx import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

onnx = pytest.importorskip("onnx", reason="needs the package onnx: pip install onnx")

LEFT_OUT: Final = {
    r"adagrad|adam|momentum": "operators of training",
    r"ai_onnx_ml": "operators of the domain ai.onnx.ml",
    r"cast_e8m0": "float8e8m0",
    r"deform_conv": "DeformConv",
    r"flexattention(?!.*_expanded)": "FlexAttention, a preview",
    r"image_decoder": "ImageDecoder",
    r"^test_not_[234]d$": "models of opset 1",
    r"tfidfvectorizer": "TfIdfVectorizer",
    r"training_dropout(_default)?(_mask)?$": "values of NumPy's generator",
}
"""Pattern of names of cases -> why they are not run."""
RANDOM: Final = r"bernoulli"
"""Pattern of names of cases whose values are random; shapes and dtypes are compared."""
STORED: Final = {
    "int4": "int8",
    "int2": "int8",
    "uint4": "uint8",
    "uint2": "uint8",
    "float4_e2m1fn": "float8_e4m3fn",
}


def kinds(graph: Any) -> Iterator[Any]:
    """Yield the element types, and the names of other types, that a graph has."""
    for value in (*graph.input, *graph.output):
        kind = value.type.WhichOneof("value")
        yield value.type.tensor_type.elem_type if kind == "tensor_type" else kind
    for node in graph.node:
        if "Sequence" in node.op_type and node.op_type != "ReverseSequence":
            yield "sequence"
        for attribute in node.attribute:
            yield "sparse" if attribute.HasField("sparse_tensor") else 0
            yield attribute.i if attribute.name == "to" else 0
            yield attribute.t.data_type if attribute.HasField("t") else 0
            if attribute.HasField("g"):
                yield from kinds(attribute.g)


def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind="node")
    refused = {8, 14, 15}  # strings and complex numbers
    return [c for c in found if not any(isinstance(k, str) or k in refused for k in kinds(c.model.graph))]


def array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def numbers(value: Any) -> Any:
    """Return an array in a type that NumPy has."""
    return (
        value.astype(np.float32)
        if value.dtype.name in {"bfloat16", *STORED} or "float8" in value.dtype.name
        else value
    )


def given(value: Any) -> Tensor:
    a = array(value)
    name = STORED.get(a.dtype.name, a.dtype.name)
    if numbers(a) is a:
        return Tensor(np.ascontiguousarray(a).reshape(a.shape))
    return Tensor(numbers(a)).cast(name)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in cases()])
def test_operators_pass_the_cases_of_onnx(case: Any, tmp_path: Path):
    for pattern, reason in LEFT_OUT.items():
        if re.search(pattern, case.name):
            pytest.skip(f"not supported: {reason}")
    path = tmp_path / "model.onnx"
    path.write_bytes(case.model.SerializeToString())
    model = own.load(path)
    names = [v.name for v in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        found = model(**{n: given(v) for n, v in zip(names, inputs, strict=False)})
        for got, value in zip(found.values(), outputs, strict=True):
            want = array(value)
            assert got.dtype.name == STORED.get(want.dtype.name, want.dtype.name)
            assert tuple(got.shape) == want.shape
            if not re.search(RANDOM, case.name):
                compare(got, want, case.rtol)


def compare(got: Tensor, want: Any, relative: float) -> None:
    plain = numbers(want)
    values = got.numpy() if plain is want else got.cast("float32").numpy()
    if values.dtype.kind != "f":
        np.testing.assert_array_equal(values, plain)
        return
    coarse = want.dtype.name in {"bfloat16", "float16"}
    np.testing.assert_allclose(
        values, plain, rtol=1e-2 if want.dtype.name == "bfloat16" else relative, atol=1e-3 if coarse else 1e-6
    )


def test_ninety_seven_percent_of_the_cases_are_run():
    names = [c.name for c in cases()]
    left = [n for n in names if any(re.search(p, n) for p in LEFT_OUT)]
    assert len(left) <= 0.03 * len(names)


def test_fields_have_the_numbers_of_the_format():
    theirs = {
        "OperatorSet": onnx.OperatorSetIdProto, "Entry": onnx.StringStringEntryProto,
        "StoredTensor": onnx.TensorProto,
        "Dimension": onnx.TensorShapeProto.Dimension, "StoredShape": onnx.TensorShapeProto,
        "TensorType": onnx.TypeProto.Tensor, "StoredType": onnx.TypeProto, "ValueInfo": onnx.ValueInfoProto,
        "Attribute": onnx.AttributeProto, "StoredNode": onnx.NodeProto, "StoredGraph": onnx.GraphProto,
        "StoredFunction": onnx.FunctionProto, "StoredModel": onnx.ModelProto,
    }  # fmt: skip
    for message in wire.MESSAGES:
        for field in message.__dataclass_fields__.values():
            assert (
                theirs[message.__name__].DESCRIPTOR.fields_by_name[field.name].number
                == field.metadata["number"]
            )


MODELS: Final = {
    "silero_vad/data/silero_vad.onnx": {"input": (1, 512), "state": (2, 1, 128)},
    "silero_vad/data/silero_vad_16k_op15.onnx": {"input": (1, 512), "state": (2, 1, 128)},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": {"x": (1, 3, 64, 96)},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": {"x": (1, 3, 48, 96)},
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x": (1, 3, 48, 192)},
    "magika/models/standard_v3_3/model.onnx": {"bytes": (1, 2048)},
    "basic_pitch/saved_models/icassp_2022/nmp.onnx": {"serving_default_input_2:0": (1, 43844, 1)},
}
"""File of an installed package -> the shapes of its inputs."""


@pytest.mark.parametrize("file", MODELS)
def test_models_of_packages_equal_onnxruntime(file: str):
    runtime = pytest.importorskip("onnxruntime", reason="needs the package onnxruntime")
    package = importlib.util.find_spec(file.partition("/")[0])
    if package is None or not package.submodule_search_locations:
        pytest.skip(f"needs the package {file.partition('/')[0]}")
    path = Path(package.submodule_search_locations[0]).parent / file
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(0)
    inputs: dict[str, Any] = {}
    for value in session.get_inputs():
        shape = MODELS[file].get(value.name, ())
        if value.type == "tensor(float)":
            inputs[value.name] = draw.standard_normal(shape).astype(np.float32)
        else:
            inputs[value.name] = (
                np.array(16000) if value.name == "sr" else draw.integers(0, 256, shape, np.int32)
            )
    found = own.load(path)(**inputs)
    for got, want in zip(found.values(), session.run(None, inputs), strict=True):
        assert (got.dtype.name, tuple(got.shape)) == (want.dtype.name, want.shape)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-3, atol=1e-5 * max(1, np.abs(want).max()))

"""`python -m tests.oracles.torch_models`: models of torchvision and transformers under `backend="hcq"`.

Each row of `ROWS` is a narrow model with random weights. It runs compiled and without compilation, in
evaluation; rows with `trains` also take three steps of gradient descent in training mode, with dropout. The
program prints a table in Markdown, then every graph break with its cause, and exits with 1 if a row differs:

- forward: all results, |a - b| / max |a| of each tensor, at most `FORWARD`; integers are equal;
- gradients: of the first step, |a - b| / max |a| of each parameter, at most `GRADIENT`; where all elements of
  a gradient are below 1e-3 of the largest of the model, that takes the place of max |a|. A parameter without
  a gradient counts as one of zeros;
- steps: parameters and statistics after three steps, |a - b| / max |a|, at most `STEP`.

Some models amplify rounding: an activation within a rounding error of a corner of ReLU6 takes the other side
of it. A measure beyond its bound is therefore taken of PyTorch itself, float32 against float64. If twice that
is the greater, the row is right and *sensitive*, and the list under the table has both.

Parameters that are zero everywhere are drawn, and statistics of batch norm are those of another input, so
that the result depends on every layer; a result that another input changes by less than 1e-2 is a fault.

It needs PyTorch, torchvision and transformers. Not here: the back end (`frontend.torch_compile`).
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.arguments import command, device_name, library, pytorch, reported, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FORWARD: Final = 1e-4
GRADIENT: Final = 1e-3
STEP: Final = 1e-3
_CHANGE: Final = 1e-2
_STEPS: Final = 3
_RATE: Final = 1e-2
_IDS: Final = (5, 90)
"""Tokens are drawn from here: no special one, and inside of every vocabulary of the table."""


@dataclass(frozen=True, slots=True)
class Row:
    """A model of the table."""

    library: str
    """Either "torchvision" or "transformers"."""
    make: Callable[[Any], Any]
    """Returns the model; it is given `torchvision.models`, or `transformers`."""
    inputs: dict[str, tuple[int, ...]]
    """Shapes by name of argument: of tokens where the name ends in "ids", of normal numbers elsewhere."""
    trains: bool = False


@dataclass(slots=True)
class Result:
    """What a row gave: greatest errors as parts (None: not trained), its graphs and breaks, and a fault."""

    name: str
    library: str
    forward: float | None = None
    gradient: float | None = None
    steps: float | None = None
    breaks: list[str] = field(default_factory=list)
    fault: str = ""
    own: dict[str, float] = field(default_factory=dict)
    """Measure beyond its bound -> that of PyTorch in float32 against itself in float64."""

    @property
    def right(self) -> bool:
        """Whether every error is within its bound, or within twice PyTorch's own."""
        bounds = {"forward": FORWARD, "gradient": GRADIENT, "steps": STEP}
        found = [(getattr(self, n) or 0.0, max(b, 2 * self.own.get(n, 0.0))) for n, b in bounds.items()]
        return not self.fault and all(error <= bound for error, bound in found)


_TOKENS: Final[dict[str, tuple[int, ...]]] = {"input_ids": (2, 12)}
_PAIRS: Final[dict[str, tuple[int, ...]]] = {"input_ids": (2, 12), "decoder_input_ids": (2, 7)}
_PIXELS: Final[dict[str, tuple[int, ...]]] = {"pixel_values": (2, 3, 32, 32)}
_ENDS: Final[dict[str, Any]] = {
    "vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
}  # fmt: skip
_SMALL: Final[dict[str, Any]] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64, **_ENDS,
}  # fmt: skip
_PAIR: Final[dict[str, Any]] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "decoder_start_token_id": 2, **_ENDS,
}  # fmt: skip
_SEEN: Final[dict[str, Any]] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip


def _vision(make: Callable[[Any], Any], size: int = 64, batch: int = 2, *, trains: bool = False) -> Row:
    return Row("torchvision", make, {"x": (batch, 3, size, size)}, trains)


def _tokens(model: str, config: str, *, trains: bool = False, **more: Any) -> Row:
    """Return a row of a transformer over tokens whose configuration has the usual names."""
    return Row(
        "transformers", lambda t: getattr(t, model)(getattr(t, config)(**{**_SMALL, **more})), _TOKENS, trains
    )


def _other(
    model: str, config: str, inputs: dict[str, tuple[int, ...]], *, trains: bool = False, **every: Any
) -> Row:
    """Return a row of a transformer whose configuration has other names."""
    return Row("transformers", lambda t: getattr(t, model)(getattr(t, config)(**every)), inputs, trains)


ROWS: Final[dict[str, Row]] = {
    "AlexNet": _vision(lambda v: v.AlexNet(10)),
    "VGG": _vision(lambda v: v.VGG(v.vgg.make_layers([8, "M", 16, "M", 512, "M"], batch_norm=True), 10)),
    "ResNet": _vision(
        lambda v: v.ResNet(v.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10), batch=4, trains=True
    ),
    "ResNeXt": _vision(
        lambda v: v.ResNet(v.resnet.Bottleneck, [1, 1, 1, 1], 10, groups=4, width_per_group=8)
    ),
    "DenseNet": _vision(lambda v: v.DenseNet(8, (2, 2, 2), 16, 2, num_classes=10), batch=4, trains=True),
    "SqueezeNet": _vision(lambda v: v.SqueezeNet("1_1", 10)),
    "GoogLeNet": _vision(lambda v: v.GoogLeNet(10, aux_logits=False, init_weights=False)),
    "Inception v3": _vision(lambda v: v.Inception3(10, aux_logits=False, init_weights=False), 96),
    "MobileNet v2": _vision(lambda v: v.MobileNetV2(10, 0.25), batch=4, trains=True),
    "MobileNet v3": _vision(lambda v: v.mobilenet_v3_small(width_mult=0.25, num_classes=10)),
    "MNASNet": _vision(lambda v: v.MNASNet(0.25, 10)),
    "ShuffleNet v2": _vision(lambda v: v.ShuffleNetV2([2, 2, 2], [8, 16, 32, 64, 64], 10)),
    "EfficientNet": _vision(
        lambda v: v.EfficientNet(
            [v.efficientnet.MBConvConfig(*n) for n in ((1, 3, 1, 16, 8, 1), (4, 3, 2, 8, 16, 2))], 0.1,
            num_classes=10,
        ), batch=4, trains=True,
    ),
    "RegNet": _vision(
        lambda v: v.RegNet(v.regnet.BlockParams.from_init_params(4, 16, 8.0, 2.0, 8, se_ratio=0.25), 10)
    ),
    "ConvNeXt": _vision(
        lambda v: v.ConvNeXt(
            [v.convnext.CNBlockConfig(16, 32, 1), v.convnext.CNBlockConfig(32, None, 1)], num_classes=10
        ), trains=True,
    ),
    "ViT": _vision(lambda v: v.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10), 32, trains=True),
    "Swin": _vision(
        lambda v: v.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10), trains=True
    ),
    "Swin v2": _vision(
        lambda v: v.SwinTransformer(
            [4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10,
            block=v.swin_transformer.SwinTransformerBlockV2,
            downsample_layer=v.swin_transformer.PatchMergingV2,
        )
    ),
    "MaxViT": _vision(lambda v: v.MaxVit((32, 32), 16, 4, [16, 32], [1, 1], 8, 0.1, num_classes=10), 32),
    "FCN": _vision(lambda v: v.segmentation.fcn_resnet50(weights_backbone=None, num_classes=5)),
    "DeepLab v3": _vision(
        lambda v: v.segmentation.deeplabv3_mobilenet_v3_large(weights_backbone=None, num_classes=5)
    ),
    "LR-ASPP": Row(
        "torchvision",
        lambda v: v.segmentation.lraspp_mobilenet_v3_large(weights_backbone=None, num_classes=5),
        {"input": (2, 3, 64, 64)},
    ),
    "Faster R-CNN backbone": _vision(
        lambda v: v.detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None)
    ),
    "RAFT small": Row(
        "torchvision", lambda v: v.optical_flow.raft_small(),
        dict.fromkeys(("image1", "image2"), (1, 3, 128, 128)),
    ),
    "BERT": _tokens("BertForMaskedLM", "BertConfig", trains=True),
    "RoBERTa": _tokens("RobertaModel", "RobertaConfig"),
    "ELECTRA": _tokens("ElectraModel", "ElectraConfig", embedding_size=32),
    "ALBERT": _tokens("AlbertModel", "AlbertConfig", embedding_size=16),
    "DeBERTa v2": _tokens(
        "DebertaV2Model", "DebertaV2Config", relative_attention=True, pos_att_type=["p2c", "c2p"],
        position_buckets=16,
    ),
    "DistilBERT": _other(
        "DistilBertModel", "DistilBertConfig", _TOKENS,
        vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64,
    ),
    "GPT-2": _other(
        "GPT2LMHeadModel", "GPT2Config", _TOKENS, trains=True,
        n_embd=32, n_layer=2, n_head=4, n_positions=64, **_ENDS,
    ),
    "GPT-NeoX": _tokens("GPTNeoXForCausalLM", "GPTNeoXConfig"),
    "OPT": _tokens("OPTForCausalLM", "OPTConfig", trains=True, ffn_dim=64, word_embed_proj_dim=32),
    "BLOOM": _other("BloomForCausalLM", "BloomConfig", _TOKENS, hidden_size=32, n_layer=2, n_head=4, **_ENDS),
    "Llama": _tokens("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, trains=True),
    "Mistral": _tokens("MistralForCausalLM", "MistralConfig", num_key_value_heads=2, sliding_window=8),
    "Mixtral": _tokens("MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2, num_local_experts=4),
    "Qwen2": _tokens("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2, trains=True),
    "Qwen3": _tokens("Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2, head_dim=8),
    "Gemma": _tokens("GemmaForCausalLM", "GemmaConfig", num_key_value_heads=2, head_dim=8),
    "Gemma 2": _tokens("Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2, head_dim=8, trains=True),
    "Phi": _tokens("PhiForCausalLM", "PhiConfig"),
    "Phi-3": _tokens("Phi3ForCausalLM", "Phi3Config"),
    "OLMo 2": _tokens("Olmo2ForCausalLM", "Olmo2Config", num_key_value_heads=2),
    "Mamba": _other(
        "MambaForCausalLM", "MambaConfig", _TOKENS,
        hidden_size=32, state_size=8, num_hidden_layers=2, time_step_rank=4, **_ENDS,
    ),
    "T5": _other(
        "T5ForConditionalGeneration", "T5Config", _PAIRS, trains=True,
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, **_ENDS,
    ),
    "BART": _other(
        "BartForConditionalGeneration", "BartConfig", _PAIRS, max_position_embeddings=64,
        forced_eos_token_id=2, **_PAIR,
    ),
    "Whisper": _other(
        "WhisperForConditionalGeneration", "WhisperConfig",
        {"input_features": (2, 16, 40), "decoder_input_ids": (2, 7)},
        num_mel_bins=16, max_source_positions=20, max_target_positions=32, **_PAIR,
    ),
    "wav2vec 2": _other(
        "Wav2Vec2Model", "Wav2Vec2Config", {"input_values": (2, 400)},
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, conv_dim=(16, 16),
        conv_kernel=(10, 3), conv_stride=(5, 2), num_feat_extract_layers=2, num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2, apply_spec_augment=False,
    ),
    "CLIP": _other(
        "CLIPModel", "CLIPConfig", {**_TOKENS, **_PIXELS}, projection_dim=16, vision_config=dict(_SEEN),
        text_config={k: v for k, v in _SMALL.items() if k != "use_cache"},
    ),
    "ViT of transformers": _other("ViTModel", "ViTConfig", _PIXELS, **_SEEN),
    "DeiT": _other("DeiTModel", "DeiTConfig", _PIXELS, **_SEEN),
    "BEiT": _other("BeitModel", "BeitConfig", _PIXELS, use_relative_position_bias=True, **_SEEN),
    "DINOv2": _other("Dinov2Model", "Dinov2Config", _PIXELS, **_SEEN),
}  # fmt: skip
"""Name of a model -> its row."""


def _leaves(torch: Any, found: Any) -> list[Any]:
    """Return the tensors of a result."""
    every = torch.utils._pytree.tree_leaves(found)  # noqa: SLF001 - has no public name
    return [t for t in every if isinstance(t, torch.Tensor)]


def _error(a: Any, b: Any, least: float = 1e-12) -> float:
    """Return the greatest difference as a part of the largest of a; infinite where a NaN is."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if not a.is_floating_point():
        return 0.0 if bool((a == b).all()) else float("inf")
    if not a.numel():
        return 0.0
    found = float((a - b).abs().max().double() / a.abs().max().double().clamp_min(least))
    return found if found == found else float("inf")  # noqa: PLR0124 - NaN alone differs from itself


def _inputs(torch: Any, row: Row) -> dict[str, Any]:
    return {
        key: torch.randint(*_IDS, shape) if key.endswith("ids") else torch.randn(shape)
        for key, shape in row.inputs.items()
    }


def _vivid(torch: Any, model: Any, other: dict[str, Any]) -> None:
    """Give a model parameters and statistics with which no layer's result vanishes."""
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.02)
    norms = [m for m in model.modules() if hasattr(m, "running_var")]
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        with torch.no_grad():
            model.train()(**other)
    for norm in norms:
        norm.momentum = 0.1


def _loss(torch: Any, found: Any) -> Any:
    return sum(t.square().mean() for t in _leaves(torch, found)[:1])


def _apart(want: Sequence[Any], found: Sequence[Any], least: float = 1e-12) -> float:
    """Return the greatest error of tensors."""
    return max(_error(a, b, least) for a, b in zip(want, found, strict=True))


def _own(want: Sequence[Any], wide: Sequence[Any], least: float = 1e-12) -> float:
    """Return the greatest error of PyTorch's tensors against those that it computes in float64."""
    return _apart([b.to(a.dtype) for a, b in zip(want, wide, strict=True)], want, least)


def _wide(model: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a copy of a model, and the inputs, in float64."""
    given = {key: t.double() if t.is_floating_point() else t for key, t in inputs.items()}
    return copy.deepcopy(model).double(), given


def _trained(torch: Any, model: Any, call: Any, inputs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Take all steps; return the gradients of the first, and the state after the last."""
    optimiser, first = torch.optim.SGD(model.parameters(), _RATE), []
    for step in range(_STEPS):
        torch.manual_seed(step)
        optimiser.zero_grad()
        _loss(torch, call(**inputs)).backward()
        if not step:
            first = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]
        optimiser.step()
    return first, list(model.state_dict().values())


def _train(
    torch: Any, model: Any, inputs: dict[str, Any], compiled: Callable[[Any], Any], to: Result
) -> None:
    """Note the errors of the gradients of the first step, and of the state after all steps."""
    plain, other = model.train(), copy.deepcopy(model)
    wide, doubles = _wide(model, inputs)
    gradients, state = _trained(torch, plain, plain, inputs)
    found, found_state = _trained(torch, other, compiled(other), inputs)
    least = 1e-3 * max(float(g.abs().max()) for g in gradients)
    to.gradient, to.steps = _apart(gradients, found, least), _apart(state, found_state, 1e-2)
    if to.gradient > GRADIENT or to.steps > STEP:
        exact, exact_state = _trained(torch, wide, wide, doubles)
        own = {"gradient": _own(gradients, exact, least), "steps": _own(state, exact_state, 1e-2)}
        to.own |= {n: e for n, e in own.items() if getattr(to, n) > (GRADIENT if n == "gradient" else STEP)}


def run(name: str, device: str) -> Result:
    """Return what a row gives on a device. The libraries must be installed; a failing model is a fault."""
    torch, row = pytorch(), ROWS[name]
    given = library(row.library, cure=f"pip install {row.library}")
    from frontend.torch_compile import graph_breaks, hcq  # noqa: PLC0415 - needs PyTorch

    result = Result(name, row.library)
    torch._dynamo.reset()  # noqa: SLF001 - has no public name
    torch.manual_seed(0)

    def compiled(model: Any) -> Any:
        return torch.compile(model, backend=hcq, options={"device": device}, dynamic=False)

    try:
        model = row.make(given.models if row.library == "torchvision" else given)
        inputs, other = _inputs(torch, row), _inputs(torch, row)
        _vivid(torch, model, other)
        with torch.no_grad():
            model.eval()
            want, found = (_leaves(torch, m(**inputs)) for m in (model, compiled(model)))
            result.forward = _apart(want, found)
            if result.forward > FORWARD:
                wide, doubles = _wide(model, inputs)
                result.own["forward"] = _own(want, _leaves(torch, wide(**doubles)))
            if _error(want[0], _leaves(torch, model(**other))[0]) < _CHANGE:
                result.fault = "another input hardly changes the result"
            result.breaks = [f"{_place(b.where)}: {b.reason}" for b in graph_breaks(model, **inputs)]
        if row.trains:
            _train(torch, model, inputs, compiled, result)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is a fault of its row; the next runs
        result.fault = " | ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    return result


def _place(where: str) -> str:
    """Return "package/file:line" of a path of a module."""
    return "/".join(Path(where).parts[-2:])


def _cell(error: float | None) -> str:
    return "" if error is None else f"{error:.0e}"


def _shown(result: Result) -> str:
    status = f"**{'failed' if result.fault else 'differs'}**" if not result.right else str(len(result.breaks))
    status += ", sensitive" * (result.right and bool(result.own))
    errors = " | ".join(map(_cell, (result.forward, result.gradient, result.steps)))
    return f"| {result.name} | {result.library} | {errors} | {status} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rows that were asked for; return 0 if all are right."""
    parser = command("tests.oracles.torch_models", __doc__)
    parser.add_argument("--models", type=some_of(ROWS), default=list(ROWS), help="some of the table")
    parser.add_argument("--device", type=device_name, default="cpu", help="the device that computes")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    for name in ("torchvision", "transformers"):
        library(name, cure=f"pip install {name}")
    if not args.json:
        print("| model | library | forward | gradients | steps | graph breaks |\n|---|---|---|---|---|---|")
    results = []
    for at, name in enumerate(args.models):
        sys.stderr.write(f"\r{at + 1}/{len(args.models)} {name}\033[K")
        results.append(run(name, args.device))
        if not args.json:
            print(_shown(results[-1]), flush=True)
    sys.stderr.write("\n")
    if args.json:
        print(json.dumps([{**asdict(r), "right": r.right} for r in results], indent=1))
    else:
        _end(results)
    return int(not all(r.right for r in results))


def _end(results: Sequence[Result]) -> None:
    """Print the graph breaks and faults, and how many models are right."""
    lines = [f"- {r.name}, {text}" for r in results for text in [*r.breaks, *([r.fault] if r.fault else [])]]
    lines += [
        f"- {r.name}, {measure}: {_cell(getattr(r, measure))}, and {_cell(own)} of PyTorch's float32 itself"
        for r in results
        for measure, own in r.own.items()
    ]
    print("\nGraph breaks and faults:\n\n" + "\n".join(lines or ["none"]))
    trained = [r for r in results if r.right and r.steps is not None]
    right = sum(r.right for r in results)
    print(f"\n{right} of {len(results)} models equal PyTorch, {len(trained)} in training.")


if __name__ == "__main__":
    sys.exit(reported(main))

"""Texts as ids and back: `tokenizer.json` of a folder, or the vocabulary of a GGUF file; chat templates.

The package `tokenizers` does the work; chat templates are run by jinja2's sandbox, which reaches nothing of
Python. Both come with the extra `llm`. GGUF vocabularies of the kinds "gpt2" (byte-level pairs) and "llama"
(pairs by score, with single bytes) become tokenizers of that package.

Not here: ids (`model`). Next: `metadata`, the rest of a GGUF file.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from frontend.llm.folder import existing, read_json
from frontend.llm.settings import ModelSettings
from frontend.nn.state.gguf import GgufFile
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How text is divided into words before pairs are merged."""
_PATTERNS: Final = {
    "default": None, "gpt-2": None, "olmo": None,
    "llama-bpe": _WORDS.replace("DIGITS", "3"), "llama3": _WORDS.replace("DIGITS", "3"),
    "qwen2": _WORDS.replace("{1,DIGITS}", ""), "dbrx": _WORDS.replace("DIGITS", "3"),
}  # fmt: skip
"""`tokenizer.ggml.pre` -> the pattern of words; None: that of GPT-2."""
_CONTROL, _USER = 3, 4
"""Types of tokens that are written as one: control tokens, and those that a user added."""


class TextCodec:
    """A tokenizer, and the chat template if there is one.

    Raises as `of`. `tokenizer` is the `tokenizers.Tokenizer`.
    """

    def __init__(self, tokenizer: Any, template: str | None, named: Mapping[str, str], path: str) -> None:
        self.tokenizer, self.template, self.path = tokenizer, template, path
        self.named = dict(named)
        """Names that templates use ("bos_token") -> the text of the token."""

    @classmethod
    def of(cls, path: str | Path) -> TextCodec:
        """Return the codec of a folder or a GGUF file.

        Raises `OSError` for a file that cannot be read, `UsageError` if there is no tokenizer or it is
        malformed, `UnsupportedError` without the extra `llm` and for an unknown kind of vocabulary.
        """
        place = existing(Path(path))
        return _of_folder(place) if place.is_dir() else _of_gguf(place)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the ids of a text; `special`: with those that the tokenizer puts before and after it."""
        return list(self.tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without control tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def texts(self, ids: Iterator[int]) -> Iterator[str]:
        """Yield pieces of text as ids come: a piece ends where a character is whole."""
        pieces = TextPieces(self)
        for token in ids:
            if text := pieces.add(token):
                yield text
        if rest := pieces.rest():
            yield rest

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the ids of messages ({"role": "user", "content": "..."}) and the start of an answer.

        Raises `UsageError` without a template, and for messages that the template refuses; `UnsupportedError`
        without the extra `llm`.
        """
        jinja2, sandbox = library("jinja2"), library("jinja2.sandbox")
        if self.template is None:
            raise UsageError(
                f"{self.path}: it has no chat template\n"
                "hint: go on with a plain text: --prompt TEXT, in a program encode() and generate()"
            )

        def refuse(text: str) -> None:
            raise jinja2.TemplateError(text)

        jinja = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        jinja.globals |= {"raise_exception": refuse, "strftime_now": datetime.now(UTC).strftime}
        jinja.filters["tojson"] = lambda value, indent=None: json.dumps(
            value, ensure_ascii=False, indent=indent
        )
        try:
            text = jinja.from_string(self.template).render(
                messages=[dict(m) for m in messages], add_generation_prompt=True, **self.named
            )
        except (jinja2.TemplateError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(f"{self.path}: the chat template fails: {error}") from None
        return self.encode(text, special=False)


class TextPieces:
    """The text of ids that come one by one, in pieces of whole characters."""

    def __init__(self, codec: TextCodec) -> None:
        self.codec = codec
        self._seen: list[int] = []
        self._done = 0

    def add(self, token: int) -> str:
        """Return the text that an id adds; "" within a character."""
        self._seen.append(token)
        text, done = self.codec.decode(self._seen), self._done
        if len(text) <= done or text.endswith("\ufffd"):
            return ""
        before = self.codec.decode(self._seen[-1:])
        if text.endswith(before):
            self._seen, self._done = self._seen[-1:], len(before)
        else:
            self._done = len(text)
        return text[done:]

    def rest(self) -> str:
        """Return what is left when no more ids come: the text of an incomplete character."""
        return self.codec.decode(self._seen)[self._done :]


def library(name: str, who: str = "texts of language models need", extra: str = "llm") -> Any:
    """Return a module of an extra. Raises `UnsupportedError` if it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"{who} the package {error.name}\nhint: pip install 'hcq[{extra}]'") from None


def _of_folder(folder: Path) -> TextCodec:
    tokenizers, file = library("tokenizers"), folder / "tokenizer.json"
    if not file.exists():
        raise UsageError(
            f"{folder}: there is no tokenizer.json\nhint: ids alone need none: load(), generate()"
        )
    try:
        made = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 - the package raises Exception itself
        raise UsageError(f"{file}: {error}") from None
    further, template = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    values = read_json(further) if further.exists() else {}
    text = template.read_text() if template.exists() else values.get("chat_template")
    if isinstance(text, list):  # several by name
        named = {t.get("name"): t.get("template") for t in text if isinstance(t, dict)}
        text = named.get("default")
    if not isinstance(text, str | None):
        raise UsageError(f"{further}: wanted a text for chat_template, saw {type(text).__name__}")
    return TextCodec(made, text, _named(values), str(folder))


def _named(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of special tokens, which stand alone or in an object."""
    found = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = values.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            found[name] = value
    return found


def _of_gguf(path: Path) -> TextCodec:
    with GgufFile(path, None) as file:
        m = ModelSettings(file.metadata, file.path)
    words, kinds = m.raw("tokenizer.ggml.tokens"), m.raw("tokenizer.ggml.token_type")
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise m.wrong("tokenizer.ggml.tokens", "a list of texts")
    kinds = [1] * len(words) if kinds is None else kinds
    if not isinstance(kinds, list) or len(kinds) != len(words):
        raise m.wrong("tokenizer.ggml.token_type", f"a list of {len(words)} numbers")
    kind = m.text("tokenizer.ggml.model")
    if kind not in {"gpt2", "llama"}:
        raise UnsupportedError(f"{path}: wanted a vocabulary of gpt2 or llama, saw {kind!r}")
    made = (_byte_pairs if kind == "gpt2" else _scored_pairs)(m, words)
    tokenizers = library("tokenizers")
    made.add_special_tokens(
        [_whole(tokenizers, w) for w, k in zip(words, kinds, strict=True) if k == _CONTROL]
    )
    made.add_tokens([_whole(tokenizers, w) for w, k in zip(words, kinds, strict=True) if k == _USER])
    named = {}
    for name in ("bos", "eos", "unk", "padding"):
        ids = m.ids(f"tokenizer.ggml.{name if name != 'unk' else 'unknown'}_token_id")
        if ids and ids[0] < len(words):
            named["pad_token" if name == "padding" else f"{name}_token"] = words[ids[0]]
    if m.flag("tokenizer.ggml.add_bos_token", default=kind == "llama") and "bos_token" in named:
        first = named["bos_token"]
        pieces = [(first, words.index(first))]
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{first} $A", pair=f"{first} $A $B", special_tokens=pieces
        )
    return TextCodec(made, m.raw("tokenizer.chat_template"), named, str(path))


def _whole(tokenizers: Any, word: str) -> Any:
    return tokenizers.AddedToken(word, normalized=False, special=True)


def _byte_pairs(m: ModelSettings, words: list[str]) -> Any:
    """Return the tokenizer of a vocabulary "gpt2": bytes, merged by a list of pairs."""
    t, pre = library("tokenizers"), m.text("tokenizer.ggml.pre", "default")
    if pre not in _PATTERNS:
        raise UnsupportedError(f"{m.path}: wanted words as {', '.join(_PATTERNS)}, saw {pre!r}")
    given = m.raw("tokenizer.ggml.merges", [])
    pairs = [tuple(g.split(" ")) for g in given if isinstance(g, str)] if isinstance(given, list) else []
    if not isinstance(given, list) or len(pairs) != len(given) or any(len(p) != 2 for p in pairs):
        raise m.wrong("tokenizer.ggml.merges", "a list of two texts with a space between")
    made = t.Tokenizer(_model(m, {w: i for i, w in enumerate(words)}, pairs))
    pattern, bytes_ = _PATTERNS[pre], t.pre_tokenizers.ByteLevel
    if pattern is None:
        made.pre_tokenizer = bytes_(add_prefix_space=False)
    else:
        split = t.pre_tokenizers.Split(t.Regex(pattern), "isolated")
        made.pre_tokenizer = t.pre_tokenizers.Sequence(
            [split, bytes_(add_prefix_space=False, use_regex=False)]
        )
    made.decoder = t.decoders.ByteLevel()
    return made


def _scored_pairs(m: ModelSettings, words: list[str]) -> Any:
    """Return the tokenizer of a vocabulary "llama": characters, merged to the word of the greatest score."""
    t, scores = library("tokenizers"), m.raw("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(words):
        raise m.wrong("tokenizer.ggml.scores", f"a list of {len(words)} numbers")
    ids = {w: i for i, w in enumerate(words)}
    pairs = [
        (-scores[i], i, ids[w[:at]], w[:at], w[at:])
        for w, i in ids.items()
        for at in range(1, len(w))
        if w[:at] in ids and w[at:] in ids
    ]
    merges = [(left, right) for *_, left, right in sorted(pairs)]
    unknown = m.ids("tokenizer.ggml.unknown_token_id")
    name = words[unknown[0]] if unknown and unknown[0] < len(words) else None
    made = t.Tokenizer(_model(m, ids, merges, unk_token=name, fuse_unk=True, byte_fallback=True))
    steps = (
        [t.normalizers.Prepend("\u2581")] if m.flag("tokenizer.ggml.add_space_prefix", default=True) else []
    )
    made.normalizer = t.normalizers.Sequence([*steps, t.normalizers.Replace(" ", "\u2581")])
    decoders = [t.decoders.Replace("\u2581", " "), t.decoders.ByteFallback(), t.decoders.Fuse()]
    made.decoder = t.decoders.Sequence([*decoders, *([t.decoders.Strip(" ", 1, 0)] if steps else [])])
    return made


def _model(m: ModelSettings, ids: dict[str, int], merges: list[Any], **settings: Any) -> Any:
    try:
        return library("tokenizers").models.BPE(ids, merges, **settings)
    except Exception as error:  # noqa: BLE001 - the package raises Exception itself
        raise UsageError(f"{m.path}: the vocabulary is malformed: {error}") from None

"""Texts of language models: tokenizers of folders and GGUF vocabularies, chat templates, the commands."""

from __future__ import annotations

import importlib.util
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from frontend import llm
from frontend.llm.__main__ import main
from frontend.llm.tokenizer import TextCodec
from hcq.errors import UnsupportedError, UsageError
from tests.frontend.llm.test_language_models import write as write_folder
from tests.oracles import gguf_models
from tests.support.examples import example

if TYPE_CHECKING:
    from pathlib import Path

missing = [name for name in ("tokenizers", "jinja2") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (extra llm)")

TEXT = "the cat sat on the mat; the dog's bowl holds 123 bones.  Zürich, naïve café \U0001f600\n"
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def trained(kind: str) -> Any:
    """Return a tokenizer of about 90 words, trained on `TEXT` by the package itself."""
    import tokenizers as t

    if kind == "llama":
        made = t.Tokenizer(t.models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        made.normalizer = t.normalizers.Sequence(
            [t.normalizers.Prepend("▁"), t.normalizers.Replace(" ", "▁")]
        )
        special = ["<unk>", "<s>", "</s>", *[f"<0x{i:02X}>" for i in range(256)]]
        alphabet: list[str] = []
        made.decoder = t.decoders.Sequence(
            [t.decoders.Replace("▁", " "), t.decoders.ByteFallback(), t.decoders.Fuse(),
             t.decoders.Strip(" ", 1, 0)]
        )  # fmt: skip
    else:
        made = t.Tokenizer(t.models.BPE())
        made.pre_tokenizer = t.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = t.decoders.ByteLevel()
        special, alphabet = ["<s>", "</s>", "<|end|>"], t.pre_tokenizers.ByteLevel.alphabet()
    trainer = t.trainers.BpeTrainer(
        vocab_size=340, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([TEXT.replace("\U0001f600", "")] * 3, trainer)
    return made


def vocabulary(kind: str) -> dict[str, Any]:
    """Return the metadata of a GGUF file with a trained vocabulary."""
    data = json.loads(trained(kind).to_str())["model"]
    words = [w for w, _ in sorted(data["vocab"].items(), key=lambda kv: kv[1])]
    pairs = [p if isinstance(p, str) else " ".join(p) for p in data["merges"]]
    found: dict[str, Any] = {"tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": words}
    found["tokenizer.ggml.token_type"] = [3 if w in {"<unk>", "<s>", "</s>", "<|end|>"} else 1 for w in words]
    found["tokenizer.ggml.bos_token_id"] = words.index("<s>")
    found["tokenizer.chat_template"] = TEMPLATE
    if kind == "gpt2":
        return found | {"tokenizer.ggml.merges": pairs, "tokenizer.ggml.pre": "gpt-2"}
    ranks = {p.replace(" ", ""): float(-i) for i, p in enumerate(pairs)}
    return found | {"tokenizer.ggml.scores": [ranks.get(w, -1000.0) for w in words],
                    "tokenizer.ggml.unknown_token_id": words.index("<unk>")}  # fmt: skip


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_vocabulary_of_a_gguf_file_equals_the_tokenizer_that_made_it(kind: str, tmp_path: Path):
    path = gguf_models.write(tmp_path / "model.gguf", "llama, Q8_0", vocabulary(kind))
    codec, want = TextCodec.of(path), trained(kind)
    for text in (TEXT, "the mat", " 1234 dogs\n\n", "über \U0001f600!"):
        ids = codec.encode(text, special=False)
        assert ids == want.encode(text, add_special_tokens=False).ids
        assert codec.decode(ids) == text
        assert "".join(codec.texts(iter(ids))) == text
    bos = codec.encode("the")[0] == codec.tokenizer.token_to_id("<s>")
    assert bos == (kind == "llama")
    said = codec.chat([{"role": "user", "content": "the cat "}])
    assert codec.tokenizer.decode(said, skip_special_tokens=False).endswith("<|assistant|>")
    assert said[0] == codec.tokenizer.token_to_id("<s>")


def test_folders_have_their_tokenizer_and_template(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no tokenizer\.json"):
        TextCodec.of(tmp_path)
    trained("gpt2").save(str(tmp_path / "tokenizer.json"))
    assert TextCodec.of(tmp_path).encode("the cat") == trained("gpt2").encode("the cat").ids
    with pytest.raises(UsageError, match="no chat template"):
        TextCodec.of(tmp_path).chat([])
    config = {"bos_token": {"content": "<s>"}, "chat_template": TEMPLATE}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    codec = TextCodec.of(tmp_path)
    want = "<s><|user|>the cat<|end|><|assistant|>"
    assert codec.chat([{"role": "user", "content": "the cat "}]) == codec.encode(want)
    for bad, match in (
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% for x in range(10 ** 9) %}{% endfor %}", "[Rr]ange"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% if %}", "template fails"),
    ):
        (tmp_path / "chat_template.jinja").write_text(bad)
        with pytest.raises(UsageError, match=match):
            TextCodec.of(tmp_path).chat([{"role": "user", "content": "x"}])
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        TextCodec.of(tmp_path)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, "rwkv"),
        ({"tokenizer.ggml.tokens": "x"}, "list of texts"),
        ({"tokenizer.ggml.token_type": [1]}, "numbers"),
        ({"tokenizer.ggml.pre": "other"}, "other"),
        ({"tokenizer.ggml.merges": ["a b", "zz"]}, "merges"),
        ({"tokenizer.ggml.merges": ["zz yy"]}, "malformed"),
    ],
)
def test_damaged_vocabularies_are_refused(more: dict[str, Any], match: str, tmp_path: Path):
    path = gguf_models.write(tmp_path / "model.gguf", "llama, Q8_0", vocabulary("gpt2") | more)
    with pytest.raises((UsageError, UnsupportedError), match=match):
        TextCodec.of(path)


def test_the_example_answers_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = write_folder(tmp_path, "llama 2")
    trained("gpt2").save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    example("chat").main(str(folder), ["!", "!!"], tokens=3)
    out = capsys.readouterr().out
    assert out.startswith("> !\n")
    assert out.count("tokens before it") == 2


def test_the_commands_write_a_text_and_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = write_folder(tmp_path, "llama 2", eos_token_id=None)
    assert main(["chat", str(folder)]) == 2
    assert "tokenizer.json" in capsys.readouterr().err
    trained("gpt2").save(str(folder / "tokenizer.json"))
    short = ["--tokens", "4", "--temperature", "0"]
    assert main(["chat", str(folder), "--prompt", "!!", *short]) == 0
    codec, model = TextCodec.of(folder), llm.load(folder)
    ids = codec.encode("!!")
    assert max(ids) < 96
    assert capsys.readouterr().out == codec.decode(list(model.generate(ids, max_tokens=4))) + "\n"
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    monkeypatch.setattr("sys.stdin", io.StringIO("!\n!!\n"))
    assert main(["chat", str(folder), *short]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    monkeypatch.setattr("frontend.llm.__main__._READ_BYTES", 1 << 16)
    assert main(["bench", str(folder), "--tokens", "9", "--prompt", "20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    layer = 4 * 64 * 64 + 3 * 64 * 96
    assert found["weight_bytes_per_token"] == 4 * (2 * layer + 96 * 64)
    assert found["share_best"] > 0
    assert main(["bench", str(folder), "--tokens", "9999", "--prompt", "20"]) == 2
    assert "wanted at most" in capsys.readouterr().err
    for wrong in (["serve", str(folder), "--port", "99999"], ["bench", str(folder), "--prompt", "abc"]):
        with pytest.raises(SystemExit):
            main(wrong)
        assert f"saw {wrong[3]}" in capsys.readouterr().err.replace("'", "")
    assert main(["chat", str(folder / "nothing")]) == 2
    assert "a model's folder or GGUF file, saw nothing" in capsys.readouterr().err
    (folder / "config.json").unlink()
    assert main(["chat", str(folder), "--prompt", "!"]) == 2
    assert "wanted a model's JSON file, saw: No such file" in capsys.readouterr().err
    assert main(["serve", str(folder), "--key-file", "nothing"]) == 2
    assert "--key-file: wanted a file" in capsys.readouterr().err

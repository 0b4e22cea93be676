"""Answer questions with a language model: `python examples/chat.py PATH "Who wrote Faust?" ...`.

PATH is a folder with config.json, safetensors files and tokenizer.json, or a GGUF file. Each question goes on
with the conversation; its tokens that the cache holds already are not computed again. Install with the extra
`llm`: `pip install -e '.[llm]'`.

Not here: the model (`frontend.llm`), its command line (`hcq llm chat PATH`).
"""

from __future__ import annotations

import sys
import time

from frontend import llm


def main(path: str, questions: list[str], *, tokens: int = 200) -> None:
    """Print an answer to each question, and how fast it came."""
    model, codec = llm.load(path), llm.TextCodec.of(path)
    messages: list[dict[str, str]] = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        print(f"> {question}")
        begin, pieces = time.perf_counter(), []
        ids = codec.chat(messages)
        for piece in codec.texts(model.generate(ids, max_tokens=tokens, temperature=0.7, top_p=0.9, seed=1)):
            pieces.append(piece)
            print(piece, end="", flush=True)
        print(f"\n[{len(ids)} tokens before it, {time.perf_counter() - begin:.1f} s]")
        messages.append({"role": "assistant", "content": "".join(pieces)})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or ["Who are you?"])

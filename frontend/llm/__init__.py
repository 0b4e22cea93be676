"""Language models of files: `load` a folder or a GGUF file, then compute logits or generate ids.

    from frontend import llm
    model = llm.load("Llama-3.2-1B")                    # config.json and safetensors files
    model.logits([1, 2, 3])                             # (3, vocabulary)
    for token in model.generate([1, 2, 3], max_tokens=20, temperature=0.7, seed=1):
        print(token)

From the command line: `hcq llm chat PATH`. The page is docs/language-models.md.

Not here: training (`frontend.nn`). Next: `model`; `families`, the models that can be read.
"""

from __future__ import annotations

from frontend.llm.loading import load
from frontend.llm.model import LanguageModel
from frontend.llm.tokenizer import TextCodec

__all__ = ["LanguageModel", "TextCodec", "load"]

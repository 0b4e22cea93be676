"""What the documentation's site has beyond the pages of docs/: mkdocs calls it (`hooks` of mkdocs.yml).

Files and folders outside of docs/ that a page links to become pages, so that the site is whole without a
checkout. docs/adr has a list of its pages, reference/modules.md every public name of the frontend's modules,
and reference/hcq.md those of `hcq`. Build it with `pip install -e '.[docs]'` and `mkdocs build --strict`.

Not here: the pages that docs/reference keeps (`tools.reference`).
"""

from __future__ import annotations

import os.path
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools import model_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
MODULES: Final = (
    "frontend.nn", "frontend.nn.functional", "frontend.nn.init", "frontend.nn.utils", "frontend.optim",
    "frontend.optim.lr_scheduler", "frontend.utils.data", "frontend.autograd", "frontend.amp",
    "frontend.distributed", "frontend.linalg", "frontend.llm", "frontend.onnx",
)  # fmt: skip
"""The modules whose public names reference/modules.md lists."""
_LINK: Final = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)(?=[)#])")


def names(module: Any) -> list[str]:
    """Return the public functions and classes of a module: those of `__all__`, or that `dir` shows."""
    listed = {*(getattr(module, "__all__", None) or dir(module))}
    found = {name: getattr(module, name) for name in listed if not name.startswith("_")}
    own = (name for name, v in found.items() if callable(v) and v.__module__.startswith("frontend"))
    return sorted(own)


def reference() -> str:
    """Return the page of the frontend's modules: each public name as a call, with its docstring."""
    lines = ["# Modules of the frontend", ""]
    for path in MODULES:
        module = import_module(path)
        lines += [f"## `{path}`", "", model_reference.text_of(module), ""]
        for name in names(module):
            value = getattr(module, name)
            try:
                shown = model_reference.called(name, value, bound=False)
            except ValueError:  # a class of C code has no signature
                shown = name
            lines += [f"### `{path}.{shown}`", "", model_reference.text_of(value), ""]
    return "\n".join(lines)


def shown(path: Path) -> str:
    """Return the page that shows a file, or lists a folder, outside of docs/."""
    title = f"# `{path.relative_to(ROOT)}`\n\n"
    if path.is_dir():
        return title + "".join(f"- [`{one.name}`]({one.name})\n" for one in _files(path))
    text = path.read_text()
    return text if path.suffix == ".md" else f"{title}```{path.suffix[1:]}\n{text}\n```\n"


def on_config(config: Any) -> Any:
    """Put the version into the site's name."""
    config.site_name = f"hcq {tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']}"
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand for files outside of docs/, the list of decisions, and the modules."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - of the extra "docs"

    texts = {"reference/modules.md": reference(), "adr/index.md": _decisions()}
    texts["reference/hcq.md"] = model_reference.page()
    for page in DOCS.rglob("*.md"):
        for target in outside(page):
            listed = [*_files(target)] if target.is_dir() else []
            texts |= {place(one): shown(one) for one in (target, *listed)}
    for path, text in texts.items():
        files.append(File.generated(config, path, content=text))
    return files


def outside(page: Path) -> Iterator[Path]:
    """Yield the files and folders outside of docs/ that a page links to."""
    for match in _LINK.finditer(page.read_text()):
        target = (page.parent / match["path"]).resolve()
        if target.exists() and not target.is_relative_to(DOCS):
            yield target


def place(target: Path) -> str:
    """Return the path on the site of the page of a file or folder."""
    inside = target.is_relative_to(DOCS)
    path = target.relative_to(DOCS if inside else ROOT)
    if target.is_dir():
        return f"{path}/index.md"
    return str(path) if inside or target.suffix == ".md" else f"{path}.md"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point the links of a page to the places on the site."""
    at = Path(page.file.src_uri)
    base = DOCS if (DOCS / at.parent).is_dir() else ROOT

    def change(match: re.Match[str]) -> str:
        target = (base / at.parent / match["path"]).resolve()
        return os.path.relpath(place(target), at.parent) if target.exists() else match["path"]

    return _LINK.sub(change, markdown)


def _files(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.suffix in {".py", ".md"})


def _decisions() -> str:
    """Return the list of the pages of docs/adr, with their titles."""
    pages = {page.name: page.read_text() for page in sorted((DOCS / "adr").glob("0*.md"))}
    rows = [f"- [{text.splitlines()[0].lstrip('# ')}]({name})" for name, text in pages.items()]
    return "\n".join(["# Decisions", "", *rows, ""])

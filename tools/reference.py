"""Write the reference pages: `python -m tools.reference`.

docs/reference keeps the pages whose changes a review has to see: `Tensor` (with its stub for type checkers)
and PTX, which says what is refused. `--pages FOLDER` writes the others there: `hcq`, and tables of packets,
registers, ioctl structures and descriptors, one page for each module. All come from declarations and
docstrings. `--check` only reports stale pages.

Not here: outputs in other pages (`tools.docs`).
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from hcq.layout import BitStruct, Struct
from tools import model_reference, ptx_forms, tensor_reference
from tools.arguments import command

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
MODULES = ("drivers.cpu.layouts", "drivers.nv.layouts", "drivers.amd.layouts")
"""The modules, or packages of modules, that declare layouts."""


def modules() -> list[str]:
    """Return the names of all modules that may declare layouts."""
    found = []
    for name in MODULES:
        folder = ROOT / name.replace(".", "/")
        if folder.is_dir():
            files = sorted(folder.glob("*.py"))
            found += [f"{name}.{path.stem}" for path in files if path.stem != "__init__"]
        else:
            found.append(name)
    return found


def page(name: str) -> str:
    """Return a module's page; "" if it declares no layout."""
    module = import_module(name)
    layouts = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BitStruct | Struct) and value.__module__ == name
    ]
    tables = [layout.markdown() for layout in layouts]
    if not tables:
        return ""
    head = f"# `{name}`\n\n{(module.__doc__ or '').strip()}\n"
    return "\n\n".join([head, *tables]) + "\n"


def made_pages() -> dict[str, str]:
    """Return the pages that are not kept, by file name: `hcq`, and each module with layouts."""
    texts = {"hcq.md": model_reference.page()} | {f"{name}.md": page(name) for name in modules()}
    return {name: text for name, text in texts.items() if text}


def pages() -> dict[Path, str]:
    """Return the texts of the kept pages and of the stub by their paths."""
    return {
        PAGES / "tensor.md": tensor_reference.page(),
        PAGES / "ptx.md": ptx_forms.page(),
        ROOT / "frontend" / "tensor_methods.pyi": tensor_reference.stub(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages and return 0; with --check print stale pages, and return 1 if there is one."""
    parser = command("tools.reference", __doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    parser.add_argument(
        "--pages", type=Path, metavar="FOLDER", help="write the pages that are not kept there instead"
    )
    options = parser.parse_args(argv)
    if options.pages is not None and options.check:
        parser.error("--check: the pages of --pages are not kept; leave out --check or --pages")
    if options.pages is not None:
        options.pages.mkdir(parents=True, exist_ok=True)
        for name, text in made_pages().items():
            (options.pages / name).write_text(text)
            sys.stderr.write(f"written: {options.pages / name}\n")
        return 0
    check, wanted = options.check, pages()
    gone = [path for path in PAGES.glob("*.md") if path not in wanted]
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale + gone:
        sys.stderr.write(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}\n")
    if check:
        return 1 if stale or gone else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    for path in gone:
        path.unlink()
    for path in stale:
        path.write_text(wanted[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())

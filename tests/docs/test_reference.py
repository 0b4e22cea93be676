"""The generated reference says what the layouts say."""

from tools.reference import PAGES, pages


def test_reference_pages_are_current():
    wanted = pages()
    stale = [path.name for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    gone = [path.name for path in PAGES.glob("*.md") if path not in wanted]
    assert (stale, gone) == ([], []), "run: python -m tools.reference"

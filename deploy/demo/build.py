"""Render the demo corpus from its sources: `python -m deploy.demo.build`, or with `--check` to compare alone.

A document's id is the stem of its file, in `sources/` as in `corpus/`. The corpus is committed, so that the demo
needs none of the packages that write PDF; a test runs the comparison.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.demo.document import read_documents
from deploy.demo.render_docx import render_docx
from deploy.demo.render_html import render_html
from deploy.demo.render_pdf import render_pdf

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.demo.document import Document, Format

HERE: Final = Path(__file__).resolve().parent
SOURCES: Final = HERE / "sources"
CORPUS: Final = HERE / "corpus"


def render_markdown(document: Document) -> bytes:
    """The document as Markdown: front matter without the format, the title as heading, the body."""
    head = "\n".join(f"{key}: {_yaml(value)}" for key, value in document.metadata.items() if key != "format")
    return f"---\n{head}\n---\n\n# {document.title}\n\n{document.body}".encode()


def _yaml(value: str) -> str:
    """A plain YAML scalar where that is safe, else a quoted one."""
    return json.dumps(value, ensure_ascii=False) if ": " in value or value[:1] in "\"'&*!|>%@`#[]{}" else value


RENDERERS: Final[dict[Format, Callable[[Document], bytes]]] = {
    "md": render_markdown,
    "html": render_html,
    "pdf": render_pdf,
    "docx": render_docx,
}


def render_corpus(sources: Path = SOURCES) -> dict[str, bytes]:
    """Every file of the corpus by name.

    Raises:
        SourceError: a source breaks the rules of `deploy.demo.document`.
    """
    return {f"{doc.id}.{doc.format}": RENDERERS[doc.format](doc) for doc in read_documents(sources)}


def drift(rendered: dict[str, bytes], corpus: Path = CORPUS) -> list[str]:
    """Names of corpus files that are missing, left over or different from what the sources say."""
    present = {path.name: path.read_bytes() for path in corpus.iterdir()} if corpus.is_dir() else {}
    return sorted(name for name in rendered.keys() | present.keys() if rendered.get(name) != present.get(name))


def write_corpus(rendered: dict[str, bytes], corpus: Path = CORPUS) -> list[str]:
    """Bring the corpus folder up to date and return the names of what was written or removed."""
    changed = drift(rendered, corpus)
    corpus.mkdir(parents=True, exist_ok=True)
    for name in changed:
        if name in rendered:
            (corpus / name).write_bytes(rendered[name])
        else:
            (corpus / name).unlink()
    return changed


def main(arguments: list[str] | None = None) -> int:
    """Write the corpus, or compare it with the sources under `--check`; 1 when that finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the corpus is out of date")
    options = parser.parse_args(arguments)
    rendered = render_corpus()
    changed = drift(rendered) if options.check else write_corpus(rendered)
    verb = "out of date" if options.check else "written or removed"
    sys.stdout.writelines(f"{verb}: {name}\n" for name in changed)
    sys.stdout.write(f"{len(rendered)} documents, {sum(map(len, rendered.values())):,} bytes\n")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())

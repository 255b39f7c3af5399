"""HTML: the main content as text with headings, lists and tables; what a visitor does not see is left out.

Prevents scripts, navigation and hidden text from being embedded and cited. The tree is walked with a stack of our own,
and a page nested absurdly deep is refused unparsed: parsing takes time in the square of the depth.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from selectolax.lexbor import LexborHTMLParser

from standard.corpus.readers.extracted import (
    Extracted,
    Unreadable,
    decode_text,
    joined,
    one_line,
    table_lines,
    title_from,
)

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
_DROPPED_TAGS = (
    "script style noscript template head svg math iframe object embed canvas audio video nav footer button input "
    "select textarea dialog colgroup"
)
_BLOCK_TAGS = (
    "p div section article main header aside blockquote figure figcaption ul ol dl dt dd li form fieldset details "
    "summary address hr body html caption center"
)
_DROPPED = frozenset(_DROPPED_TAGS.split())
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_NESTING_TAGS = (
    "div span section article main header aside blockquote figure ul ol dl details table form fieldset center b i u s "
    "em strong font big small sub sup code tt label ins del"
)
_NESTING = re.compile(rf"<(/?)(?:{'|'.join(_NESTING_TAGS.split())})(?=[\s>/])", re.IGNORECASE)
_DEEPEST = 2000  # browsers stop at 512
_HIDDEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*0(?:\.0*)?\s*(?:;|!|$)"
    r"|font-size\s*:\s*0(?:\.0*)?[a-z%]*\s*(?:;|!|$)",
    re.IGNORECASE,
)


def read_html(data: bytes) -> Extracted:
    """Read a page. Raises Unreadable for bytes that are neither UTF-8 nor in the encoding the page declares."""
    page = _decode(data)
    if _depth(page) > _DEEPEST:
        raise Unreadable(f"is nested more than {_DEEPEST} elements deep")
    tree = LexborHTMLParser(page)
    title_node = tree.css_first("title")
    headings = tree.css("h1")
    content = _main_content(tree)
    return Extracted(
        title=title_from(
            _inline(headings[0]) if len(headings) == 1 else "",
            title_node.text(deep=True) if title_node is not None else "",
        ),
        text=_render(content) if content is not None else "",
    )


def _decode(data: bytes) -> str:
    try:
        return decode_text(data)
    except Unreadable:
        declared = _CHARSET.search(data[:4096])
        if declared is None:
            raise
    name = declared[1].decode("ascii", "replace")
    try:
        return data.decode(name).replace("\r\n", "\n").replace("\r", "\n")
    except (LookupError, UnicodeDecodeError) as problem:
        raise Unreadable(f"not in the encoding it declares, {name!r}") from problem


def _depth(page: str) -> int:
    """Return how deep elements lie in each other that are written with an end, counting what is not closed."""
    depth = deepest = 0
    for tag in _NESTING.finditer(page):
        depth = max(0, depth - 1) if tag[1] else depth + 1
        deepest = max(deepest, depth)
    return deepest


def _main_content(tree: LexborHTMLParser) -> LexborNode | None:
    """Return the one element that is marked as the content, else the body."""
    for selector in ("main", "[role=main]", "article"):
        found = [node for node in tree.css(selector) if not _is_hidden(node)]
        if len(found) == 1 and len(one_line(found[0].text(deep=True))) > 100:
            return found[0]
    return tree.body


def _is_hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    style = attributes.get("style")
    return bool(style and _HIDDEN_STYLE.search(style))


class _Text:
    """Collects inline text into blocks."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self._inline: list[str] = []
        self.prefix = ""

    def add(self, text: str) -> None:
        self._inline.append(text)

    def close(self) -> None:
        lines = [one_line(line) for line in "".join(self._inline).split("\x1e")]
        text = "\n".join(line for line in lines if line)
        if text:
            self.blocks.append(self.prefix + text)
            self.prefix = ""
        self._inline.clear()


def _render(root: LexborNode) -> str:
    out = _Text()
    # (node, False) opens a node, (node, True) closes it
    stack: list[tuple[LexborNode, bool]] = [(root, False)]
    while stack:
        node, closing = stack.pop()
        tag = node.tag
        if closing:
            out.close()
            continue
        if tag == "-text":
            out.add(node.text(deep=False) or node.text_content or "")
            continue
        if tag is None or tag.startswith(("-", "_")) or tag in _DROPPED or _is_hidden(node):
            continue
        if tag == "br":
            out.add("\x1e")
            continue
        if tag == "table" and not _is_layout(node):
            out.close()
            caption = node.css_first("caption")
            out.blocks += [block for block in (_inline(caption) if caption else "", _table(node)) if block]
            continue
        if tag == "pre":
            out.close()
            code = node.text(deep=True).strip("\n")
            if code.strip():
                out.blocks.append(f"```\n{code}\n```")
            continue
        if tag in _HEADINGS:
            out.close()
            if text := _inline(node):
                out.blocks.append("#" * _HEADINGS[tag] + " " + text)
            continue
        if tag in _BLOCKS:
            out.close()
            if tag == "li":
                out.prefix = "- "
            stack.append((node, True))
        elif tag in ("td", "th"):
            out.add(" ")
        elif tag == "tr":
            out.close()
        stack += [(child, False) for child in reversed(list(node.iter(include_text=True)))]
    out.close()
    return joined(out.blocks)


def _inline(node: LexborNode) -> str:
    """Return the visible text of a node on one line."""
    parts: list[str] = []
    stack = [node]
    while stack:
        current = stack.pop()
        tag = current.tag
        if tag == "-text":
            parts.append(current.text(deep=False) or current.text_content or "")
        elif tag is not None and not tag.startswith(("-", "_")) and tag not in _DROPPED and not _is_hidden(current):
            if tag == "br" or tag in _BLOCKS:
                parts.append(" ")
            stack += reversed(list(current.iter(include_text=True)))
    return one_line("".join(parts))


def _is_layout(table: LexborNode) -> bool:
    """Tell a table that only places things: it holds another table or headings, or has a single column."""
    if table.attributes.get("role") in ("presentation", "none"):
        return True
    if table.css_first("table table, td h1, td h2, td h3") is not None:
        return True
    return all(len(row.css("td, th")) < 2 for row in table.css("tr"))


def _table(table: LexborNode) -> str:
    rows = [[_inline(cell) for cell in row.css("td, th")] for row in table.css("tr") if not _is_hidden(row)]
    return table_lines(rows)

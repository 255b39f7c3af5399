"""An intranet page around a source document: skip link, navigation, breadcrumb, article, footer.

The furniture is there on purpose. A reader that indexes it along with the article will find the same words on every
page, which is what happens with real intranets.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from deploy.demo.document import markdown

if TYPE_CHECKING:
    from deploy.demo.document import Document

SECTIONS: Final = ("Policies", "Ships", "Terminals", "Timetables", "Fares", "Projects", "People")
STYLE: Final = (
    "body{font:16px/1.5 Georgia,serif;margin:0;color:#1d2b36}"
    "header,footer{background:#123c5a;color:#fff;padding:.8em 2em}"
    "nav a{color:#fff;margin-right:1.2em}main{max-width:46em;margin:0 auto;padding:1em 2em}"
    "table{border-collapse:collapse}td,th{border:1px solid #9ab;padding:.25em .6em;text-align:left}"
    ".imprint{color:#567;font-size:.9em}"
)


def render_html(document: Document) -> bytes:
    """The document as one UTF-8 HTML page; metadata stands in `meta` elements."""
    meta = "\n".join(
        f'  <meta name="{escape(key)}" content="{escape(value)}">'
        for key, value in document.metadata.items()
        if key not in {"title", "format"}
    )
    links = "\n".join(f'      <a href="/{name.lower()}/">{name}</a>' for name in SECTIONS)
    department = escape(document.metadata["department"])
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>{escape(document.title)} | The Locker</title>
{meta}
  <style>{STYLE}</style>
</head>
<body>
  <a class="skip" href="#content">Skip to content</a>
  <header>
    <strong>Tessary Sound Ferries</strong> <span>The Locker, our intranet</span>
    <nav aria-label="Main">
{links}
    </nav>
    <form action="/search" role="search"><input name="q" aria-label="Search"><button>Search</button></form>
  </header>
  <main id="content">
    <p class="breadcrumb"><a href="/">Home</a> &rsaquo; <a href="/departments/">{department}</a></p>
    <article>
<h1>{escape(document.title)}</h1>
<p class="imprint">{escape(document.imprint)}</p>
{markdown().render(document.body)}    </article>
  </main>
  <footer>
    <p>Tessary Sound Ferries, Customs Quay, Port Maddern. For staff use. <a href="/print">Print this page</a></p>
    <p><a href="/accessibility">Accessibility</a> <a href="/cookies">Cookies</a></p>
    <p><a href="/feedback">Report a mistake on this page</a></p>
  </footer>
  <script>document.documentElement.dataset.ready = "yes";</script>
</body>
</html>
"""
    return page.encode("utf-8")

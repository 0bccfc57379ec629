"""HTML pages of studies: headings, words, charts and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = (
    ":root{color-scheme:light dark}body{font:14px sans-serif;margin:2em auto;max-width:64em;"
    "padding:0 1em;line-height:1.4}table{border-collapse:collapse}svg{max-width:100%;height:auto}"
    ".wide{overflow-x:auto}h2{margin-top:2em;border-top:1px solid #8886;padding-top:1em}"
    "code{overflow-wrap:anywhere}@media print{body{font-size:9px;margin:0;max-width:none}"
    ".wide{overflow-x:visible}td,th{padding:1px 4px}svg,tr{break-inside:avoid}"
    "h2,h3,p{break-after:avoid}}"
    "td,th{white-space:nowrap;padding:2px 8px;text-align:right;border-bottom:1px solid #8886}"
    "td:first-child,th:first-child{text-align:left}"
)


def page(title: str, *parts: str) -> str:
    """Return a page with a heading; its parts are markup."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>{heading(title, level=1)}"
        f"{''.join(parts)}</html>\n"
    )


def heading(words: str, *, level: int = 2) -> str:
    """Return a heading."""
    return f"<h{level}>{escape(words)}</h{level}>"


def paragraph(words: str) -> str:
    """Return a paragraph."""
    return f"<p>{escape(words)}</p>"


def code(words: str) -> str:
    """Return a command or file as a paragraph of its own."""
    return f"<p><code>{escape(words)}</code></p>"


def grid(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table with a first line of titles."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines
    )
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>\n'

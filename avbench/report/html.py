"""HTML from Python values. Text is escaped unless it is already `Html`, so that no name can become markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Html(str):
    """Markup that is safe as it stands."""

    __slots__ = ()


Child = str | None | Iterable["Child"]
_VOID = frozenset({"meta", "br", "input", "link"})


def element(tag: str, *children: Child, **attributes: str | bool | None) -> Html:
    """`<tag attribute="...">children</tag>`. None leaves an attribute away, True writes its bare name.

    `class_` and `data_x` are written `class` and `data-x`.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{join(*children)}</{tag}>")


def join(*children: Child) -> Html:
    """Children one after the other, text escaped."""
    return Html("".join(_written(child) for child in children))


def _written(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return escape(child, quote=False)
    return "".join(_written(part) for part in child)


def _attribute(name: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def table(head: Iterable[Child], rows: Iterable[Iterable[Child]], *, class_: str = "", caption: str = "") -> Html:
    """A table that scrolls sideways in a box of its own, so that the page does not. Rows and cells may be markup."""
    titles = element("tr", (element("th", cell, scope="col") for cell in head))
    body = (row if isinstance(row, Html) else element("tr", (_cell(cell) for cell in row)) for row in rows)
    return element(
        "div",
        element("table", element("thead", titles), element("tbody", body), class_=class_ or None),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption or "table",
    )


def _cell(cell: Child) -> Html:
    if isinstance(cell, Html) and cell.startswith(("<td", "<th")):
        return cell
    return element("td", cell)


def code_text(text: str) -> Html:
    """Plain words in which `backticks` become code."""
    parts = text.split("`")
    return join(*(element("code", part) if index % 2 else part for index, part in enumerate(parts)))

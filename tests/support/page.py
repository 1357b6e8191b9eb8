"""Read what a page of HTML is made of, by the standard library."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Element:
    """A tag with its attributes, the elements in it, and all text below it."""

    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Element] = []
        self.text = ""

    def all(self, tag: str = "", **wanted: str) -> list[Element]:
        """Everything below it with this tag and these attributes."""
        names = {name.rstrip("_").replace("_", "-"): value for name, value in wanted.items()}
        below = [each for child in self.children for each in (child, *child.all())]
        return [
            each
            for each in below
            if tag in ("", each.tag) and all(each.attributes.get(name) == value for name, value in names.items())
        ]


class Page(HTMLParser):
    """A document whose tags close in the order in which they opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]
        self.feed(text)
        self.close()
        assert self.open == [self.root], f"not closed: {[element.tag for element in self.open[1:]]}"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"{tag} closes {self.open[-1].tag}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data


def parsed(text: str) -> Element:
    """The root of a page, whose elements are well nested."""
    return Page(text).root

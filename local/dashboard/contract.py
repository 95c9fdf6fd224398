"""The contract of the HTTP API, docs/openapi.yaml, as a page for people.

Not by a library: the smallest, swagger-ui-dist 5.35, is 12 MB. This shows all that our contract uses, but links between
answers, which are for test tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

import yaml

from local import ROOT

CONTRACT = ROOT / "docs" / "openapi.yaml"

# The others are shown as they are: `minimum 1`.
_STRUCTURE = {"type", "description", "properties", "required", "items", "additionalProperties"}

Document = Mapping[str, Any]


def rendered() -> str:
    """The contract as HTML, to be put into the page."""
    return "\n".join(_Contract(yaml.safe_load(CONTRACT.read_text("utf-8"))).parts())


class _Contract:
    def __init__(self, document: Document) -> None:
        self._document = document

    def parts(self) -> Iterator[str]:
        """The table of contents, what is true of all routes, the routes, and what they speak of."""
        routes = list(self._routes())
        schemas = self._document["components"]["schemas"]
        yield '<nav aria-label="Contents"><h2>Routes</h2><ul>'
        for method, path, _, operation in routes:
            link = f'<a href="#{escape(operation["operationId"])}">{_route(method, path)}</a>'
            yield f"<li>{link}<small>{_words(operation['summary'])}</small></li>"
        yield "</ul><h2>Schemas</h2><ul>"
        yield from (f"<li>{_link(name)}</li>" for name in schemas)
        yield f"</ul></nav><main>{self._about()}"
        for method, path, shared, operation in routes:
            yield from self._operation(method, path, shared, operation)
        for name, schema in schemas.items():
            yield f'<section id="{escape(name)}"><h2>{escape(name)}</h2>{self._schema(schema)}</section>'
        yield "</main>"

    def _routes(self) -> Iterator[tuple[str, str, list[Document], Document]]:
        for path, item in self._document["paths"].items():
            for method in (name for name in item if name != "parameters"):
                yield method.upper(), path, item.get("parameters", []), item[method]

    def _about(self) -> str:
        info, servers = self._document["info"], self._document["servers"]
        where = [
            f"<p><code>{escape(s['url'])}</code> {_words(s['description'])}</p>" for s in servers
        ]
        schemes = self._document["components"]["securitySchemes"].values()
        let_in = "".join(f"<li>{_words(scheme['description'])}</li>" for scheme in schemes)
        said = _words(info["description"])
        return (
            f"<section><p>{said}</p>{''.join(where)}<h3>Who gets in</h3><ul>{let_in}</ul></section>"
        )

    def _operation(
        self, method: str, path: str, shared: list[Document], operation: Document
    ) -> Iterator[str]:
        yield f'<section class="route" id="{escape(operation["operationId"])}">'
        yield f"<h2>{_route(method, path)}</h2><p><strong>{_words(operation['summary'])}.</strong></p>"
        yield f"<p>{_words(operation.get('description', ''))}</p>"
        parameters = [self._resolved(one) for one in (*shared, *operation.get("parameters", []))]
        if parameters:
            yield "<h3>Parameters</h3>" + _table(map(self._parameter, parameters))
        if "requestBody" in operation:
            yield "<h3>Body</h3>" + self._contents(operation["requestBody"])
        answers = ((s, self._answer(self._resolved(a))) for s, a in operation["responses"].items())
        yield "<h3>Answers</h3>" + _table(answers) + "</section>"

    def _parameter(self, one: Document) -> tuple[str, str]:
        where = f"in the {one['in']}{', required' if one.get('required') else ''}"
        example = one.get("example", "")
        if isinstance(example, list):
            example = ",".join(example)
        example = f" Example: <code>{escape(example)}</code>" if example else ""
        said = f"<p>{_words(one.get('description', ''))}{example}</p>"
        return f"{escape(one['name'])}<small>{where}</small>", self._schema(one["schema"]) + said

    def _answer(self, answer: Document) -> str:
        rows = (
            (escape(name), self._schema(one["schema"]) + _described(one))
            for name, one in answer.get("headers", {}).items()
        )
        return f"<p>{_words(answer['description'])}</p>{self._contents(answer)}" + _table(rows)

    def _contents(self, holder: Document) -> str:
        shown = ""
        for kind, content in holder.get("content", {}).items():
            shown += f"<div><small>{escape(kind)}</small> {self._schema(content['schema'])}</div>"
            if "example" in content:
                shown += f"<pre>{_json(content['example'], indent=2)}</pre>"
        return shown

    def _schema(self, schema: Document) -> str:
        return self._line(schema) + _described(schema) + self._properties(schema)

    def _line(self, schema: Document) -> str:
        if "$ref" in schema:
            return _link(schema["$ref"].rpartition("/")[2])
        types, items, more = (schema.get(n) for n in ("type", "items", "additionalProperties"))
        words = [types if isinstance(types, str) else " or ".join(types or ())]
        if items is not None:
            words[0] += f" of {self._line(items)}"
        words += [
            f"{escape(word)} <code>{_json(value)}</code>"
            for word, value in schema.items()
            if word not in _STRUCTURE
        ]
        if more is False:
            words.append("no other properties")
        elif more is not None:
            words.append(f"each value: {self._line(more)}")
        return ", ".join(filter(None, words))

    def _properties(self, schema: Document) -> str:
        required = schema.get("required", [])
        shown = _table(
            (
                f"{escape(name)}<small>{'' if name in required else 'optional'}</small>",
                self._schema(one),
            )
            for name, one in schema.get("properties", {}).items()
        )
        inner = (schema.get(name) for name in ("items", "additionalProperties"))
        return shown + "".join(self._properties(one) for one in inner if one)

    def _resolved(self, thing: Document) -> Document:
        if "$ref" not in thing:
            return thing
        _, kind, name = thing["$ref"].removeprefix("#/").split("/")
        found: Document = self._document["components"][kind][name]
        return found


def _route(method: str, path: str) -> str:
    return f'<span class="method">{method}</span> <code>{escape(path)}</code>'


def _link(schema: str) -> str:
    return f'<a href="#{escape(schema)}">{escape(schema)}</a>'


def _described(thing: Document) -> str:
    return f"<p>{_words(thing['description'])}</p>" if "description" in thing else ""


def _table(rows: Iterable[tuple[str, str]]) -> str:
    shown = "".join(f'<tr><th scope="row">{name}</th><td>{what}</td></tr>' for name, what in rows)
    return shown and f"<table>{shown}</table>"


def _json(value: object, indent: int | None = None) -> str:
    return escape(json.dumps(value, indent=indent))


def _words(text: str) -> str:
    """Text for people. What stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text.strip()))

"""Adds up the figures that a demonstration prints, as a reader might."""

from __future__ import annotations

import re


def figures(text: str) -> dict[str, tuple[int, str]]:
    """Read the rows of a summary: each row's total, and the text after it."""
    name = r"[A-Z]?[a-z-]+(?: [a-z]+)*|\(default\)"
    rows = re.findall(rf"^({name}) {{2,}}([\d,]+)  (.*)$", text, flags=re.MULTILINE)
    return {name: (_number(value), words.rstrip()) for name, value, words in rows}


def check_sums(text: str) -> None:
    """Fail if the parts of a total in the summary do not add up."""
    rows = figures(text)
    (messages,) = re.findall(r"in ([\d,]+) message", rows["Orders sent"][1])
    ends = {name: rows[name][0] for name in ("placed", "rejected", "replayed", "dead letters")}
    assert rows["Orders sent"][0] == ends["placed"] + ends["rejected"]
    assert _number(messages) == sum(ends.values()), ends
    if "Locations" in rows:
        names = list(rows)
        places = names[names.index("Locations") + 1 : names.index("several") + 1]
        assert rows["Locations"][0] == len(places) - 1
        assert sum(rows[name][0] for name in places) == ends["placed"]
    for name in ("rejected", "dead letters", "Events", "Transactions"):
        whole, words = rows[name]
        parts = _parts(words)
        assert sum(parts.values()) == whole or not parts, (name, words)
    events = _parts(rows["Events"][1])
    assert events["placed"] == ends["placed"] + rows["never paid"][0]
    assert events.get("expired", 0) == rows["never paid"][0]
    (throughput,) = re.findall(r"^Throughput +([\d,.]+)/s", text, flags=re.MULTILINE)
    for average in re.findall(r"^Messages/s .* average ([\d,.]+),", text, flags=re.MULTILINE):
        assert average == throughput
    _check_books(text)


def _check_books(text: str) -> None:
    found = re.findall(
        r"^(\S.*?|  \S+)((?: +-?[\d,]+){6}) *$",
        text[text.index("The books of this run") :],
        flags=re.MULTILINE,
    )
    books = {name: [_number(cell) for cell in cells.split()] for name, cells in found}
    for start, count, sold, available, committed, on_hand in books.values():
        assert start + count - sold == available == on_hand - committed, books
    of_places = {name: books.pop(name) for name in list(books) if name.startswith(" ")}
    if of_places:
        assert _sums(of_places) in books.values(), "the locations add up to the first product"
    (total,) = (name for name in books if name.startswith("all "))
    whole = books.pop(total)
    assert _sums(books) == whole


def _sums(rows: dict[str, list[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows.values(), strict=True)]


def _parts(words: str) -> dict[str, int]:
    found = re.findall(r"(?:^|, |: )([\d,]+) ([^,:(]+)", words)
    return {what.strip(): _number(number) for number, what in found}


def _number(text: str) -> int:
    return int(text.replace(",", ""))

"""Writes all generated documents for `make docs`."""

import tests.support.environment  # noqa: F401 - the documents do not depend on who writes them

# isort: split
from docs_generator import asyncapi, costs, pages, sample_events

if __name__ == "__main__":
    pages.FOLDER.mkdir(exist_ok=True)
    for name in pages.PAGES:
        (pages.FOLDER / name).write_text(pages.text_of(name), "utf-8")
    sample_events.PAGE.write_text(sample_events.text(), "utf-8")
    asyncapi.PAGE.write_text(asyncapi.text(), "utf-8")
    costs.PAGE.write_text(costs.updated(costs.PAGE.read_text("utf-8")), "utf-8")

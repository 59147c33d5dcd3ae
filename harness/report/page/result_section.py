"""Part of the report page with the table models × environments."""

from __future__ import annotations

from harness.report.page.gather import Page
from harness.report.page.markup import Child, Html, join, table, tag
from harness.report.paper_tables.cells import table_of_page
from harness.report.paper_tables.footnotes import cell_notes, footnotes
from harness.report.paper_tables.layout import Shown, layout_of


def result_section(page: Page) -> Html | None:
    """Page section with the table of models × environments and its footnotes; None if there is only one environment."""
    if len(page.environments) < 2:
        return None
    result = table_of_page(page)
    result.missing = []  # the head of the page names them
    layout = layout_of(result)
    rows: list[list[Child]] = [[tag("span", name, class_="name"), *map(_cell, cells)] for name, cells in layout.rows]
    label = "models and environments"
    body = table([layout.corner, *layout.columns], rows, label=label)
    notes = [tag("li", tag("sup", letter), f" {words}") for letter, words in cell_notes(result).values()]
    notes += [tag("li", words) for words in footnotes(result)]
    heading = tag("h3", "Models and environments", id="models-environments")
    return join([heading, body, tag("ul", *notes, class_="remarks")])


def _cell(shown: Shown) -> Html:
    mean = tag("strong" if shown.is_best else "span", shown.mean)
    raised = tag("sup", shown.sign + shown.letter) if shown.sign or shown.letter else None
    return join([mean, raised, tag("br"), tag("span", shown.interval, class_="note")])

"""Tables on narrow terminals: rows one below the other where a table would break words."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dmlvk._printable import printable


def unbroken(table: Table, terminal: Console) -> Table:
    """The table; if it would break words, a line of heading and cell for each cell that is not empty."""
    heads = [_text(column.header) for column in table.columns]
    rows = [list(map(_text, row)) for row in zip(*(column.cells for column in table.columns), strict=True)]
    lines = ("".join(segment.text for segment in line) for line in terminal.render_lines(table))
    shown = {word for line in lines for word in line.split()}
    if all(shown.issuperset(cell.plain.split()) for row in (heads, *rows) for cell in row):
        return table
    title = _text(table.title or "")  # which is as wide as the table
    stacked = Table(title=title, title_justify="left", show_header=False, min_width=min(terminal.width, title.cell_len))
    stacked.add_column(no_wrap=True)
    stacked.add_column(overflow="fold")
    for row in rows:
        for head, cell, column in zip(heads, row, table.columns, strict=True):
            if cell.plain:
                cell.stylize_before(column.style)
                stacked.add_row(head, cell)
        stacked.add_section()
    return stacked


def _text(cell: RenderableType) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(printable(str(cell)))

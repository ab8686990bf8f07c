"""A comparison as one self-contained page of HTML, which filters and sorts its rows itself."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import jinja2
from markupsafe import Markup

from dmlvk._common import files
from dmlvk._printable import printable_data
from dmlvk.conformance.comparison.findings import Findings
from dmlvk.conformance.reports.html import shown, style
from dmlvk.conformance.reports.matrices import WORST_FIRST
from dmlvk.conformance.results import Result, Status

# The page shows at most this much of a message.
LONGEST_MESSAGE = 300
# A broken driver has thousands of them; the rows below list all.
MOST_DISAGREEMENTS = 200


def page(findings: Findings) -> str:
    """The page's source."""
    data = printable_data(rows(findings))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=shown)
    return environment.from_string(_resource("page.html")).render(
        findings=findings,
        most_disagreements=MOST_DISAGREEMENTS,
        labels=[run.label for run in findings.runs],
        runs=[
            (run, {status.value: counts[place] for status, counts in findings.counts.items()})
            for place, run in enumerate(findings.runs)
        ],
        statuses=[status.value for status in findings.counts],
        choices=[
            ("operator", sorted(data["operators"])),
            ("path", sorted(filter(None, data["paths"]))),
            ("type", sorted({word for types in data["types"] for word in types.split()})),
            ("vendor", sorted({run.vendor for run in findings.runs})),
        ],
        # Nothing in the data may end the element that holds it.
        data=Markup(json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")),
        style=Markup(style() + _resource("page.css")),
        script=Markup(_resource("rows.js") + _resource("page.js")),
    )


def _resource(name: str) -> str:
    return files.packaged_text("dmlvk.conformance.comparison", name)


class _Words:
    """Texts by their number."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.numbers = {word: number for number, word in enumerate(known)}

    def __getitem__(self, word: str) -> int:
        return self.numbers.setdefault(word, len(self.numbers))


def rows(findings: Findings) -> dict[str, Any]:
    """All results as rows.js reads them: a row for each case and profile, a cell for each result."""
    statuses = list(Status)
    operators, types, paths = _Words(), _Words(), _Words([""])
    lines: dict[tuple[str, str], list[Any]] = {}
    for device, run in enumerate(findings.runs):
        for (profile, name), result in run.results.items():
            line = lines.setdefault((profile, name), [name, profile, "", "", []])
            # A result that ended before the case was built has neither; another device's result may have them.
            line[2], line[3] = line[2] or result.operator, line[3] or result.types
            line[4].append(
                [
                    device,
                    statuses.index(result.status),
                    paths[result.path],
                    result.digest,
                    round(result.seconds, 2),
                    result.message[:LONGEST_MESSAGE] or result.reason,
                ]
            )
    for line in lines.values():
        line[2], line[3] = operators[line[2] or line[0].partition(":")[0]], types[line[3]]
    return {
        "devices": [{"label": run.label, "vendor": run.vendor} for run in findings.runs],
        "statuses": [status.value for status in statuses],
        "good": [Result("", "", status).is_good for status in statuses],
        "worst": [statuses.index(status) for status in WORST_FIRST],
        "operators": list(operators.numbers),
        "types": list(types.numbers),
        "paths": list(paths.numbers),
        "rows": list(lines.values()),
    }

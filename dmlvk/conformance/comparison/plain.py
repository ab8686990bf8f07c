"""A comparison as plain data, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dmlvk.conformance.comparison.agreement import Disagreement
from dmlvk.conformance.comparison.changes import Change, Figures, SpeedChange, SpeedUpdate, Update
from dmlvk.conformance.comparison.findings import Findings
from dmlvk.conformance.comparison.runs import DeviceRun

FORMAT = 1

Record = dict[str, Any]


def record(findings: Findings) -> Record:
    """All that a comparison found.

    Returns format, verdict, notes; devices: one a run; cases: by profile and name, the results by the run's label;
        disagreements; updates; speed_updates.
    """
    cases: dict[str, dict[str, Record]] = {}
    for run in findings.runs:
        for (profile, name), result in run.results.items():
            row = {key: value for key, value in result.to_json().items() if key not in ("kind", "name", "profile")}
            cases.setdefault(profile, {}).setdefault(name, {})[run.label] = row
    return {
        "format": FORMAT,
        "verdict": findings.verdict,
        "agree": not findings.disagreements,
        "outputs_compared": findings.agreement.compared,
        "digests_compared": findings.agreement.digests,
        "notes": list(findings.notes),
        "devices": [device_record(run) for run in findings.runs],
        "disagreements": [_disagreement(found, findings.differences) for found in findings.disagreements],
        "updates": [_update(update) for update in findings.updates],
        "speed_updates": [_speed_update(update) for update in findings.speed_updates],
        "cases": cases,
    }


def device_record(run: DeviceRun) -> Record:
    """One run, without its results."""
    environment = run.environment
    return {
        "label": run.label,
        "device": environment.device,
        "vendor": run.vendor,
        "type": run.kind,
        "driver": environment.driver,
        "driver_version": environment.driver_version,
        "vulkan": environment.vulkan,
        "dmlvk": environment.package,
        "path": environment.path,
        "validated": environment.validated,
        "date": environment.date,
        "files": [path.name for path in run.paths],
        "cases": len(run.results),
        "statuses": {status.value: count for status, count in run.counts().items()},
    }


def _disagreement(found: Disagreement, differences: Any) -> Record:
    return {
        "case": found.case,
        "sides": [
            {
                "digest": side.digest,
                "recorded": side.is_recorded,
                "holders": [
                    {
                        "device": holder.run.label,
                        "profile": holder.result.profile,
                        "name": holder.result.name,
                        "path": holder.result.path,
                        "status": holder.result.status.value,
                    }
                    for holder in side.holders
                ],
            }
            for side in found.sides
        ],
        "first_difference": differences.get(found.case),
    }


def _update(update: Update) -> Record:
    def changes(found: tuple[Change, ...]) -> list[Record]:
        return [
            {
                "name": change.after.name,
                "profile": change.after.profile,
                "before": change.before.status.value,
                "after": change.after.status.value,
                "reason": change.after.reason,
                "message": change.after.message,
            }
            for change in found
        ]

    return {
        "before": update.before.label,
        "after": update.after.label,
        "causes": list(update.causes),
        "common": update.common,
        "broke": changes(update.broke),
        "mended": changes(update.mended),
        "others": changes(update.others),
    }


def _speed_update(update: SpeedUpdate) -> Record:
    def figures(found: Figures) -> Record:
        return {name: value for name, value in asdict(found).items() if name not in ("timings", "numbers")}

    def speeds(found: tuple[SpeedChange, ...]) -> list[Record]:
        return [
            {
                "case": speed.case,
                "ratio": speed.ratio,
                "before": {"path": speed.before.path, "seconds": speed.before.median},
                "after": {"path": speed.after.path, "seconds": speed.after.median},
            }
            for speed in found
        ]

    return {
        "before": figures(update.before),
        "after": figures(update.after),
        "common": update.common,
        "slower": speeds(update.slower),
        "faster": speeds(update.faster),
    }

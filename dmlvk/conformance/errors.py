"""Errors in a request to the conformance suite that the user can correct."""

from __future__ import annotations

from dmlvk._printable import CleanMessage


class ConformanceError(CleanMessage, ValueError):
    """A pattern that names nothing, or a file that cannot be understood. The message says what would be right."""

"""What is wrong with a request to the conformance suite, as far as the user can put it right."""

from __future__ import annotations


class ConformanceError(ValueError):
    """A pattern that names nothing, a file that cannot be understood; the message says what would be right."""

"""How much the tests do: by day what `make test` has time for, at night (`make test-thorough`) everything."""

from __future__ import annotations

import os

from hypothesis import settings

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
# Nearly every example compiles another pipeline on a CPU driver, so kernels have fewer than the 50 of other tests.
EXAMPLES_BY_DAY = 6
FEWEST_EXAMPLES = 4


def examples(share: float = 1) -> settings:
    """Settings of a property test that runs kernels, with more or fewer examples than others.

    Parameters
    ----------
    share : float
        Multiple of the number of examples: 6 by day, 1,000 in `make test-thorough`.
    """
    profile = settings.default
    assert profile is not None
    number = profile.max_examples if THOROUGH else EXAMPLES_BY_DAY
    return settings(max_examples=max(FEWEST_EXAMPLES, round(share * number)))

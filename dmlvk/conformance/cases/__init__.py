"""The cases of the conformance suite, one module an operator."""

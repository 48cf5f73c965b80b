"""The public test kit: conformance suites, fakes and fixtures for pytest.

A failed ``assert`` of a suite shows the values that it compares, also in the tests of a separate distribution. pytest
does that by itself for test modules only."""

import sys

if "pytest" in sys.modules:  # Some fakes are of use without it.
    sys.modules["pytest"].register_assert_rewrite("stelae.testing.conformance", "stelae.testing.wal_model")

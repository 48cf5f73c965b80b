"""The public test kit: conformance suites, fakes and fixtures for pytest."""

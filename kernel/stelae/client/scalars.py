"""Single values of numpy, pandas and pyarrow as plain Python values, for plugins."""

from stelae.rows.scalars import has_nanoseconds, plain_scalar

__all__ = ["has_nanoseconds", "plain_scalar"]

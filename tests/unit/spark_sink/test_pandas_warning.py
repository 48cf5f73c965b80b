"""PySpark's warning of pandas 3, which the pinned packages have."""

from __future__ import annotations

import warnings

from pyspark.sql.pandas.utils import require_minimum_pandas_version

from stelae_spark_sink.local_session import ignore_pandas_warning


def test_our_commands_do_not_show_the_warning_of_pyspark_about_pandas() -> None:
    """It was on the standard error of each ``stelae-spark backup``."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        ignore_pandas_warning()
        require_minimum_pandas_version()
    assert shown == []

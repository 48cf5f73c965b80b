"""Stelae as a data source of Spark, on PySpark's Python data source API.

``pyspark_stelae`` registers the source, ``data_source`` makes its readers, and ``stelae.spark`` offers typed functions.
README.md says what each module is for."""

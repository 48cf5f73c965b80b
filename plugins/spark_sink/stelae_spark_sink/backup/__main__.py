"""The command ``stelae-spark`` as a module and as a file for ``spark-submit``."""

from stelae_spark_sink.backup.command import main

if __name__ == "__main__":
    main()

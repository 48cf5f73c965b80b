"""Files of any file system that Spark reaches, through Hadoop's ``FileSystem`` in the driver's JVM."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from stelae.spi.errors import CallerError, StorageError
from stelae_spark_sink.job_errors import SPARK_ERRORS


class HadoopFiles:
    """Lists, reads and writes small files. Paths are texts, with a scheme or relative to the default file system.

    Raises:
        CallerError: the session is one of Spark Connect, whose driver is out of reach.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm, context = (getattr(spark, name, None) for name in ("_jvm", "_jsc"))
        if jvm is None or context is None:
            raise CallerError(
                "backups use the file systems of the driver, which a session of Spark Connect does not reach; run "
                "stelae-spark, or the function in a session without Connect"
            )
        self._jvm: Any = jvm
        self._configuration: Any = context.hadoopConfiguration()

    def absolute(self, path: str) -> str:
        """Return a path with its scheme, and without a slash at its end."""
        with _storage_errors(path):
            opened = self._jvm.org.apache.hadoop.fs.Path(path)
            return str(opened.getFileSystem(self._configuration).makeQualified(opened).toString()).rstrip("/")

    def folders(self, path: str) -> Sequence[str]:
        """Return the names of the folders in a folder, sorted. A folder that does not exist has none."""
        return sorted(name for name, status in self._listed(path) if status.isDirectory())

    def sizes(self, path: str) -> Mapping[str, int]:
        """Return the size in bytes of each file in a folder, by name. A folder that does not exist has none."""
        return {name: int(status.getLen()) for name, status in self._listed(path) if status.isFile()}

    def _listed(self, path: str) -> Sequence[tuple[str, Any]]:
        with _storage_errors(path):
            system, opened = self._opened(path)
            if not system.exists(opened):
                return []
            return [(str(status.getPath().getName()), status) for status in system.listStatus(opened)]

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or ``None`` if it does not exist."""
        with _storage_errors(path):
            system, opened = self._opened(path)
            if not system.exists(opened):
                return None
            stream = system.open(opened)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write(self, path: str, content: bytes) -> None:
        """Write a file, whose folder exists. It appears under its name when it is complete."""
        with _storage_errors(path):
            system, opened = self._opened(path)
            beside = self._jvm.org.apache.hadoop.fs.Path(f"{path}.{uuid.uuid4().hex}.part")
            stream = system.create(beside, False)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()
            if not system.rename(beside, opened):
                raise StorageError(f"cannot rename {beside.toString()}", path=path)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that it has. A path that does not exist is no error."""
        with _storage_errors(path):
            system, opened = self._opened(path)
            if system.exists(opened) and not system.delete(opened, True):
                raise StorageError("cannot remove it", path=path)

    def _opened(self, path: str) -> tuple[Any, Any]:
        opened = self._jvm.org.apache.hadoop.fs.Path(path)
        return opened.getFileSystem(self._configuration), opened


@contextmanager
def _storage_errors(path: str) -> Iterator[None]:
    """Raise errors of the JVM as ``StorageError``, without its stack."""
    try:
        yield
    except SPARK_ERRORS as error:
        text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
        fact = text.strip().splitlines()[0]
        raise StorageError(
            f"{fact}; check the path, and that Spark has the library of its file system", path=path
        ) from error

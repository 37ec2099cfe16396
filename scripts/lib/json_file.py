"""JSON files, which may be compressed by gzip."""

import gzip
import json
import zlib
from pathlib import Path

MAGIC = b"\x1f\x8b"


def read_json(path):
    """The document of a file. Raises OSError, and ValueError if the file is damaged."""
    data = Path(path).read_bytes()
    try:
        return json.loads(gzip.decompress(data) if data.startswith(MAGIC) else data)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"cannot decompress: {error}") from None

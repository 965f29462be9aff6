"""Reading the YAML file that ``RAY_TRACING_CONFIG`` names."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Mapping

import yaml

from ray_tracing_hooks._safety.guard import SettingError

_LARGEST_FILE = 64 << 10
_QUOTED = re.compile(r"'[^']{3,}'")


class _Loader(yaml.SafeLoader):
    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        # A few lines of nested merges would take unbounded time and memory.
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise yaml.constructor.ConstructorError(None, None, "'<<' is not read", node.start_mark)
        super().flatten_mapping(node)


def contents(file: str) -> Mapping[object, object]:
    """The mapping in a YAML file; an empty one for an empty file. Raises SettingError, which says what is wrong."""
    try:
        # As a stream: given text, YAML's errors quote the line, which may contain a password.
        loader = _Loader(io.BytesIO(_bytes(file)))
        loader.name = file
        try:
            found = loader.get_single_data()
        finally:
            loader.dispose()
    except OSError as error:
        raise SettingError(f"the file cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = _QUOTED.sub("'...'", " ".join(str(error).split()))
        if not isinstance(error, yaml.YAMLError):
            is_deep = isinstance(error, RecursionError)
            reason = "it is nested too deeply" if is_deep else "a date or number that does not exist"
        raise SettingError(f"the file is not valid YAML ({reason})") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        expected = "expected settings and their values, such as 'local_dir: /data/spans'"
        raise SettingError(f"{expected}, but the file holds a {type(found).__name__}")
    return found


def _bytes(file: str) -> bytes:
    """The contents of a settings file. Never blocks, as reading a FIFO would. Raises OSError."""
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a file", file)
        found = stream.read(_LARGEST_FILE + 1)
    if len(found) > _LARGEST_FILE:
        raise OSError(errno.EFBIG, f"it is larger than {_LARGEST_FILE >> 10} KiB", file)
    return found

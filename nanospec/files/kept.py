"""What an earlier start has found, kept in the user's cache folder, so that the next one need not
look for it again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from nanospec.files.paths import read_file, write_json


def cache_folder() -> Path:
    """Where torch's hub and Hugging Face's have theirs. RuntimeError where the user has no home."""
    named = os.environ.get("XDG_CACHE_HOME", "")        # one that is not absolute is to be ignored
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "nanospec"


def kept_or_found(about: Mapping[str, Any], find: Callable[[], Any], anew: bool = False) -> Any:
    """What `find()` returned when it was last asked `about` the same, else what it returns now,
    which is then kept.

    about, and what is found: as JSON has them. anew: it is asked in any case. A file that is
    damaged, or of another version of this package, counts as none, and a folder that cannot be
    written to keeps nothing.
    """
    version, path = "", None
    with suppress(metadata.PackageNotFoundError):       # it need not be installed
        version = metadata.version("nanospec")
    key = json.dumps([version, about], sort_keys=True)
    with suppress(RuntimeError):
        path = cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        kept = json.loads(read_file(path)) if path and not anew else {}
        if kept["digest"] == digest_of(key, kept["found"]):
            return kept["found"]
    found = json.loads(json.dumps(find()))              # the same the first time as later
    with suppress(OSError):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"about": about, "found": found, "digest": digest_of(key, found)})
    return found


def digest_of(key: str, found: Any) -> str:
    return hashlib.sha256((key + json.dumps(found)).encode()).hexdigest()

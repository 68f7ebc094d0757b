import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

from scfs.errors import UserError

Content = TypeVar("Content", list[Any], dict[str, Any])


def digest_of(content: Any) -> str:
    """A few letters that are the same for the same content."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=4).hexdigest()


def read_json(path: Path, empty: Content) -> Content:
    """What a file of ours holds; `empty` if there is none, which also says whether it must be a list or a dict."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return empty
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}; see to its permissions.") from None
    except ValueError:  # not text, or not JSON
        content = None
    if not isinstance(content, type(empty)):
        raise UserError(f"{path} is damaged; move it away, and the next command starts a new one.")
    return content


def write_json(path: Path, content: list[Any] | dict[str, Any]) -> None:
    """Write a file, or write it over: it is either the old one or the new one, never half."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    part.replace(path)

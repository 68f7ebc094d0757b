from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ByteCache(Generic[Key, Value]):
    """The most recently used values by key, up to a number of bytes in all. Threads may share it."""

    def __init__(self, max_bytes: int, size_of: Callable[[Value], int]):
        self.max_bytes, self.size_of = max_bytes, size_of
        self.num_bytes = 0
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key; None if there is none, or none any more."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, unless it alone is larger than the cache."""
        size = self.size_of(value)
        with self._lock:
            if key in self._values:
                self.num_bytes -= self.size_of(self._values.pop(key))
            if size > self.max_bytes:
                return
            self._values[key] = value
            self.num_bytes += size
            while self.num_bytes > self.max_bytes:
                _, oldest = self._values.popitem(last=False)
                self.num_bytes -= self.size_of(oldest)

"""Simulated tables that can hold a million items: items are packed, and each partition is kept sorted."""

from __future__ import annotations

import json
from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field

from testing.aws import Item, Key, Table
from testing.aws.dynamodb import Index

_text = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode

_Places = list[tuple[bytes, Key]]
"""Positions in a partition: the sort key as DynamoDB compares it, and the item's key."""


@dataclass(slots=True)
class _Packed(MutableMapping[Key, Item]):
    """Items as JSON, which take a tenth of the memory. It also keeps the partitions of the table and its indexes."""

    keys_of: dict[Index | None, tuple[str, ...]]
    packed: dict[Key, bytes] = field(default_factory=dict)
    partitions: dict[Index | None, dict[str, _Places]] = field(default_factory=dict)

    def __getitem__(self, key: Key) -> Item:
        found: Item = json.loads(self.packed[key])
        return found

    def __setitem__(self, key: Key, item: Item) -> None:
        if key in self.packed:
            self._leave(key)
        self.packed[key] = _text(item).encode()
        for places, place in self._places(key, item):
            insort(places, place)

    def __delitem__(self, key: Key) -> None:
        self._leave(key)
        del self.packed[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self.packed)

    def __len__(self) -> int:
        return len(self.packed)

    def _leave(self, key: Key) -> None:
        for places, place in self._places(key, self[key]):
            places.remove(place)

    def _places(self, key: Key, item: Item) -> Iterator[tuple[_Places, tuple[bytes, Key]]]:
        """Yield the partitions that contain an item, with its position in each."""
        for index, names in self.keys_of.items():
            if all(name in item for name in names):
                partition, *sort = (item[name]["S"] for name in names)
                places = self.partitions.setdefault(index, defaultdict(list))[partition]
                yield places, ("".join(sort).encode(), key)


class LargeTable(Table):
    """A table whose queries take the same time whatever its size.

    Args:
        like: An empty table, with the name, keys and indexes.
    """

    def __init__(self, like: Table) -> None:
        keys_of: dict[Index | None, tuple[str, ...]] = {i: i.keys for i in like.indexes.values()}
        if len(like.keys) > 1:
            keys_of[None] = like.keys
        self._packed = _Packed(keys_of)
        super().__init__(like.name, like.keys, like.indexes, self._packed)

    def listed(self, index: Index | None, partition: str | None) -> Sequence[tuple[str, Key]]:
        places = self._packed.partitions.get(index, {}).get(partition or "", [])
        return [(sort_key.decode(), key) for sort_key, key in places]

    def keys_in(self, index: Index | None) -> list[Key]:
        if index is None:
            return list(self._packed)
        partitions = self._packed.partitions.get(index, {}).values()
        return [key for places in partitions for _, key in places]

"""The reader of the package gguf, quicker, and never beyond a file's end, whatever counts the file
names. The package asks for every token of a vocabulary by itself, and for its length.
"""

from pathlib import Path
from typing import Any

import numpy as np

from nanospec.errors import PairError
from nanospec.files.extra import extra
from nanospec.files.paths import check_claimed

MOST_PARTS = 10 ** 7        # lengths and contents that are read before the weights


def gguf_reader(path: Path) -> Any:
    """The package's reader of that file, or any error: it has no type of its own for what it cannot
    read.
    """
    package = extra("gguf")

    class QuickReader(package.GGUFReader):      # type: ignore[misc, name-defined]
        data: Any
        read = 0

        def _get(self, offset, dtype, count=1, override_order=None):
            self.data = np.asarray(self.data)  # the same bytes, still on the disk, as a plain array
            self._count(1)
            found = np.frombuffer(self.data, dtype, int(count), int(offset))    # ValueError past it
            order = override_order or self.byte_order
            return found if order == "I" else found.view(found.dtype.newbyteorder(order))

        def _get_field_parts(self, start, kind):
            """A list at once: numbers are one part, and of texts their lengths are none."""
            if self.byte_order != "I":      # the package would read weights in the wrong order
                raise PairError(f"{path} has its bytes in the order of big-endian machines: it can "
                                "be used here when it has been converted for little-endian ones")
            types = package.GGUFValueType
            if kind != types.ARRAY:
                return super()._get_field_parts(start, kind)
            head = [self._get(start, np.uint32), self._get(start + 4, np.uint64)]
            item, count, at = int(head[0][0]), int(head[1][0]), start + 12
            number = self.gguf_scalar_to_np.get(item)
            if number is not None:
                self._count(count)
                values = [self._get(at, number, count)]
                size = values[0].nbytes
            elif item == types.STRING:
                self._count(count)
                values, size = self._texts(at, count)
            else:
                return super()._get_field_parts(start, kind)
            parts = [*head, *values]
            return 12 + size, parts, [*range(2, len(parts))], [types.ARRAY, types(item)]

        def _texts(self, start, count):
            """The bytes of each, and how long all are together with their lengths."""
            data, at, texts = memoryview(self.data), start, []
            for _ in range(count):
                length = int(data[at:at + 8].cast("Q")[0])
                texts.append(np.frombuffer(self.data, np.uint8, length, at + 8))
                at += 8 + length
            return texts, at - start

        def _count(self, more: int) -> None:
            self.read += more
            if self.read > MOST_PARTS:
                raise ValueError(f"it has more than {MOST_PARTS:,} parts")

    reader = QuickReader(path)
    check_claimed(sum(int(tensor.n_bytes) for tensor in reader.tensors), len(reader.data))
    return reader

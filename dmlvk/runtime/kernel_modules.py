"""The SPIR-V of the kernels, by name, out of the compressed archives of the package.

An archive has the modules of kernels that are alike, one after another; the manifest says which, and where.
`tools/spirv_archive.py` writes it: where a module has an id that a function defines, the archive has the distance from
the id that was defined last. So equal code has equal words, whatever its ids are, and takes half as much room when it
is compressed.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from dmlvk._common import files
from dmlvk.errors import DeviceError
from dmlvk.planning.kernel_interface import compiled_kernels

# The highest byte of a word that is a distance: of an id that is defined here, and of one that is used here. No module
# has words that begin like this; in most the byte is zero.
DEFINED, USED = 0x90, 0x91


@cache
def spirv(kernel: str) -> bytes:
    """The SPIR-V of a kernel.

    Raises DeviceError: there is no such kernel, or it is damaged: the installation is; or this Python cannot decompress
        it.
    """
    entry = compiled_kernels().get(kernel)
    if entry is None:
        raise DeviceError(f"{kernel}, a compiled kernel, is missing from this installation of dmlvk: install it again")
    return with_ids(_archive(entry["archive"]), entry["start"], entry["bytes"])


@cache
def _archive(name: str) -> bytes:
    """What an archive has, decompressed."""
    try:
        # Imported here: it takes milliseconds, and not every process runs a kernel.
        from lzma import LZMAError, decompress
    except ImportError as error:
        raise DeviceError(
            "this Python was built without its module lzma, which decompresses the kernels: install liblzma's headers "
            "(liblzma-dev or xz-devel) and build Python again"
        ) from error
    try:
        return decompress(files.packaged_bytes("dmlvk", f"spirv/{name}.xz"))
    except (OSError, EOFError, LZMAError) as error:
        state = "missing from" if isinstance(error, OSError) else "damaged in"
        raise DeviceError(
            f"{name}.xz, an archive of compiled kernels, is {state} this installation of dmlvk: install it again"
        ) from error


def with_ids(archive: bytes, start: int, size: int) -> bytes:
    """The module at these bytes of a decompressed archive, with ids in place of distances."""
    words = np.frombuffer(archive, "<u4", size // 4, start).copy()
    kinds = words >> 24
    defines, uses = kinds == DEFINED, kinds == USED
    # The lowest bit of a distance is its sign.
    distances = (words & 0xFFFFFF).astype(np.int32)
    distances = (distances >> 1) ^ -(distances & 1)
    last_defined = np.cumsum(distances * defines, dtype=np.int32)
    words[defines] = last_defined[defines]
    words[uses] = (last_defined - distances)[uses]
    return words.tobytes()

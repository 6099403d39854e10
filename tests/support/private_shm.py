"""A /dev/shm of this process's own. Any process with the plugin brings in what dead ones left in
shared memory, so tests that run side by side would clean up after each other.
"""

import ctypes
import os
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000


def use_private_shm() -> bool:
    """Mounts an empty /dev/shm for this process and its children; False where it may not."""
    if os.geteuid() != 0:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        return False
    libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=8g,mode=1777")
    assert not list(Path("/dev/shm").iterdir())
    return True

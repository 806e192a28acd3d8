"""Reads files that may be a stranger's: no pipe is waited at, and no device is read for ever."""

import os
import stat

from .errors import UsageError

# The largest file that is read, in bytes.
MOST = 1 << 30


def read(path: str, most: int = MOST) -> bytes:
    """Return the content of a regular file of at most so many bytes. Raise FileNotFoundError if there is none."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening some devices does something
            raise UsageError(f"{path}: is no file")
        # In between another may have come to the path: opening must not wait for a pipe's writer.
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            info = os.fstat(opened)
            if not stat.S_ISREG(info.st_mode):
                raise UsageError(f"{path}: is no file")
            if info.st_size > most:
                raise UsageError(f"{path}: has {info.st_size} bytes, at most {most} are read")
            parts, left = [], most + 1
            while left > 0:
                part = os.read(opened, min(left, 1 << 20))
                if not part:
                    break
                parts.append(part)
                left -= len(part)
        finally:
            os.close(opened)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as err:  # ValueError: a path with a zero byte
        if isinstance(err, UsageError):
            raise
        raise UsageError(f"{path}: {getattr(err, 'strerror', None) or err}") from None
    if left <= 0:
        raise UsageError(f"{path}: grows beyond {most} bytes while it is read")
    return b"".join(parts)

"""What can go wrong. The texts are riffle's own."""

from typing import Optional


class Error(Exception):
    """riffle failed, or could not be started."""


class UsageError(Error, ValueError):
    """An argument, a file or a table is not as it must be (exit code 2)."""


class UnknownArgument(UsageError, TypeError):
    """A keyword argument that no flag of riffle stands behind."""


class Refused(Error):
    """riffle refused for privacy: a budget does not allow it (exit code 3)."""


class ProtocolError(Error):
    """The other side of the gradient protocol sent something that the protocol does not allow."""


class Interrupted(KeyboardInterrupt):
    """Training was interrupted by Ctrl-C, and its state is saved.

    ``directory`` is the run directory; ``riffle.train(resume=directory)`` goes on, bit for bit.
    It is None if the run had not begun.
    """

    def __init__(self, message: str, directory: Optional[str] = None) -> None:
        super().__init__(message)
        self.directory = directory


class RiffleWarning(UserWarning):
    """A warning of riffle, such as a model that does not beat the best constant."""

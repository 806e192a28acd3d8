"""riffle train from Python."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from contextlib import ExitStack
from typing import IO, Any, Callable, List, Optional, Sequence, Union

from . import _binary
from ._gradients import Program, listen
from ._run import Run
from .errors import Interrupted, RiffleWarning, UsageError

Number = Union[int, float]


def train(
    data: Union[str, "os.PathLike[str]", None] = None,
    *,
    label: Optional[str] = None,
    model: Optional[str] = None,
    epsilon: Optional[Number] = None,
    eps0: Optional[Number] = None,
    delta: Optional[Number] = None,
    rounds: Optional[Number] = None,
    participation: Optional[str] = None,
    trust: Optional[str] = None,
    randomizer: Optional[str] = None,
    seed: Optional[int] = None,
    out: Union[str, "os.PathLike[str]", None] = None,
    resume: Union[str, "os.PathLike[str]", Run, None] = None,
    gradients: Union[str, Program, None] = None,
    progress: Union[bool, Callable[[str], None], None] = None,
    **flags: Any,
) -> Run:
    """Train a model privately in a simulation, as ``riffle train`` does, and return the ``Run``.

    ``data`` is ``mnist`` (the default), a folder of images or a CSV file with the column ``label`` to
    predict. ``epsilon`` is the privacy budget, ``out`` the run directory (a fresh one under ``runs/``).
    Every other flag of ``riffle train`` is an argument too, with _ for - (``lambda_`` for lambda):
    lists and dictionaries become its lists, as ``range={"age": (0, 120), "*": (0, 1)}``.

    ``gradients`` is a program of the gradient protocol: a command, ``unix:PATH``, or a function with
    the decorator ``riffle.gradients``, which then runs in this process.

    ``progress``: True shows a line that follows the run, False shows none; None shows it in notebooks
    and on terminals. A function is called with each of riffle's lines.

    Ctrl-C stops the run cleanly and raises ``Interrupted``; ``riffle.train(resume=directory)`` goes on
    and ends with the same model as a run without interruption. With the same data: others are refused.
    A run with ``gradients`` needs them again, because no program is started that only a directory names.

    >>> import riffle
    >>> run = riffle.train(rounds=1, seed=7, out="one")
    >>> run.accuracy > 0.5 and run.epsilon < 0.05
    True
    >>> riffle.train(rounds=1, seed=7, out="one")
    Traceback (most recent call last):
        ...
    riffle.errors.UsageError: out: one already holds another run; choose a new directory, or continue that run with --resume
    """
    given = dict(
        data=data, label=label, model=model, epsilon=epsilon, eps0=eps0, delta=delta, rounds=rounds, participation=participation,
        trust=trust, randomizer=randomizer, seed=seed, out=out, resume=resume.directory if isinstance(resume, Run) else resume,
    )
    with ExitStack() as stack:
        if isinstance(gradients, Program):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="riffle-"))
            socket = os.path.join(folder, "gradients")
            stack.enter_context(listen(gradients, socket))
            gradients = f"unix:{socket}"
        args = _binary.arguments("train", {**given, **({} if gradients is None else {"gradients": gradients}), **flags})
        run = _Child(["train", *args, "--no-progress", "--json"], progress).run()
    return run


class _Child:
    """A riffle train that runs as a process of its own."""

    def __init__(self, args: Sequence[str], progress: Union[bool, Callable[[str], None], None]) -> None:
        self.args = [_binary.find(), *args]
        self.lines: List[str] = []  # all of its stderr
        self.line = Line(progress if isinstance(progress, bool) else None)
        self.progress: Callable[[str], None] = self.line
        if progress is not None and not isinstance(progress, bool):
            self.progress = progress
        self.broken: Optional[BaseException] = None  # an error of the progress function

    def run(self) -> Run:
        # It has a session of its own, so that Ctrl-C reaches it only once: from us. A second
        # one would end it without its state.
        process = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        interrupted, readers = False, []
        try:
            assert process.stdout is not None and process.stderr is not None
            readers += [threading.Thread(target=self._follow, args=(process, process.stderr), daemon=True), threading.Thread(target=process.stdout.read, daemon=True)]
            for reader in readers:
                reader.start()
            process.wait()
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
            try:
                process.wait()
            except KeyboardInterrupt:
                process.kill()
                process.wait()
                raise Interrupted(f"riffle was killed; {self._resume()}", self._directory()) from None
        finally:
            if process.poll() is None:
                process.kill()
            for reader in readers:
                if reader.ident is not None:  # an interrupt may come before it begins
                    reader.join()
            self.line.close()
        if self.broken is not None:
            raise self.broken
        if process.returncode == 130 or interrupted and process.returncode != 0:
            said = str(_binary.failure(process.returncode, "\n".join(self.lines)))
            raise Interrupted(said, self._directory()) from None
        if process.returncode != 0:
            raise _binary.failure(process.returncode, "\n".join(self.lines))
        for text in _binary.warnings_in(self.lines):
            warnings.warn(text, RiffleWarning, stacklevel=4)
        directory = self._directory()
        if directory is None:
            raise UsageError("riffle named no run directory")
        run = Run(directory, tuple(self.lines))
        if interrupted:  # it had ended already
            raise Interrupted("the run has ended", directory)
        return run

    def _follow(self, process: "subprocess.Popen[str]", stderr: IO[str]) -> None:
        for line in stderr:
            self.lines.append(line.rstrip("\n"))
            if self.broken is None:
                try:
                    self.progress(self.lines[-1].partition("riffle: ")[2] or self.lines[-1])
                except BaseException as err:  # it ends the run, whose stderr is read on until then
                    self.broken = err
                    process.send_signal(signal.SIGINT)

    def _directory(self) -> Optional[str]:
        start = "riffle: run directory: "
        named = [line[len(start):] for line in self.lines if line.startswith(start)]
        return named[-1] if named else None

    def _resume(self) -> str:
        directory = self._directory()
        again = ", gradients=..." if any(a.startswith("--gradients=") for a in self.args) else ""
        return f"continue from its last checkpoint with riffle.train(resume={directory!r}{again})" if directory else "it had not begun"


class Line:
    """One line that follows a run: the last evaluation, written over itself."""

    def __init__(self, show: Optional[bool]) -> None:
        self.show = _watched() if show is None else show
        self.width = 0

    def __call__(self, text: str) -> None:
        if self.show and text.startswith("round "):
            sys.stderr.write("\r" + text.ljust(self.width))
            sys.stderr.flush()
            self.width = len(text)

    def close(self) -> None:
        """End the line."""
        if self.width:
            sys.stderr.write("\n")
            sys.stderr.flush()
            self.width = 0


def _watched() -> bool:
    """Say whether somebody watches: a terminal, or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules

"""Finds riffle's program, checks its version and runs it."""

import difflib
import json
import math
import numbers
import os
import re
import shutil
import subprocess
from functools import lru_cache
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .errors import Error, Refused, UnknownArgument, UsageError

# The oldest release that this package works with. Of a build between releases nothing is asked.
OLDEST_RELEASE = (0, 1, 0)

# Flags that this package sets by itself, or that print something else than a result.
RESERVED = {"json", "quiet", "no-progress", "help", "curve", "plot", "plot-bounds", "verify", "certificate", "certificate-method"}

# Flags that take a list of names, such as classes, with | between them.
BARS = {"classes"}


class Flag(NamedTuple):
    """A flag of a command: its name, what it takes (None: nothing) and its help."""

    name: str
    takes: Optional[str]
    help: str


def find() -> str:
    """Return the path of riffle's program: that of the environment variable RIFFLE, or the first in PATH.

    >>> os.path.isfile(find())
    True
    """
    named = os.environ.get("RIFFLE")
    path = shutil.which(named) if named else shutil.which("riffle")
    if path is None and named:
        raise Error(f"RIFFLE={named} is not a program")
    if path is None:
        raise Error("the program riffle is not in PATH: build it with go build -o riffle ./cmd/riffle, and put it there or name it in the environment variable RIFFLE")
    _check(path, os.stat(path).st_mtime)
    return path


def version() -> str:
    """Return the version of riffle's program.

    >>> version() != ""
    True
    """
    path = find()
    return _check(path, os.stat(path).st_mtime)


@lru_cache(maxsize=None)
def _check(path: str, changed: float) -> str:
    """Return the version of the program at path, or fail if it is not one that this package can use."""
    try:
        done = subprocess.run([path, "version", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        number = str(json.loads(done.stdout)["version"])
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        raise Error(f"{path} is not riffle: riffle version --json prints its version") from None
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)(?:-[\w.]*?(\d{14})-)?", number)
    if found is None:
        return number  # built outside of a repository: nothing is known of its age
    release, commit = tuple(int(n) for n in found.groups()[:3]), found.group(4)
    if commit is None and release < OLDEST_RELEASE:
        oldest = ".".join(map(str, OLDEST_RELEASE))
        raise Error(f"{path} is riffle {number}, older than this package can use ({oldest}): build it again")
    return number


def flags(command: str) -> Dict[str, Flag]:
    """Return the flags that a command of riffle's program has, by name.

    >>> flags("eps")["eps0"].takes
    'number'
    """
    path = find()
    return _flags(path, os.stat(path).st_mtime, command)


@lru_cache(maxsize=None)
def _flags(path: str, changed: float, command: str) -> Dict[str, Flag]:
    done = subprocess.run([path, *command.split(), "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise failure(done.returncode, done.stderr)
    out: Dict[str, Flag] = {}
    last = ""
    for line in done.stdout.splitlines():
        found = re.match(r"\s+(?:-\w, |    )?--([a-z0-9-]+)(?: (\S+))?(?:\s{2,}(.*))?$", line)
        if found:
            last = found.group(1)
            out[last] = Flag(last, found.group(2), found.group(3) or "")
        elif last and line.startswith("      ") and line.strip():
            out[last] = out[last]._replace(help=out[last].help + " " + line.strip())
        else:
            last = ""
    return out


def text_of(value: Any, bar: bool = False) -> str:
    """Return a Python value as the text of a flag.

    >>> text_of(2.5), text_of([0.3, 0.18]), text_of({"age": (0, 100), "*": (0, 1)})
    ('2.5', '0.3,0.18', 'age=0..100,*=0..1')
    >>> text_of({"city": ["berlin", "paris", "*"]}), text_of(["no", "yes"], bar=True)
    ('city=berlin|paris|*', 'no|yes')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        number = float(value)
        return repr(number) if math.isfinite(number) else str(number)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_entry(v)}" for key, v in value.items())
    if isinstance(value, Sequence) or hasattr(value, "tolist"):
        items = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(items, list) and not isinstance(items, Sequence):
            return text_of(items)  # a numpy number
        return ("|" if bar else ",").join(text_of(v) for v in items)
    raise UsageError(f"{value!r} is neither a text nor a number, nor a list or a dictionary of them")


def _entry(value: Any) -> str:
    """Return what stands behind = in the text of a dictionary."""
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(v, numbers.Real) for v in value):
        return f"{text_of(value[0])}..{text_of(value[1])}"
    return text_of(value, bar=True)


def arguments(command: str, given: Mapping[str, Any]) -> List[str]:
    """Return keyword arguments as flags of a command. None stands for a flag that is not given.

    >>> arguments("eps", {"eps0": 2.5, "n": 60000, "k_hidden": True, "gamma": None})
    ['--eps0=2.5', '--n=60000', '--k-hidden']
    """
    known = flags(command)
    out = []
    for name, value in given.items():
        flag = name.rstrip("_").replace("_", "-")  # lambda_, because lambda is a word of Python's
        if flag not in known or flag in RESERVED:
            raise _unknown(command, name, known)
        if value is None:
            continue
        takes = known[flag].takes
        if isinstance(value, bool):
            if takes is not None:
                raise UsageError(f"{name} = {value} must be a {takes}: {known[flag].help}")
            out.append(f"--{flag}" if value else f"--{flag}=false")
        elif takes is None:
            raise UsageError(f"{name} = {value!r} must be True or False: {known[flag].help}")
        else:
            out.append(f"--{flag}={text_of(value, flag in BARS)}")
    return out


def _unknown(command: str, name: str, known: Mapping[str, Flag]) -> UnknownArgument:
    flag = name.rstrip("_").replace("_", "-")
    if flag in RESERVED and flag in known:
        return UnknownArgument(f"{name} is no argument from Python: --{flag} changes what riffle {command} prints")
    usable = [f for f in known if f not in RESERVED]
    near = difflib.get_close_matches(flag, usable, n=1, cutoff=0.5)
    if not near:
        near = [f for f in usable if flag in f.split("-") or f in flag.split("-")][:1]
    if not near:
        return UnknownArgument(f"riffle {command} has no flag --{flag}; it has {', '.join(sorted(usable))}")
    hint = known[near[0]]
    return UnknownArgument(f"riffle {command} has no flag --{flag}; did you mean {near[0].replace('-', '_')} (--{hint.name}: {hint.help})?")


def failure(code: int, stderr: str) -> Error:
    """Return the error that riffle reported with its exit code and on stderr."""
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    message = lines[-1] if lines else f"it ended with code {code} and said nothing"
    # An error may have several lines. The first of them begins with the program's name.
    for at in range(len(lines) - 1, -1, -1):
        if lines[at].startswith("riffle: "):
            message = "\n".join([lines[at][len("riffle: "):], *lines[at + 1:]])
            break
    if code < 0:
        message = f"riffle was ended by signal {-code}; it said last: {message}"
    kind = {2: UsageError, 3: Refused}.get(code, Error)
    return kind(message)


def call(args: Sequence[str]) -> Tuple[str, List[str]]:
    """Run riffle to its end. Return what it printed, and its warnings. An error is raised in riffle's words."""
    done = subprocess.run([find(), *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise failure(done.returncode, done.stderr)
    return done.stdout, warnings_in(done.stderr.splitlines())


def warnings_in(lines: Sequence[str]) -> List[str]:
    """Return the warnings among lines of riffle's stderr, without the words in front of them.

    >>> warnings_in(["riffle: warning: no privacy", "riffle: run directory: r"])
    ['no privacy']
    """
    start = "riffle: warning: "
    return [line[len(start):] for line in lines if line.startswith(start)]

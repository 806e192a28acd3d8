"""riffle's program is found and checked, and its flags stand behind arguments."""

import os
import pathlib
import stat

import numpy as np
import pytest

import riffle
from riffle import _binary


def pretend(folder: pathlib.Path, script: str, name: str = "riffle") -> str:
    """Write a program that pretends to be riffle."""
    file = folder / name
    file.write_text("#!/bin/sh\n" + script)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def test_no_program(monkeypatch, tmp_path):
    monkeypatch.delenv("RIFFLE")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(riffle.Error, match="the program riffle is not in PATH: build it"):
        riffle.epsilon(eps0=1, n=100, delta=1e-5)
    monkeypatch.setenv("RIFFLE", str(tmp_path / "gone"))
    with pytest.raises(riffle.Error, match="RIFFLE=.*gone is not a program"):
        riffle.version()


def test_program_in_path(monkeypatch, tmp_path):
    program = os.path.abspath(os.environ["RIFFLE"])
    os.symlink(program, tmp_path / "riffle")
    monkeypatch.delenv("RIFFLE")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert os.path.samefile(_binary.find(), program)


@pytest.mark.parametrize(
    "number, good",
    [
        ("devel", True),
        ("v0.1.0", True),
        ("v1.0.0", True),
        ("v0.0.9", False),
        ("v0.0.0-20261123021545-eafad55417a3", True),
        ("v0.0.0-20261123021545-eafad55417a3+dirty", True),
        ("v0.2.1-0.20270101000000-eafad55417a3", True),
    ],
)
def test_versions(monkeypatch, tmp_path, number, good):
    monkeypatch.setenv("RIFFLE", pretend(tmp_path, f"""echo '{{"version":"{number}"}}'"""))
    if good:
        assert riffle.version() == number
    else:
        with pytest.raises(riffle.Error, match="older than this package can use.*build it again"):
            riffle.version()


@pytest.mark.parametrize("script", ["echo hello", "exit 1", "echo '[1]'"])
def test_other_programs(monkeypatch, tmp_path, script):
    monkeypatch.setenv("RIFFLE", pretend(tmp_path, script))
    with pytest.raises(riffle.Error, match="is not riffle"):
        riffle.version()


def test_errors_are_riffles_own(monkeypatch, tmp_path):
    answer = """case "$*" in "version --json") echo '{"version":"devel"}';; *--help) echo '      --n count   clients';; *) %s;; esac"""
    for script, kind, text in [
        ("echo 'riffle: warning: w' >&2; echo 'riffle: over budget' >&2; exit 3", riffle.Refused, "^over budget$"),
        ("echo 'riffle: first' >&2; echo '  second' >&2; exit 1", riffle.Error, "^first\n  second$"),
        ("exit 4", riffle.Error, "ended with code 4 and said nothing"),
        ("kill -9 $$", riffle.Error, "ended by signal 9"),
    ]:
        monkeypatch.setenv("RIFFLE", pretend(tmp_path, answer % script, f"r{abs(hash(script))}"))
        with pytest.raises(kind, match=text):
            _binary.call(["eps"])


def test_every_flag_is_found():
    """Each flag that the help shows is known, with what it takes."""
    for command in ("eps", "plan", "train"):
        known = _binary.flags(command)
        text = _binary.call([command, "--help"])[0]
        shown = [word.split("=")[0].strip(",") for line in text.splitlines() if line.startswith("      --") or ", --" in line[:10] for word in line.split()[:2] if word.startswith("--")]
        assert len(shown) > 20 and set(known) == {name[2:] for name in shown}
    train = _binary.flags("train")
    assert train["rounds"].takes == "count" and train["json"].takes is None and "solved for --epsilon" in train["rounds"].help


@pytest.mark.parametrize(
    "given, near",
    [
        (dict(ronds=3), "rounds"),
        (dict(colluder=3), "colluders"),
        (dict(khidden=True), "k_hidden"),
        (dict(bits=3), "noise_bits"),
    ],
)
def test_unknown_arguments(given, near):
    with pytest.raises(riffle.UnknownArgument, match=rf"did you mean {near} \(--{near.replace('_', '-')}: "):
        riffle.epsilon(eps0=1, n=100, delta=1e-5, **given)


def test_unknown_argument_near_nothing():
    with pytest.raises(TypeError, match="has no flag --zzz; it has .*rounds"):
        riffle.train(zzz=1)


@pytest.mark.parametrize("name", ["json", "curve", "help", "certificate"])
def test_reserved_arguments(name):
    with pytest.raises(riffle.UnknownArgument, match="no argument from Python"):
        riffle.epsilon(eps0=1, n=100, delta=1e-5, **{name: "x"})


def test_wrong_kinds():
    with pytest.raises(riffle.UsageError, match="k_hidden = 3 must be True or False"):
        riffle.epsilon(eps0=1, n=100, delta=1e-5, k_hidden=3)
    with pytest.raises(riffle.UsageError, match="n = True must be a count"):
        riffle.epsilon(eps0=1, n=True, delta=1e-5)
    with pytest.raises(riffle.UsageError, match="neither a text nor a number"):
        riffle.epsilon(eps0=object(), n=100, delta=1e-5)
    with pytest.raises(riffle.UsageError, match="eps0"):
        riffle.epsilon(eps0=float("nan"), n=100, delta=1e-5)


def test_numpy_numbers():
    assert _binary.arguments("eps", {"eps0": np.float32(2.5), "n": np.int64(7), "delta": np.float64(1e-5)}) == ["--eps0=2.5", "--n=7", "--delta=1e-05"]
    assert _binary.text_of(np.array([0.5, 2])) == "0.5,2.0" and _binary.text_of(np.array(3)) == "3"

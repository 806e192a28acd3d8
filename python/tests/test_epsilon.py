"""What Python answers is what riffle eps --json prints."""

import json
import os
import random
import subprocess
import sys

import pytest

import riffle


def asked(rng: random.Random) -> dict:
    """A random question, most of them with an answer."""
    n = int(10 ** rng.uniform(1.5, 6))
    q = {"participation": rng.choice(["all", "sampled", "check-in", "once"]), "n": n, "rounds": int(10 ** rng.uniform(0, 3)), "eps0": round(rng.uniform(0.1, 5), 3)}
    if q["participation"] in ("sampled", "once"):
        q["k"] = rng.randint(1, n)
    if q["participation"] == "check-in":
        q["gamma"] = rng.uniform(0.001, 1)
    if rng.random() < 0.8:
        q["delta"] = 10 ** -rng.uniform(4, 10)
    else:
        q["eps"] = rng.uniform(0.01, 3)
    if rng.random() < 0.15:
        q["randomizer"] = rng.choice(["rr2", "krr:10", "laplace"])
    if rng.random() < 0.1:
        q["colluders"] = rng.randint(0, n // 2)
    if rng.random() < 0.1:
        q["k_hidden"] = True
    if rng.random() < 0.1:
        q["trust"] = "local"
    if rng.random() < 0.05:
        q["eps0"] = rng.choice([0, -1, 77])  # refused
    q["bounds"] = rng.choice(["best", "best", "best", "blanket-rdp", "all"])
    return q


def without_times(value):
    """The document without the seconds that each bound took."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "seconds"}
    return [without_times(v) for v in value] if isinstance(value, list) else value


@pytest.mark.filterwarnings("ignore::riffle.RiffleWarning")
def test_two_hundred_random_queries():
    rng, answered = random.Random(20261123), 0
    for _ in range(200):
        q = asked(rng)
        command = [os.environ["RIFFLE"], "eps", "--json"]
        for name, value in q.items():
            command += ["--k-hidden"] if name == "k_hidden" else [f"--{name}", str(value)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            with pytest.raises(riffle.Error) as refused:
                riffle.epsilon(**q)
            assert done.stderr.endswith(f"riffle: {refused.value}\n"), q
            continue
        want = json.loads(done.stdout)
        got = riffle.epsilon(**q)
        assert without_times(got.document) == without_times(want), q
        assert got.query == want["query"]
        for side in ("upper", "lower"):
            bound, said = getattr(got, side), want[side]
            assert (bound is None) == (said is None), q
            if bound is not None:
                assert (bound.method, bound.eps, bound.delta) == (said["method"], said["eps"], said["delta"])
                answered += 1
        assert [b.method for b in got.bounds] == [b["method"] for b in want["bounds"]]
        assert [b.eps for b in got.bounds] == [b["eps"] for b in want["bounds"]]
    assert answered > 150


def test_command_prints_the_same():
    answer = riffle.epsilon("sampled", eps0=2, n=1e6, k=1000, rounds=1e5, delta=1e-8, bounds="best", k_hidden=True)
    assert answer.command.startswith("riffle eps --participation=sampled --eps0=2 ")
    words = answer.command.split()[1:]
    again = json.loads(subprocess.run([os.environ["RIFFLE"], *words, "--json"], capture_output=True, text=True, check=True).stdout)
    assert without_times(again) == without_times(answer.document)


def test_delta_is_bounded():
    answer = riffle.epsilon(eps0=2, n=10000, rounds=10, eps=0.5)
    assert 0 < answer.upper.delta < 1e-3 and answer.upper.eps == 0.5
    assert repr(answer).startswith("epsilon <= 0.5 at delta = ")


def test_figures_are_rounded_towards_more_loss():
    from riffle._epsilon import digits

    for value in (0.61345000001, 1 / 3, 9.9999999, 2.0, 1e-7, 123456.7):
        assert float(digits(value)) >= value >= float(digits(value, up=False))
        assert float(digits(value)) - value <= 1e-3 * value
    assert digits(float("inf")) == "inf" and digits(2.0) == "2"


def test_warning_of_large_epsilon():
    with pytest.warns(riffle.RiffleWarning, match="protects next to nobody"):
        riffle.epsilon(eps0=40, n=100, rounds=50, delta=1e-5, bounds="best")


def test_no_bound():
    answer = riffle.epsilon(eps0=2, n=1000, delta=1e-5, bounds="laplace-pld")
    assert answer.upper is None and repr(answer) == "no proved bound"
    with pytest.raises(riffle.Error, match="no proved bound"):
        float(answer)
    assert answer["laplace-pld"].eps is None and "holds for class laplace" in repr(answer["laplace-pld"])
    with pytest.raises(KeyError, match="no bound 'clones-pld' among laplace-pld"):
        answer["clones-pld"]


def test_html():
    answer = riffle.epsilon(eps0=2, n=1000, delta=1e-5)
    text = answer._repr_html_()
    assert "epsilon &lt;= " in text and "<td>blanket-pld</td>" in text and "laplace-pld" not in text


def test_plot_by_matplotlib(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    answer = riffle.epsilon("all", eps0=2, n=10000, rounds=100, delta=1e-5, bounds="all")
    ax = answer.plot("rounds=1,10,100")
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert list(lines["upper"].get_xdata()) == [1, 10, 100]
    assert lines["upper"].get_ydata()[-1] == answer.upper.eps
    assert list(lines["lower"].get_ydata()) < list(lines["upper"].get_ydata())
    ax = riffle.epsilon("all", eps0=2, n=10000, delta=1e-5).plot("delta=1e-8,1e-5", bounds=["upper"])
    assert ax.get_xlabel() == "delta" and len(ax.get_lines()) == 1
    ax = riffle.epsilon("all", eps0=2, n=10000, eps=0.3).plot("rounds=1,2")
    assert ax.get_ylabel() == "δ"


def test_plot_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    picture = riffle.epsilon("all", eps0=2, n=10000, rounds=20, delta=1e-5, bounds="all").plot()
    assert picture._repr_svg_().lstrip().startswith("<") and "</svg>" in picture.svg
    picture.save("eps.svg")
    assert os.path.getsize("eps.svg") > 1000


def test_frame(monkeypatch):
    answer = riffle.epsilon(eps0=2, n=1000, delta=1e-5, bounds="best")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(riffle.Error, match="needs pandas"):
        answer.frame()
    monkeypatch.undo()
    pytest.importorskip("pandas")
    table = answer.frame()
    assert list(table.method) == [b.method for b in answer.bounds]


def test_plans():
    vectors = riffle.plan(1, 1e-6, 1e4, solve="noise-bits", randomizer="vecsum", dim=100)
    assert vectors.value == vectors.design["noise_bits"] > 0 and float(vectors.check) <= 1
    rounds = riffle.plan(1, 1e-5, 60000, solve="rounds", eps0=2)
    assert float(riffle.epsilon(eps0=2, n=60000, rounds=rounds.value, delta=1e-5, bounds="best")) <= 1
    assert float(riffle.epsilon(eps0=2, n=60000, rounds=rounds.value + 1, delta=1e-5, bounds="best")) > 1
    with pytest.raises(riffle.UsageError, match="solve"):
        riffle.plan(1, 1e-5, 60000, solve="luck")


def test_numbers_are_floats():
    nothing = riffle.epsilon("check-in", eps0=2, n=1000, gamma=1e-9, rounds=10, delta=1e-5)
    assert type(float(nothing)) is float and float(nothing) == 0 and type(nothing.upper.eps) is float
    whole = riffle.epsilon("all", eps0=1, n=1, delta=1e-5, bounds="best")
    assert float(whole) <= 1 and type(whole.upper.eps) is float
    for bound in nothing:
        assert bound.eps is None or type(bound.eps) is float


def test_float_of_a_question_about_delta():
    answer = riffle.epsilon("all", eps0=1, n=1000, eps=1, bounds="best")
    assert float(answer) == answer.upper.delta < 1
    assert type(float(riffle.epsilon("all", eps0=1, n=1000, eps=0.01, bounds="best"))) is float

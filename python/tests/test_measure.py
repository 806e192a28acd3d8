"""Questions from Python: the numbers are those of riffle measure --json."""

import json
import os
import subprocess

import pytest

import riffle


@pytest.fixture
def table():
    with open("people.csv", "w") as file:
        file.write("age,city,pay\n" + "".join(f"{20 + i % 50},{('rome', 'oslo', 'Paris, TX|x')[i % 3] if i % 3 < 2 else chr(34) + 'Paris, TX|x' + chr(34)},{1000 + 10 * (i % 50)}\n" for i in range(3000)))
    return "people.csv"


def command(*args):
    done = subprocess.run([os.environ["RIFFLE"], "measure", *args, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_numbers_are_those_of_the_command(table):
    answer = riffle.measure("histogram", table, "age", bins=[0, 30, 50, 100], epsilon=2, seed=3)
    document = command("histogram", "--data", table, "--column", "age", "--bins", "0,30,50,100", "--epsilon", "2", "--seed", "3")
    assert list(answer.numbers) == [(0, 30), (30, 50), (50, 100)]
    for bin, number in zip(document["bins"], answer.numbers.values()):
        assert number == (bin["count"], bin["low95"], bin["high95"], bin["joint_low95"], bin["joint_high95"])
    assert answer.epsilon == document["epsilon"] <= 2 and answer.delta == 1e-5 and answer.spent is None
    assert answer.command.startswith("riffle measure histogram --data=people.csv")
    assert "3 numbers of 3000 reports" in repr(answer) and "<td>" in answer._repr_html_()


def test_kinds(table):
    assert abs(float(riffle.measure("mean", table, "age", range=(0, 100))) - 44.5) < 3
    assert abs(riffle.measure("count", table, where=["age>=40", "city=Paris, TX|x"])["count"].value - 600) < 60
    assert riffle.measure("variance", table, "age", range=(0, 100))["variance"].high95 > 150
    assert list(riffle.measure("quantiles", table, "age", range="0..100", ranks=[0.25, 0.75], levels=6).numbers) == ["count", 0.25, 0.75]
    cities = riffle.measure("histogram", table, "city", categories=["oslo", "Paris, TX|x", "*"])
    assert all(abs(cities[name].value - 1000) < 60 for name in ("oslo", "Paris, TX|x", "*"))
    line = riffle.measure("linear-regression", table, "pay", range=(0, 2000), features={"age": (0, 100)}, epsilon=5)
    assert line["age"].low95 < 10 < line["age"].high95 and "intercept" in line.numbers
    with pytest.raises(riffle.UsageError):
        float(cities)
    with pytest.raises(KeyError, match="oslo"):
        cities["nowhere"]


def test_a_frame_is_a_table():
    pandas = pytest.importorskip("pandas")
    answer = riffle.measure("count", pandas.DataFrame({"age": list(range(100))}), where="age>=50", epsilon=9)
    assert abs(float(answer) - 50) < 10 and len(answer.frame()) == 2


def test_a_ledger_refuses(table):
    ask = lambda **more: riffle.measure("count", table, where="age>=40", ledger="budget", **more)
    first = ask(budget=1.5)
    assert 0.9 < first.spent < 1.1
    with pytest.raises(riffle.Refused, match="question 2 would bring epsilon"):
        ask()


def test_mistakes_are_in_riffles_words(table):
    with pytest.raises(riffle.UsageError, match="never read off the data"):
        riffle.measure("histogram", table, "age")
    with pytest.raises(riffle.UnknownArgument, match="measure mean has no flag --bins"):
        riffle.measure("mean", table, "age", bins=[0, 1])
    with pytest.raises(riffle.UsageError, match="unknown command"):
        riffle.measure("median", table, "age")


@pytest.mark.parametrize("data", [{"age": [1, 2]}, {"column": "age"}, [1, 2], None, 3])
def test_data_is_a_file_or_a_frame(data):
    with pytest.raises(riffle.UsageError, match=f"data is a {type(data).__name__}: give the path of a CSV file or a pandas DataFrame"):
        riffle.measure("mean", data, "age", range=(0, 100))


def test_mistakes_of_types(table):
    for arguments, text in (
        (dict(kind="mean", column="age", range=5), "range = 5 must be two numbers"),
        (dict(kind="mean", column="age", range=(5,)), "must be two numbers"),
        (dict(kind="mean", column=["age"], range=(0, 5)), "must be the name of a column"),
        (dict(kind=None, column="age"), "kind = None"),
        (dict(kind="count", where={"age": 30}), "where is a dictionary"),
        (dict(kind="count", where="age=>30"), "must compare with one of"),
    ):
        with pytest.raises(riffle.UsageError, match=text):
            riffle.measure(data=table, **arguments)
    assert list(riffle.measure("histogram", table, "age", categories=[20, 21]).numbers) == ["20", "21"]
    assert "age" in riffle.measure("linear_regression", table, "pay", range=(0, 2000), features={"age": (0, 100)}, epsilon=5).numbers


def test_numbers_are_floats(tmp_path):
    table = tmp_path / "ones.csv"
    table.write_text("x,k\n" + "1,a\n" * 300)
    for seed in range(1, 6):
        answer = riffle.measure("count", str(table), where=["x>=1"], seed=seed)
        assert type(float(answer)) is float
        assert all(type(v) is float for number in answer.numbers.values() for v in number)

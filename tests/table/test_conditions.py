from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from augmask.errors import ConditionError
from augmask.table.conditions import Between, Exactly, OneOf, Without, read_where
from augmask.table.infer import infer_schema


def make_frame():
    rng = np.random.default_rng(0)
    n = 600
    sizes = pd.CategoricalDtype(["S", "M", "L", "XL"], ordered=True)
    zoned = pd.date_range("2024-01-01", periods=300, freq="D", tz="Europe/Berlin")
    return pd.DataFrame(
        {
            "id": [f"K{i:04d}" for i in range(n)],
            "age": rng.integers(18, 91, n),
            "weight": rng.normal(70, 9, n).clip(40, 110).round(1),
            "sex": rng.choice(["F", "M"], n),
            "home town": rng.choice(["Pau", "Metz", "Brest"], n),
            "rooms": rng.choice([1, 2, 3], n),
            "smokes": rng.random(n) < 0.3,
            "size": pd.Series(rng.choice(["S", "M", "L", "XL"], n)).astype(sizes),
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(np.arange(n) % 500, "D"),
            "zoned": np.resize(zoned, n),
            "country": "FR",
            7: rng.normal(size=n),
            "class": rng.choice(["a", "b"], n),
        }
    )


FRAME = make_frame()
SCHEMA = infer_schema(FRAME)


def parse(wanted):
    return read_where(wanted, SCHEMA).conditions


def stamp(text, **more):
    return pd.Timestamp(text, **more)


@pytest.mark.parametrize(
    ("wanted", "same", "expected"),
    [
        ({"sex": "F"}, "sex == 'F'", {"sex": Exactly("F")}),
        ({"sex": ["F"]}, '"F" == sex', {"sex": Exactly("F")}),
        (
            {"home town": ["Pau", "Metz"]},
            "`home town` in ['Pau', \"Metz\"]",
            {"home town": OneOf(("Pau", "Metz"))},
        ),
        ({"age": (30, 40)}, "30 <= age <= 40", {"age": Between(30, 40)}),
        ({"age": (30.5, 40.5)}, "30 < age < 41", {"age": Between(31, 40)}),
        ({"age": (50, None)}, "age > 49", {"age": Between(50, int(FRAME.age.max()))}),
        ({"age": 44}, "43 < age < 45", {"age": Exactly(44)}),
        ({"age": [20, 30]}, "age in (20, 30)", {"age": OneOf((20, 30))}),
        (
            {"weight": (60, 70.5)},
            "weight <= 70.5 and 60 <= weight and weight < 99",
            {"weight": Between(60, 70.5)},
        ),
        ({"smokes": True}, "smokes == True", {"smokes": Exactly(True)}),
        ({"rooms": (1.5, 9)}, "rooms >= 2", {"rooms": OneOf((2, 3))}),
        ({"size": ("M", "L")}, "'S' < size <= 'L'", {"size": OneOf(("M", "L"))}),
        ({"class": "a"}, "`class` == 'a'", {"class": Exactly("a")}),
        ({7: (-0.5, 0.5)}, "-0.5 <= `7` <= 0.5", {7: Between(-0.5, 0.5)}),
        (
            {"day": ("2020-02-01", dt.date(2020, 2, 29))},
            "'2020-02-01' <= day <= '2020-02-29'",
            {"day": Between(stamp("2020-02-01"), stamp("2020-02-29"))},
        ),
        (
            {"zoned": np.datetime64("2024-02-01")},
            "zoned == '2024-02-01'",
            {"zoned": Exactly(stamp("2024-02-01", tz="Europe/Berlin"))},
        ),
        (
            {"sex": "F", "age": (30, 40)},
            'sex == "F" and (30 <= age and age <= 40)',
            {"sex": Exactly("F"), "age": Between(30, 40)},
        ),
    ],
)
def test_a_mapping_and_a_text_are_equivalent(wanted, same, expected):
    assert parse(wanted) == expected
    assert parse(same) == expected


def test_strict_bounds_stay_open_only_for_floats():
    assert parse("60 < weight < 70") == {"weight": Between(60, 70, True, True)}
    assert parse("60 < weight and 60 <= weight and weight < 70 and weight <= 70") == {
        "weight": Between(60, 70, True, True)
    }


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (
            "sex == 'F' and 30 <= age < 40",
            lambda f: (f.sex == "F") & f.age.between(30, 39),
        ),
        ({"size": ("M", None)}, lambda f: f["size"] >= "M"),
        ({"rooms": [1, 3]}, lambda f: f.rooms != 2),
        ("weight < 60", lambda f: f.weight < 60),
        ({"zoned": (None, "2024-03-01")}, lambda f: f.zoned <= "2024-03-01"),
        (
            "day > '2020-12-31' and smokes == True",
            lambda f: (f.day.dt.year > 2020) & f.smokes,
        ),
    ],
)
def test_matching_rows_are_those_that_pandas_selects(wanted, rows):
    matches = read_where(wanted, SCHEMA).holds(FRAME)
    assert 0 < matches.sum() < len(FRAME)
    assert (matches == rows(FRAME).to_numpy()).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sex != 'F'", {"sex": Exactly("M")}),
        ("'F' != sex", {"sex": Exactly("M")}),
        ("`home town` not in ['Pau', 'Metz']", {"home town": Exactly("Brest")}),
        ("rooms != 2 and rooms <= 2", {"rooms": Exactly(1)}),
        (
            "30 <= age <= 40 and age not in [35, 77] and age != 36.0",
            {"age": Without(Between(30, 40), (35, 36))},
        ),
        ("weight != 70 and 60 <= weight <= 70.5",
         {"weight": Without(Between(60, 70.5), (70,))}),
        ("age == 30 or age in [40, 50]", {"age": OneOf((30, 40, 50))}),
        ("(sex == 'F' or sex == 'F')", {"sex": Exactly("F")}),
    ],
)  # fmt: skip
def test_unequal_and_lists_of_alternatives(text, expected):
    where = read_where(text, SCHEMA)
    assert (where.conditions, where.alternatives) == (expected, ())


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("age < 30 or age > 80", lambda f: ~f.age.between(30, 80)),
        ("sex == 'F' or weight > 80", lambda f: (f.sex == "F") | (f.weight > 80)),
        (
            "sex == 'F' and (age < 30 or weight > 80 and age != 50)",
            lambda f: (
                (f.sex == "F") & ((f.age < 30) | ((f.weight > 80) & (f.age != 50)))
            ),
        ),
        (
            "(age < 30 or age > 60) and (rooms == 1 or smokes == True)",
            lambda f: (~f.age.between(30, 60)) & ((f.rooms == 1) | f.smokes),
        ),
        ("age is not missing or sex == 'F'", lambda f: f.age > 0),
    ],
)
def test_alternatives_select_what_pandas_selects(text, rows):
    matches = read_where(text, SCHEMA).holds(FRAME)
    assert (matches == rows(FRAME).to_numpy()).all()


def test_a_row_is_chosen_by_what_is_missing_and_by_its_values_before():
    hidden = FRAME.assign(weight=FRAME["weight"].mask(FRAME.index % 3 == 0))
    where = read_where("weight is missing and age > 50", SCHEMA)
    expected = (FRAME.index % 3 == 0) & (FRAME["age"] > 50)
    assert (where.holds(hidden) == expected).all()
    # a value counts as it was before it was removed
    where = read_where("weight > 70 or age is missing", SCHEMA)
    assert (where.holds(FRAME, hidden) == (FRAME["weight"] > 70)).all()


def test_a_where_is_split_into_what_complete_rows_show_and_the_rest():
    where = read_where(
        "age > 30 and weight is missing and (sex == 'F' or rooms is missing) "
        "and (sex == 'F' or age > 50)",
        SCHEMA,
    )
    assert where.missing_columns == {"weight": True, "rooms": True}
    rows, rest = where.split({"rooms"})
    assert rows.columns == ("age", "sex", "rooms")
    assert rest.columns == ("weight",)


def test_letters_that_python_normalises_still_name_their_column():
    frame = pd.DataFrame({"µg": [*range(20)] * 3, "b": [1.5, 2.5, 3.5] * 20})
    assert list(read_where("µg > 3", infer_schema(frame)).conditions) == ["µg"]


def test_a_missing_value_satisfies_no_condition():
    incomplete = FRAME.mask(FRAME["age"] > 0)
    assert not read_where("age > 0", SCHEMA).holds(incomplete).any()
    assert not read_where({"age": [20, 30]}, SCHEMA).holds(incomplete).any()
    assert not read_where({"age": 20}, SCHEMA).holds(incomplete).any()
    assert not read_where("age != 20", SCHEMA).holds(incomplete).any()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        # the column
        ({"agee": 3}, "'agee'.*did you mean 'age'"),
        ("agee == 3", "'agee'.*did you mean 'age'"),
        ({"id": "K0001"}, "'id'.*not learned.*identifier"),
        ({"country": "FR"}, "'country'.*not learned.*constant"),
        ({}, "at least one column"),
        (5, "mapping.*text.*frame.*got int"),
        # the value
        ({"sex": "X"}, "'sex' has no level 'X'"),
        ({"home town": "Matz"}, "no level 'Matz'; did you mean 'Metz'"),
        ({"sex": 1}, "'sex' holds text.*number '1'"),
        ({"smokes": "yes"}, "'smokes' holds boolean.*text 'yes'"),
        ({"age": "30"}, "'age' holds numbers.*text '30'"),
        ({"age": True}, "'age' holds numbers.*boolean"),
        ({"age": float("nan")}, "'age' holds numbers"),
        ({"age": None}, "'age'.*got None.*`age` is missing.*learned"),
        ({"age": 200}, "no value of column 'age'.*observed from 18 to 90"),
        ({"age": 30.5}, "no value of column 'age'"),
        ({"day": "soon"}, "'day' holds dates"),
        ({"day": 3}, "'day' holds dates.*number"),
        ({"day": "2020-01-01T00:00+02:00"}, "'day' has no time zone"),
        ({"day": "2031-01-01"}, "'day'.*observed from 2020-01-01"),
        # the range
        ({"age": (40, 30)}, "no value of column 'age'"),
        ("age > 40 and age < 41", "no value of column 'age'"),
        ("age > 1e400", "no value of column 'age'"),
        ("weight > 60 and weight <= 60", "no value of column 'weight'"),
        ("sex == 'F' and sex == 'M'", "no value of column 'sex'"),
        ({"sex": []}, "no value of column 'sex'"),
        ({"size": ("A", "L")}, "'size' has no level 'A'"),
        ({"rooms": (4, 9)}, "no value of column 'rooms'.*levels 1, 2, 3"),
        ({"smokes": (False, True)}, "no order"),
        ({"sex": ("F", "M")}, "no order.*list"),
        ({"age": (1, 2, 3)}, r"tuple \(low, high\).*\(1, 2, 3\).*list"),
        ({"age": (None, None)}, "tuple"),
        ("age < weight", "one column and one value, got age < weight.*constraints"),
        ("1 < 2", "one column and one value, got 1 < 2"),
        # the text
        ("", "cannot be read"),
        ("age >", "'age >' cannot be read"),
        ("home town == 'Pau'", "cannot be read.*backticks"),
        ("age.mean > 3", "'age.mean'.*backticks"),
        ("age != 30 and 30 <= age <= 30", "no value of column 'age'"),
        ("sex not in ['F', 'M']", "no value of column 'sex'"),
        ("sex != 'X'", "'sex' has no level 'X'"),
        ("age != 'old'", "'age' holds numbers"),
        ("age == 30 or sex == 'X'", "'sex' has no level 'X'"),
        ("age == 30 or age > 300", "no value of column 'age'"),
        ("age == 30 or not sex == 'F'", "\"not sex == 'F'\" is none of them"),
        ("age is missing and age > 30", "'age' cannot be missing and have a value"),
        ("age is missing and age is not missing", "'age' cannot be missing and not"),
        ("age is None", "'age is None' is none"),
        ("age is `missing`", "is none"),
        ("3 is missing", "'3 is missing' is none"),
        ("age is missing == 3", "'age is missing == 3' is none"),
        ("agee is missing", "'agee'.*did you mean 'age'"),
        ("id is missing", "'id'.*not learned.*identifier"),
        ("age != weight", "one column and one value"),
        ("[1, 2] in age", "is none"),
        ("3 not in age", "is none"),
        ("not age == 3", "'not age == 3' is none"),
        ("age + 1 == 3", r"'age \+ 1' is none"),
        ("age == -(-3)", r"'-\(-3\)' is none"),
        ("age is 3", "'age is 3' is none"),
        ("age in 3", "'age in 3' is none"),
        ("age == [3]", r"'age == \[3\]' is none"),
        ("age in [[3]]", r"'\[\[3\]\]' is none"),
        ("age in [sex]", r"'\[sex\]' is none"),
        ("sex == b'F'", "is none"),
        ("age == 3j", "'3j' is none"),
        ("sex == None", "'None' is none.*is missing"),
        ("sex == f'{1}'", "is none"),
        ("__import__('os').system('rm x') == 0", '__import__.*is none'),
        ("(lambda: 1)() == age", "is none"),
        ("[x for x in (1,)] == age", "is none"),
        ("age[0] == 1", r"'age\[0\]' is none"),
        ("(age := 3) == 3", "is none"),
        ("age == 3; sex == 'F'", "cannot be read"),
        ("import os", "cannot be read"),
        ("(" * 500 + "age" + ")" * 500 + " == 3", "cannot be read|is none"),
        ("age == 3 and " * 2000 + "age == 3", "at most 10,000 characters"),
        ("age == 3\0", "cannot be read"),
    ],
)  # fmt: skip
def test_invalid_conditions_raise_one_sentence(wanted, message):
    with pytest.raises(ConditionError, match=message) as caught:
        parse(wanted)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_no_code_in_a_text_is_executed(monkeypatch):
    calls = []
    monkeypatch.setattr("builtins.print", lambda *a: calls.append(a))
    for text in ("print('x') == 1", "age == print('x')", "sex in [print('x')]"):
        with pytest.raises(ConditionError):
            parse(text)
    assert not calls


def test_quotes_inside_backticks_and_backticks_inside_quotes():
    frame = pd.DataFrame({"a`b": ["x`y`", "z"] * 20, "it's": ["q", "r"] * 20})
    schema = infer_schema(frame)
    assert read_where("`it's` == 'q'", schema).conditions == {"it's": Exactly("q")}
    wanted = read_where({"a`b": "x`y`"}, schema)
    assert wanted.holds(frame).sum() == 20


@pytest.mark.parametrize("sign", ["==", "<", ">="])
@pytest.mark.parametrize("name", ["age", "weight", "rooms", "sex", "smokes", "day"])
def test_numbers_of_thousands_of_digits_are_refused(name, sign):
    for number in ("9" * 4200, "0x" + "f" * 8000, "-" + "9" * 4200):
        with pytest.raises(ConditionError):
            parse(f"{name} {sign} {number}")
    with pytest.raises(ConditionError):
        parse({name: 10**9000})
    with pytest.raises(ConditionError):
        parse({name: (0, 10**9000)})

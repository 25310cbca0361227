"""Conditions, missingness and tables that a model cannot be asked for."""

from __future__ import annotations

import shlex

from .bad import BAD_DATA, FIT_GOOD, USAGE, Bad, write

SAMPLE = "sample good.augmask -n 5 --out rows.csv"
IMPUTE = "impute good.augmask"


def asks(name: str, where: str, *says: str) -> Bad:
    return Bad(name, USAGE, f"{SAMPLE} --where {shlex.quote(where)}", says)


CONDITIONS = [
    asks("no such column", "agee == 3", "'agee'", "did you mean 'age'"),
    asks("level never seen", 'job == "cock"', "'job'", "'cock'", "did you mean 'cook'"),
    asks("value out of range", "age == 300", "'age'", "observed from"),
    asks("range out of range", "age > 300", "'age'", "observed from"),
    asks("contradictory range", "age < 30 and age > 40", "no value of column 'age'"),
    asks("contradictory levels", 'job == "cook" and job == "clerk"', "'job'"),
    asks("text for a number", 'age == "thirty"', "'age' holds numbers", "thirty"),
    asks("number for text", "job == 3", "'job' holds text", "3"),
    asks("range of words", 'job > "a"', "'job'", "no order"),
    asks("two columns", "age < weight", "one column and one value", "constraints"),
    asks("nothing asked", "", "cannot be read"),
    asks("half a condition", "age >", "'age >'", "cannot be read"),
    asks("or a word", "age == 30 or old", "'old'", "none of them"),
    asks("not", "not age == 30", "'not age == 30'", "none of them"),
    asks("every level excluded", 'job not in ["cook", "smith", "clerk"]', "'job'"),
    asks("missing in complete rows", "age is missing", "'age'", "--missing learned"),
    asks("missing as None", "age == None", "'None'", "age is missing"),
    asks("arithmetic", "age + 1 == 30", "'age + 1'", "none of them"),
    asks("a call", "__import__('os').remove('good.csv') == 0", "__import__", "none"),
    asks("a call as value", "age == exec('import os')", "exec", "none of them"),
    asks("a lambda", "(lambda: age)() == 30", "lambda", "none of them"),
    asks("an attribute", "age.__class__ == 30", "age.__class__", "none of them"),
    asks("a comprehension", "age in [x for x in [1]]", "for x in", "none of them"),
    asks("a statement", "age == 30; import os", "cannot be read"),
    asks("a deep nest", "(" * 300 + "age" + ")" * 300 + " == 30", "cannot be read"),
    *(
        asks(f"{name} on {column}", f"{column} {sign} {number}", says)
        for name, number, says in (
            ("9,000 digits", "9" * 9_000, "cannot be read"),
            ("4,000 digits", "9" * 4_000, "a number that it can hold"),
            ("minus 400 digits", "-" + "9" * 400, "a number that it can hold"),
            ("9,000 hex digits", "0x" + "f" * 9_000, "a number that it can hold"),
        )
        for column, sign in (("age", "<"), ("weight", "=="), ("job", "=="))
    ),
    asks(
        "digits in a list", f"age in [30, {'9' * 4_000}]", "a number that it can hold"
    ),
    Bad(
        "unknown missingness",
        USAGE,
        f"{SAMPLE} --missing lerned",
        ("missing", "'lerned'"),
    ),
    Bad("impute nothing", USAGE, IMPUTE, ("Missing argument",), typed=True),
    Bad(
        "impute an absent table",
        BAD_DATA,
        f"{IMPUTE} none.csv --out rows.csv",
        ("no such file", "none.csv"),
    ),
    Bad(
        "impute other columns",
        BAD_DATA,
        f"{IMPUTE} bad.csv --out rows.csv",
        ("'age' is absent", "add it", "did you mean 'Age'"),
        write("bad.csv", "Age,y\n1,2\n,3\n"),
    ),
    Bad(
        "impute no times",
        USAGE,
        f"{IMPUTE} good.csv --out rows.csv --n-draws 0",
        ("n_draws", "at least 1", "0"),
    ),
    Bad(
        "impute onto itself",
        USAGE,
        f"{IMPUTE} good.csv --out good.csv",
        ("--out", "good.csv"),
    ),
    Bad(
        "impute into a picture",
        USAGE,
        f"{IMPUTE} good.csv --out rows.png",
        ("must end in one of", "rows.png"),
    ),
    Bad(
        "a constraint about no column",
        USAGE,
        f"{FIT_GOOD} --constraint 'agee <= weight'",
        ("'agee'", "did you mean 'age'"),
    ),
    Bad(
        "a constraint between a word and a number",
        USAGE,
        f"{FIT_GOOD} --constraint 'job <= weight'",
        ("'job' (category)", "'weight' (float)"),
    ),
    Bad(
        "a constraint that the table breaks",
        BAD_DATA,
        f"{FIT_GOOD} --constraint 'weight <= age'",
        ("violate the constraint weight <= age", "at most 5%"),
    ),
    Bad(
        "a combination of decimals",
        USAGE,
        f"{FIT_GOOD} --constraint job,weight",
        ("fixed combination", "'weight'", "float"),
    ),
    Bad(
        "a constraint with a value",
        USAGE,
        f"{FIT_GOOD} --constraint 'age <= 90'",
        ("columns with columns", "age <= 90", "where"),
    ),
]

"""Sixty quirks of real files: read right, or refused in one sentence with its option.

`frame` is what a reader must see; `option` what the sentence must name; `told` what a
warning must name.
"""

from __future__ import annotations

import gzip
import io
import warnings
import zipfile
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pytest

import augmask as am
from augmask.errors import AugMaskError, AugMaskWarning
from augmask.table.formats import read_format


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, contents in members.items():
            archive.writestr(name.replace("_", "."), contents)
    return file.getvalue()


def workbook(*sheets: list[list[Any]]) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets, start=1):
        sheet = book.create_sheet(f"Sheet{number}")
        for row in rows:
            sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


@dataclass
class Quirk:
    contents: bytes | str
    frame: dict[str, list[Any]] | None = None
    name: str = "t.csv"
    options: dict[str, Any] = field(default_factory=dict)
    refused: str | None = None
    told: str | None = None
    dtypes: dict[str, str] = field(default_factory=dict)


AB = {"a": [1, 2], "b": ["x", "y"]}
IRIS = "5.1,3.5,setosa\n4.9,3.0,setosa\n6.2,3.4,virginica\n5.9,3.0,virginica\n"
ADULT = "39, Private, 13\n50, Self-emp, 13\n38, Private, 9\n53, ?, 7\n"
AGES = "age,x\n" + "".join(f"{i},{i}.5\n" for i in range(20, 45))

QUIRKS = {
    # missing-value codes
    "a question mark in every column": Quirk(
        "a,b\n1,x\n?,?\n3,y\n",
        {"a": [1, None, 3], "b": ["x", None, "y"]},
        options={"na": "?"},
    ),
    "a blank before the code": Quirk(
        "a, b\n1, x\n2, ?\n", {"a": [1, 2], " b": [" x", None]}, options={"na": "?"}
    ),
    "a number as a code in one column": Quirk(
        "pay,age\n100,-999\n-999,30\n",
        {"pay": [100, None], "age": [-999, 30]},
        options={"na": {"pay": -999}},
    ),
    "a code with decimals": Quirk(
        "pay\n100.5\n-999.0\n", {"pay": [100.5, None]}, options={"na": "-999"}
    ),
    "a code of an unknown column": Quirk(
        "pay\n100\n", options={"na": {"pai": 1}}, refused="did you mean 'pay'"
    ),
    "all that looks like a code": Quirk(
        AGES + "?,-999\n",
        {"age": [*range(20, 45), None], "x": [*(i + 0.5 for i in range(20, 45)), None]},
        options={"na": "auto"},
        told=r"'\?' in 'age', -999\.0 in 'x'",
    ),
    "codes beside digits with leading zeros": Quirk(
        "zip\n00273\n?\n10115\n",
        {"zip": ["00273", None, "10115"]},
        options={"na": "?"},
    ),
    "a code among booleans": Quirk(
        "b\nTRUE\n?\nFALSE\n",
        {"b": [True, None, False]},
        options={"na": "?"},
        dtypes={"b": "boolean"},
    ),
    "a code among long whole numbers": Quirk(
        "k\n9007199254740993\n.\n9007199254740995\n",
        {"k": [9007199254740993, None, 9007199254740995]},
        options={"na": "."},
        dtypes={"k": "Int64"},
    ),
    "the word None among levels": Quirk(
        "v\nBrick\nNone\nStone\n",
        {"v": ["Brick", None, "Stone"]},
        told="'None' .1 cells. in 'v' .* --na 'v='",
    ),
    "the word None kept as a level": Quirk(
        "v,w\nBrick,NA\nNone,1\n,2\n",
        {"v": ["Brick", "None", None], "w": [None, 1, 2]},
        options={"na": {"v": ""}},
    ),
    "Namibia": Quirk(
        "country\nNA\nDE\n", {"country": ["NA", "DE"]}, options={"na": ""}
    ),
    # separators
    "semicolons": Quirk("a;b\n1;x\n2;y\n", AB, told="--sep ';'"),
    "semicolons and decimal commas": Quirk(
        "a;b\n1,5;x\n2,5;y\n", {"a": ["1,5", "2,5"], "b": ["x", "y"]}, told="--sep"
    ),
    "bars": Quirk("a|b\n1|x\n2|y\n", AB, told=r"--sep '\|'"),
    "tabs in a .csv": Quirk("a\tb\n1\tx\n2\ty\n", AB, told="--sep tab"),
    "tsv": Quirk("a\tb\n1\tx\n2\ty\n", AB, name="t.tsv"),
    "tab": Quirk("a\tb\n1\tx, z\n", {"a": [1], "b": ["x, z"]}, name="t.tab"),
    "tsv that holds commas": Quirk("a,b\n1,x\n2,y\n", AB, name="t.tsv", told="--sep"),
    "txt with semicolons": Quirk("a;b\n1;x\n2;y\n", AB, name="t.txt"),
    "blanks without being told": Quirk(
        "a b\n1  x\n2 y\n", name="t.txt", refused="--sep space"
    ),
    "blanks": Quirk(
        "a   b\n1   x\n 2  y\n", AB, name="t.dat", options={"sep": "space"}
    ),
    "two separators that both fit": Quirk(
        "a,b;c\n1,2;3\n4,5;6\n", refused="a comma or a semicolon.*--sep"
    ),
    "two separators, one named": Quirk(
        "a,b;c\n1,2;3\n4,5;6\n",
        {"a,b": ["1,2", "4,5"], "c": [3, 6]},
        options={"sep": ";"},
    ),
    "separators that fit no line": Quirk("a;b\n1;2;3\n4\n", refused="--sep ';'"),
    "a separator of three characters": Quirk(
        "a\n1\n", options={"sep": "::"}, refused="sep must be one ASCII character"
    ),
    "separators within quotes": Quirk(
        'a,b\n1,"x;y;z"\n2,"p,q"\n', {"a": [1, 2], "b": ["x;y;z", "p,q"]}
    ),
    "lines within quotes": Quirk(
        'a,b\n1,"x\ny"\n2,z\n', {"a": [1, 2], "b": ["x\ny", "z"]}
    ),
    "lines of unequal length": Quirk("a,b\n1,x\n2,y,z\n", refused="line 3 .* has 3"),
    "a note above the header": Quirk(
        "exported 2021\na,b\n1,x\n", refused="as many fields.*line 2"
    ),
    # line ends and compression
    "lines that end with CR LF": Quirk("a,b\r\n1,x\r\n2,y\r\n", AB),
    "no line end at the end": Quirk("a,b\n1,x\n2,y", AB),
    "blank lines": Quirk("\n\na,b\n1,x\n\n2,y\n\n", AB),
    "gz": Quirk(gzip.compress(b"a,b\n1,x\n2,y\n"), AB, name="t.csv.gz"),
    "tsv.gz": Quirk(gzip.compress(b"a\tb\n1\tx\n2\ty\n"), AB, name="t.tsv.gz"),
    "zip": Quirk(zipped(t_csv=b"a,b\n1,x\n2,y\n"), AB, name="t.zip"),
    "zip with two tables": Quirk(
        zipped(t_csv=b"a\n1\n", u_csv=b"a\n1\n"), name="t.zip", refused="unpack it"
    ),
    "Excel named csv": Quirk(b"PK\x03\x04more", refused=r"name it \.xlsx"),
    # encodings
    "UTF-8 with a mark": Quirk("\ufeffa,b\n1,x\n2,y\n".encode(), AB),
    "UTF-16 with a mark": Quirk(
        "a,b\n1,x\n2,ü\n".encode("utf-16"), {"a": [1, 2], "b": ["x", "ü"]}
    ),
    "UTF-16 with leading zeros": Quirk(
        "a,b\n007,x\n012,y\n".encode("utf-16"), {"a": ["007", "012"], "b": ["x", "y"]}
    ),
    "UTF-16 without a mark": Quirk(
        "a,b\n1,x\n".encode("utf-16-le"), refused="--encoding utf-16-le"
    ),
    "latin-1": Quirk("a,b\n1,ü\n".encode("latin-1"), refused="--encoding cp1252"),
    "latin-1, named": Quirk(
        "a,b\n1,ü\n".encode("latin-1"),
        {"a": [1], "b": ["ü"]},
        options={"encoding": "latin-1"},
    ),
    "cp1252 in a late line": Quirk(
        b"a,b\n" + b"1,x\n" * 99_999 + b"1,\x80\n", refused="--encoding cp1252"
    ),
    "an encoding that does not exist": Quirk(
        "a\n1\n", options={"encoding": "utf8000"}, refused="no encoding 'utf8000'"
    ),
    "the wrong encoding": Quirk(
        "a\nü\n".encode("latin-1"), options={"encoding": "utf-8"}, refused="--encoding"
    ),
    # headers
    "names twice": Quirk("a,b,a\n1,2,3\n", refused="'a' more than once"),
    "no header, numbers twice": Quirk(
        "5,3,5,x\n4,3,1,x\n", refused="looks like data.*--no-header"
    ),
    "no header, numbers only": Quirk(
        "5.1,3.5\n4.9,3.0\n", refused="only numbers.*--no-header"
    ),
    "no header, like the other lines": Quirk(IRIS, refused="--no-header"),
    "no header, blanks before cells": Quirk(ADULT, refused="--no-header"),
    "no header, told": Quirk(
        IRIS,
        {
            "column_1": [5.1, 4.9, 6.2, 5.9],
            "column_2": [3.5, 3.0, 3.4, 3.0],
            "column_3": ["setosa"] * 2 + ["virginica"] * 2,
        },
        options={"header": False},
    ),
    "years as names, told": Quirk(
        "2015,2016\n1,2\n", {"2015": [1], "2016": [2]}, options={"header": True}
    ),
    "years beside a name": Quirk(
        "country,2015,2016\nDE,1,2\nFR,3,4\nIT,5,6\n",
        {"country": ["DE", "FR", "IT"], "2015": [1, 3, 5], "2016": [2, 4, 6]},
    ),
    "names as pandas numbers them": Quirk(
        "0,1\n5,x\n6,y\n", {"0": [5, 6], "1": ["x", "y"]}
    ),
    "a column of row numbers without a name": Quirk(
        ",a\n0,5\n1,6\n", {"Unnamed: 0": [0, 1], "a": [5, 6]}
    ),
    # numbers and booleans
    "leading zeros": Quirk(
        "zip,n\n00273,1\n10115,2\n", {"zip": ["00273", "10115"], "n": [1, 2]}
    ),
    "whole numbers beside missing ones": Quirk(
        "a,b\n1,x\n,y\n3,z\n",
        {"a": [1, None, 3], "b": ["x", "y", "z"]},
        dtypes={"a": "Int64"},
    ),
    "numbers beyond 64 bits": Quirk(
        "a,b\n123456789012345678901234567890,x\n5,y\n",
        {"a": ["123456789012345678901234567890", "5"], "b": ["x", "y"]},
    ),
    # Excel
    "Excel": Quirk(
        workbook([["a", "b", "c"], [1, "x", True], [None, "y", False]]),
        {"a": [1, None], "b": ["x", "y"], "c": [True, False]},
        name="t.xlsx",
        dtypes={"a": "Int64", "c": "bool"},
    ),
    "Excel with two sheets": Quirk(
        workbook([["a"], [1]], [["b"], [2]]),
        {"a": [1]},
        name="t.xlsx",
        told="'Sheet1' is read; .* --sheet",
    ),
    "Excel, a sheet by name": Quirk(
        workbook([["a"], [1]], [["b"], [2]]),
        {"b": [2]},
        name="t.xlsx",
        options={"sheet": "Sheet2"},
    ),
    "Excel, a sheet by number": Quirk(
        workbook([["a"], [1]], [["b"], [2]]),
        {"b": [2]},
        name="t.xlsx",
        options={"sheet": 2},
    ),
    "Excel, a sheet that does not exist": Quirk(
        workbook([["a"], [1]]),
        name="t.xlsx",
        options={"sheet": "Shet1"},
        refused="did you mean 'Sheet1'",
    ),
    "Excel, a title above the names": Quirk(
        workbook([["Report", None, None], ["a", "b", "c"], [1, 2, 3]]),
        name="t.xlsx",
        refused="delete the rows above the names.*--no-header",
    ),
    "Excel, numbers stored as text": Quirk(
        workbook([["a"], [1], ["2"], [3]]), {"a": [1, 2, 3]}, name="t.xlsx"
    ),
    "Excel, a code among numbers": Quirk(
        workbook([["a", "b"], [1, 1], ["?", 2], [3, 3]]),
        {"a": [1, None, 3], "b": [1, 2, 3]},
        name="t.xlsx",
        options={"na": "?"},
    ),
    "Excel, a division by zero": Quirk(
        workbook([["a"], [1.5], ["#DIV/0!"], [3.5]]),
        {"a": [1.5, None, 3.5]},
        name="t.xlsx",
        options={"na": "auto"},
        told="#DIV/0!",
    ),
    # options that do not apply
    "a sheet of a text file": Quirk(
        "a\n1\n", options={"sheet": "x"}, refused="--sheet does not apply"
    ),
}


def same(a: Any, b: Any) -> bool:
    if pd.isna(b):
        return bool(pd.isna(a))
    return type(a) is type(b) and a == b if isinstance(b, str | bool) else a == b


def write(quirk: Quirk, folder: Any) -> Any:
    path = folder / quirk.name
    contents = quirk.contents
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    return path


@pytest.mark.parametrize("name", QUIRKS)
def test_a_quirk_is_read_right_or_refused_with_its_option(name, tmp_path):
    quirk = QUIRKS[name]
    path = write(quirk, tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if quirk.refused is not None:
            with pytest.raises(AugMaskError, match=quirk.refused) as error:
                am.read_table(path, **quirk.options)
            assert "\n" not in str(error.value)
            return
        frame = am.read_table(path, **quirk.options)
    assert frame.columns.tolist() == list(quirk.frame)
    for column, cells in quirk.frame.items():
        assert len(frame) == len(cells)
        pairs = zip(frame[column].tolist(), cells, strict=True)
        assert all(same(a, b) for a, b in pairs), frame[column].tolist()
    for column, dtype in quirk.dtypes.items():
        assert str(frame[column].dtype) == dtype
    sentences = [str(warning.message) for warning in caught]
    assert all(warning.category is AugMaskWarning for warning in caught), sentences
    if quirk.told is None:
        assert not sentences
    else:
        assert len(sentences) == 1
        assert pd.Series(sentences).str.contains(quirk.told).all(), sentences


# -- values in formats --------------------------------------------------------------


def spread(n: int, make: Any) -> list[str]:
    """Return `n` texts for numbers without a pattern."""
    return [make(i * 7919 % 10_007) for i in range(n)]


def date(i: int, form: str) -> str:
    return (pd.Timestamp("2021-01-01") + pd.Timedelta(days=i % 700)).strftime(form)


def clock(i: int, form: str) -> str:
    return (pd.Timestamp("2021-01-01") + pd.Timedelta(seconds=i * 61)).strftime(form)


def german(i: int) -> str:
    return f"€ {i * 1.37:,.2f}".translate(str.maketrans(",.", ".,"))


FORMATS = {
    "day first": (lambda i: date(i, "%d/%m/%Y"), "datetime", "%d/%m/%Y"),
    "month first": (lambda i: date(i, "%m/%d/%Y"), "datetime", "%m/%d/%Y"),
    "dots": (lambda i: date(i, "%d.%m.%Y"), "datetime", "%d.%m.%Y"),
    "month names": (lambda i: date(i, "%d-%b-%Y"), "datetime", "%d-%b-%Y"),
    "full names": (lambda i: date(i, "%B %d, %Y"), "datetime", "%B %d, %Y"),
    "date and time": (
        lambda i: clock(i, "%d/%m/%Y %H:%M"),
        "datetime",
        "%d/%m/%Y %H:%M",
    ),
    "hours": (lambda i: clock(i, "%H:%M"), "datetime", "%H:%M"),
    "seconds": (lambda i: clock(i, "%H:%M:%S"), "datetime", "%H:%M:%S"),
    "noon": (lambda i: clock(i, "%I:%M %p"), "datetime", "%I:%M %p"),
    "dollars": (lambda i: f"${i:,}", "integer", "$#,##0"),
    "cents": (lambda i: f"${i * 1.25:,.2f}", "float", "$#,##0.00"),
    "euros": (german, "float", "€ #.##0,00"),
    "per cent": (lambda i: f"{i % 101} %", "integer", "0 %"),
    "tenths of per cent": (lambda i: f"{i % 1001 / 10}%", "float", "0.0%"),
    "thousands": (lambda i: f"{i * 997:,}", "integer", "#,##0"),
    "decimal comma": (lambda i: f"{i / 100:.2f}".replace(".", ","), "float", "0,00"),
    "Swiss": (lambda i: f"{i * 1.5:,.1f}".replace(",", "'"), "float", "#'##0.0"),
    "blanks": (lambda i: f"{i * 7:,}".replace(",", "\u202f"), "integer", "#\u202f##0"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formatted_text_is_a_value_and_is_written_back(name):
    make, kind, pattern = FORMATS[name]
    frame = pd.DataFrame({"v": spread(300, make)})
    column = am.infer_schema(frame)["v"]
    assert (column.kind, column.format, column.dtype) == (kind, pattern, "str")
    form = read_format(column.format)
    texts = frame["v"].tolist()
    assert form.write(form.parse(texts)) == texts


def test_rows_and_imputations_have_the_form_of_the_table(tmp_path):
    """One small model for all formats: fit, save, load, sample, impute, evaluate."""
    columns = {name: spread(120, make) for name, (make, _, _) in FORMATS.items()}
    frame = pd.DataFrame(columns)
    for j, name in enumerate(frame.columns):
        frame.loc[frame.index[j::17], name] = None
    model = am.AugMask(augmenter="ecdf", preset="fast", options={"steps": 3}, seed=1)
    with warnings.catch_warnings():
        # "1,234" may have a decimal comma, which is told.
        warnings.simplefilter("ignore", AugMaskWarning)
        model.fit(frame)
    model.save(tmp_path / "m.augmask")
    model = am.load(tmp_path / "m.augmask")
    rows = model.sample(50, seed=3)
    imputed = model.impute(frame)
    pd.testing.assert_series_equal(rows.dtypes, frame.dtypes)
    pd.testing.assert_series_equal(imputed.dtypes, frame.dtypes)
    for name, (_, _, pattern) in FORMATS.items():
        form = read_format(pattern)
        for texts in (rows[name].tolist(), imputed[name].tolist()):
            assert form.write(form.parse(texts)) == texts
        known = frame[name].notna()
        assert (imputed[name][known] == frame[name][known]).all()
    path = tmp_path / "rows.csv"
    assert model.sample_to(path, 50, seed=3) == 50
    again = pd.read_csv(path, dtype=str)
    assert again.equals(rows.astype(again.dtypes))
    draws = model.impute(frame, n_draws=3)
    assert not draws[2].isna().any().any()
    assert draws.summary()["mean"].notna().all()
    assert (draws.best().notna()).all().all()


@pytest.fixture(scope="module")
def shop():
    frame = pd.DataFrame(
        {
            "day": spread(200, lambda i: date(i, "%d/%m/%Y")),
            "price": spread(200, lambda i: f"${i:,}"),
            "open": spread(200, lambda i: clock(i, "%H:%M")),
            "kg": [i % 37 + 0.5 for i in range(200)],
        }
    )
    frame.loc[::9, "price"] = None
    options = {"steps": 3}
    model = am.AugMask(augmenter="ecdf", preset="fast", options=options)
    return frame, model.fit(frame)


def test_conditions_take_values_as_the_table_writes_them(shop):
    _, model = shop
    rows = model.sample(
        20, where={"day": ("01/02/2021", "31/12/2021"), "price": ("$1,000", 8_000)}
    )
    days = pd.to_datetime(rows["day"], format="%d/%m/%Y")
    assert days.between("2021-02-01", "2021-12-31").all()
    prices = rows["price"].str.replace("[$,]", "", regex=True).astype(int)
    assert prices.between(1_000, 8_000).all()
    assert (model.sample(5, where='open >= "12:00"')["open"] >= "12:00").all()
    with pytest.raises(am.ConditionError, match="values such as"):
        model.sample(5, where={"open": "noon"})


def test_partial_rows_are_completed_in_the_form_of_the_table(shop):
    _, model = shop
    rows = model.sample(where=pd.DataFrame({"price": ["$1,234", "$5", None]}))
    assert rows["price"].tolist()[:2] == ["$1,234", "$5"]
    assert rows["price"].str.startswith("$").all()


def test_rows_with_learned_missing_values_keep_their_form(shop):
    _, model = shop
    rows = model.sample(200, missing="learned")
    assert rows["price"].isna().any()
    assert rows["price"].dropna().str.fullmatch(r"\$[\d,]+").all()


def test_a_table_of_values_is_imputed_as_values(shop):
    frame, model = shop
    values = frame.assign(
        day=pd.to_datetime(frame["day"], format="%d/%m/%Y"),
        price=frame["price"].str.replace("[$,]", "", regex=True).astype("float64"),
    )
    imputed = model.impute(values)
    assert imputed["day"].equals(values["day"])
    assert pd.api.types.is_numeric_dtype(imputed["price"])


def test_evaluation_scores_formatted_text_as_values(shop):
    frame, model = shop
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AugMaskWarning)
        scores = am.evaluate(frame, model.sample(200), augmenter=None)
    assert scores.facts is not None
    kinds = {column.name: column.kind for column in am.infer_schema(frame)}
    assert kinds == {
        "day": "datetime",
        "price": "integer",
        "open": "datetime",
        "kg": "float",
    }


def test_a_cell_in_another_form_is_refused_with_its_option(shop):
    frame, model = shop
    wrong = frame.assign(price=frame["price"].where(frame.index != 3, "ask"))
    with pytest.raises(am.DataError, match=r"'ask' has another.*--na 'price=ask'"):
        model.impute(wrong)


def test_uncertain_forms_are_told_with_the_line_to_paste():
    frame = pd.DataFrame(
        {
            "day": [f"{i % 12 + 1:02}/{i % 11 + 1:02}/2021" for i in range(132)],
            "n": [f"{i + 1},{i * 7 % 900 + 100}" for i in range(132)],
        }
    )
    schema = am.infer_schema(frame)
    notes = [note for note in schema.notes() if "format" in note]
    assert "if it is 2021-01-01" not in notes[0]
    assert "{'day': {'format': '%m/%d/%Y'}}" in notes[0]
    assert "'format': '0,000'" in notes[1]
    declared = am.infer_schema(
        frame, {"day": {"format": "%m/%d/%Y"}, "n": {"format": "0,000"}}
    )
    assert declared["n"].kind == "float"
    assert not [note for note in declared.notes() if "format" in note]


def test_the_order_of_certain_dates_decides_about_the_others():
    frame = pd.DataFrame(
        {
            "sure": [f"{i % 12 + 1:02}/{i % 28 + 1:02}/2021" for i in range(84)],
            "open": [f"{i % 12 + 1:02}/{i % 11 + 1:02}/2021" for i in range(84)],
        }
    )
    schema = am.infer_schema(frame)
    assert schema["open"].format == schema["sure"].format == "%m/%d/%Y"
    assert not [note for note in schema.notes() if "format" in note]


TEXTS = {
    "versions": ["1.2.10", "3.11.12", "2.0.1"] * 9,
    "choices": ["1,2", "1,2,3", "3"] * 9,
    "weights": [f"{i} kg" for i in range(30)],
    "codes": [f"R{i}" for i in range(30)],
    "scores": [f"{i}-{i + 1}" for i in range(30)],
    "months": ["May", "June"] * 9,
    "seats": [f"{i}A" for i in range(30)],
    "Indian numbers": [f"₹1,{i:02},456" for i in range(30)],
    "long numbers": [f"${i}23,456,789,012,345,678" for i in range(1, 30)],
    "impossible dates": ["31/02/2021", "01/01/2021"] * 9,
    "few hours": ["08:00", "14:00"] * 9,
    "mixed currencies": [f"{'$€'[i % 2]}{i}" for i in range(30)],
}


@pytest.mark.parametrize("name", TEXTS)
def test_other_text_stays_text(name):
    column = am.infer_schema(pd.DataFrame({"v": TEXTS[name], "x": 1.5}))["v"]
    assert column.format is None
    assert column.kind in ("category", "identifier")


# -- codes in the schema ------------------------------------------------------------


def test_numbers_but_for_a_code_are_suggested_or_refused_with_the_line():
    ages = pd.DataFrame({"age": [*map(str, range(40)), *map(str, range(40)), "?"]})
    with pytest.raises(am.DataError, match=r"--na 'age=\?' \(or --na auto\)"):
        am.infer_schema(ages)
    column = am.infer_schema(ages, suggest=True)["age"]
    assert (column.kind, column.suspected_na_values) == ("integer", ("?",))
    prices = pd.DataFrame({"price": [*(f"${i}" for i in range(40)), "n/a"]})
    with pytest.raises(am.DataError, match=r"holds numbers.*price=n/a"):
        am.infer_schema(prices)
    days = pd.DataFrame({"day": ["2021-01-01", "2021-03-05", "unknown"]})
    with pytest.raises(am.DataError, match=r"holds dates.*day=unknown"):
        am.infer_schema(days)


def test_a_saved_schema_never_makes_a_code_a_level(tmp_path):
    frame = pd.DataFrame(
        {"job": ["cook", "?", "king"] * 8, "age": [*map(str, range(11)), "?"] * 2}
    )
    am.infer_schema(frame, suggest=True).to_toml(tmp_path / "s.toml")
    text = (tmp_path / "s.toml").read_text()
    assert "levels" not in text.split('[columns."age"]')[0].split("job", 1)[1]
    assert '# na_values = ["?"]' in text
    again = am.infer_schema(frame, tmp_path / "s.toml")
    assert again["age"].kind == "integer"
    assert again["age"].na_values == ("?",)


def test_a_model_remembers_the_codes_of_its_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "age,pay\n" + "".join(f"{i % 50},{i}.5\n" for i in range(60)) + "?,-999\n"
    )
    frame = am.read_table(path, na={"age": "?", "pay": -999})
    model = am.AugMask(augmenter="ecdf", preset="fast", options={"steps": 3})
    model.fit(frame)
    assert model.schema_["age"].na_values == ("?",)
    assert model.schema_["pay"].na_values == (-999,)
    rows = pd.DataFrame({"age": ["30", "?"], "pay": [-999, 2.5]})
    imputed = model.impute(rows)
    assert (imputed["age"].astype(str) != "?").all()
    assert imputed["pay"][0] != -999

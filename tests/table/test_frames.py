from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from augmask.errors import DataError, UsageError
from augmask.table import text_files
from augmask.table.frames import read_frame, read_table


@pytest.fixture
def small():
    return pd.DataFrame(
        {"n": [1.0, None, 3.0], "b": [True, None, False], "s": ["x", None, "ü"]}
    )


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "feather", "arrow"])
def test_every_suffix_is_read(small, tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    if "csv" in suffix:
        small.to_csv(path, index=False)
    elif suffix == "parquet":
        small.to_parquet(path)
    else:
        small.to_feather(path)
    frame = read_frame(path)
    assert frame.isna().sum().tolist() == [1, 1, 1]
    assert frame["s"].tolist()[::2] == ["x", "ü"]
    assert read_frame(str(path)).shape == (3, 3)


def test_arrow_and_polars_keep_whole_numbers_beside_missing_values():
    big = 2**60 + 1
    data = {"i": [big, None], "b": [True, None]}
    for source in (
        pl.DataFrame(data),
        pl.DataFrame(data).lazy(),
        pa.table(data),
        pa.RecordBatch.from_pydict(data),
    ):
        frame = read_frame(source)
        assert frame["i"][0] == big
        assert str(frame["b"].dtype) == "boolean"


def test_index_is_ignored_and_integer_names_are_kept():
    frame = read_frame(pd.DataFrame({7: [1, 2]}, index=["a", "b"]))
    assert frame.columns.tolist() == [7]
    assert frame.index.tolist() == [0, 1]


def test_a_blank_line_of_a_single_column_is_a_missing_value(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("x\n1\n\n3\n")
    assert read_frame(path)["x"].isna().tolist() == [False, True, False]


BAD_FILES = {
    "empty.csv": (b"", "is empty"),
    "blank.csv": (b"\n\n", "is empty"),
    "header.csv": (b"a,b\n", "at least one row"),
    "twice.csv": (b"a,b,a\n1,2,3\n", "'a' more than once"),
    "long.csv": (b"a,b\n1,2\n1,2,3\n", "line 3 .* has 3"),
    "all-long.csv": (b"a,b\n1,2,3\n4,5,6\n", "line 2 .* has 3"),
    "short.csv": (b"a,b,c\n1,2,3\n1,2\n", "line 3 .* has 2"),
    "latin.csv": ("a\nü\n".encode("latin-1"), "encoded in UTF-8"),
    "fake.csv.gz": (b"a,b\n1,2\n", "cannot be read as CSV"),
    "cut.csv.gz": (gzip.compress(b"a,b\n" + b"1,2\n" * 999)[:40], "cannot be read"),
    "fake.parquet": (b"PAR1 or not", "cannot be read as Parquet"),
    "fake.feather": (b"nothing", "cannot be read as Feather"),
    "fake.xlsx": (b"PK", "cannot be read as Excel"),
    "table.xls": (b"PK", r"must end in \.csv, .*save it as \.xlsx"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_unreadable_files_raise_one_sentence(name, tmp_path):
    contents, message = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(contents)
    with pytest.raises(DataError, match=message) as caught:
        read_frame(path)
    assert "\n" not in str(caught.value)


def test_directories_absent_and_forbidden_files(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="is a directory"):
        read_frame(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        read_frame(tmp_path / "absent.csv")

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    # Tests may run as root, whom no file mode stops.
    monkeypatch.setattr(text_files, "_open_bytes", refuse)
    path = tmp_path / "secret.csv"
    path.write_text("a\n1\n")
    with pytest.raises(DataError, match="no permission to read"):
        read_frame(path)


BAD_FRAMES = {
    "no rows": (pd.DataFrame({"a": []}), "at least one row"),
    "no columns": (pd.DataFrame(index=range(3)), "at least one column"),
    "twice": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than once"),
    "as text": (pd.DataFrame([[1, 2]], columns=["1", 1]), "'1' more than once"),
    "two levels": (pd.DataFrame([[1]], columns=[["a"], ["b"]]), "one level deep"),
    "odd name": (pd.DataFrame([[1]], columns=[pd.Timestamp(0)]), "text or numbers"),
    "array": (np.zeros((2, 2)), "got ndarray"),
    "series": (pd.Series([1]), "got Series"),
    "polars series": (pl.Series([1]), "got Series"),
    "arrow twice": (pa.table([[1], [2]], names=["a", "a"]), "more than once"),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_unusable_frames_raise_one_sentence(name):
    source, message = BAD_FRAMES[name]
    with pytest.raises(DataError, match=message):
        read_frame(source)


def read_text(tmp_path, text: str) -> pd.DataFrame:
    path = tmp_path / "t.csv"
    path.write_text(text)
    return read_frame(path)


def test_large_whole_numbers_keep_their_digits_beside_missing_values(tmp_path):
    cells = [9007200528664367, None, -9223372036854775807, 9007200528664369]
    lines = "\n".join(f"{i},{'' if v is None else v}" for i, v in enumerate(cells))
    frame = read_text(tmp_path, f"row,key\n{lines}\n")
    assert frame["key"].dtype == "Int64"
    assert frame["key"].tolist()[::2] == cells[::2]
    assert frame["key"].isna().tolist() == [False, True, False, False]


def test_small_whole_numbers_beside_holes_are_whole(tmp_path):
    frame = read_text(tmp_path, "a,b,c\n1,1.5,x\n,2,y\n3,,z\n")
    assert [str(dtype) for dtype in frame.dtypes[:2]] == ["Int64", "float64"]


@pytest.mark.parametrize("more", ["", "\n,1"])
@pytest.mark.parametrize("code", ["00273", '"007"', "-01", "0000"])
def test_digits_with_leading_zeros_are_text(tmp_path, code, more):
    frame = read_text(tmp_path, f"code,n\n{code},1\n12,2{more}\n")
    assert frame["code"][0].strip() == code.strip(' "')
    assert frame["code"][1] == "12"
    assert pd.api.types.is_numeric_dtype(frame["n"])


def test_zeros_before_a_decimal_point_are_no_code(tmp_path):
    frame = read_text(tmp_path, "x,d\n00.5,01/02/2020\n0.25,09/02/2020\n0,x\n")
    assert frame["x"].tolist() == [0.5, 0.25, 0.0]


def test_unsigned_numbers_beside_missing_values_do_not_hide_them(tmp_path):
    frame = read_text(tmp_path, f"a,b\n{2**64 - 1},1\n,2\n{2**64 - 2},3\n")
    assert frame["a"].isna().tolist() == [False, True, False]


def test_columns_of_extension_types_are_read_as_what_they_store(tmp_path):
    from pyarrow import parquet

    texts = pa.array(["1", "2"], pa.string())
    columns = {"t": pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 2)))}
    columns["o"] = pa.ExtensionArray.from_storage(
        pa.opaque(pa.string(), "x", "them"), texts
    )
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    frame = read_frame(tmp_path / "t.parquet")
    assert frame["o"].tolist() == ["1", "2"]
    assert len(frame["t"]) == 2


def test_labels_that_no_file_can_hold_are_refused():
    frame = pd.DataFrame([[1, 2]])
    frame.columns = pd.Index(["\ud800", "y"], dtype=object)
    with pytest.raises(DataError, match="valid Unicode"):
        read_frame(frame)


def test_a_pipe_is_not_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(DataError, match="plain file"):
        read_frame(tmp_path / "t.csv")


def test_long_whole_numbers_beside_decimals_keep_their_digits(tmp_path):
    """As floats, which pandas reads, 2**60 + 1 would come back as 2**60."""
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + f"{2**60 + 1},a\n0.5,b\n,c\n" * 9)
    values = read_frame(path)["x"]
    assert values[:2].tolist() == [2**60 + 1, 0.5]
    assert values.isna().sum() == 9


def test_long_numbers_that_floats_hold_are_floats(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1e20,1\n1.5,2\n9007199254740992,3\n")
    assert read_frame(path)["x"].dtype == "float64"


@pytest.mark.parametrize("cells", [[[1, 2]], [np.ones(2)], [{"a": 1}]])
@pytest.mark.parametrize("na", ["auto", "x", {"x": "y"}])
def test_codes_in_a_column_of_lists_are_a_data_error(cells, na):
    frame = pd.DataFrame({"x": cells * 40, "y": ["a", "b"] * 20})
    with pytest.raises(DataError, match="'x' must hold"):
        read_table(frame, na=na)


@pytest.mark.parametrize("code", ["nan", "inf", "-inf", "1e400"])
def test_codes_that_a_model_file_cannot_hold_are_text(tmp_path, code):
    """`--na kg=1e400` was a number that JSON does not have."""
    path = tmp_path / "t.csv"
    path.write_text("kg,job\n" + "1.5,a\n2.5,b\n" * 20)
    codes = read_table(path, na={"kg": code}).attrs["na_values"]
    assert codes == {"kg": [code]}


@pytest.mark.parametrize("sep", ["漢", "\0", "ü"])
def test_a_separator_that_the_parser_cannot_take_is_refused(tmp_path, sep):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,2\n")
    with pytest.raises(UsageError, match="sep must be one ASCII character"):
        read_table(path, sep=sep)


@pytest.mark.parametrize("code", [10**400, float("inf"), None, [1], b"x", object()])
def test_a_code_that_is_no_text_and_no_finite_number_is_refused(code):
    with pytest.raises(UsageError, match="na must hold text or numbers"):
        read_table(pd.DataFrame({"kg": [1.5, 2.5]}), na={"kg": [code]})

"""Tables of many files: which files, rows and types; errors in one sentence."""

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError
from augmask.table import partitions
from augmask.table.partitions import is_partitioned, partitioned_table


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "a": pd.array(rng.integers(0, 99, 1_000), "Int64"),
            "b": rng.choice(["x", "y", None], 1_000),
        }
    )


@pytest.fixture
def lake(tmp_path, frame, monkeypatch):
    monkeypatch.setattr(partitions, "PART_ROWS", 250)
    folder = tmp_path / "lake"
    folder.mkdir()
    for i in range(4):
        rows = frame.iloc[i * 250 : (i + 1) * 250]
        rows.to_parquet(folder / f"{i}.parquet", row_group_size=100)
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.parquet").touch()
    return folder


def test_a_folder_a_pattern_and_a_list_are_the_same_table(lake, frame):
    files = sorted(lake.glob("?.parquet"))
    for source in (lake, str(lake / "?.parquet"), files, list(map(str, files))):
        assert is_partitioned(source)
        table = partitioned_table(source)
        assert len(table) == 1_000
        pd.testing.assert_frame_equal(table.read(), frame, check_dtype=False)


def test_parts_follow_each_other_and_stay_small(lake, frame):
    table = partitioned_table(lake)
    assert [part.rows for part in table.parts] == [250] * 4
    assert [part.start for part in table.parts] == [0, 250, 500, 750]
    again = pd.concat([part.read() for part in table.parts], ignore_index=True)
    pd.testing.assert_frame_equal(again, frame, check_dtype=False)


def test_a_large_file_is_read_in_parts(tmp_path, frame, monkeypatch):
    monkeypatch.setattr(partitions, "PART_ROWS", 250)
    frame.to_parquet(tmp_path / "all.parquet", row_group_size=100)
    table = partitioned_table(tmp_path)
    assert [part.rows for part in table.parts] == [200] * 5
    pd.testing.assert_frame_equal(
        table.parts[2].read(), frame[400:600].reset_index(drop=True), check_dtype=False
    )


def test_small_files_share_a_part(tmp_path, frame):
    for i in range(10):
        frame.iloc[i * 100 : (i + 1) * 100].to_parquet(tmp_path / f"{i}.parquet")
    (part,) = partitioned_table(tmp_path).parts
    assert len(part.pieces) == 10
    pd.testing.assert_frame_equal(part.read(), frame, check_dtype=False)


def test_folders_that_name_a_column_add_it(tmp_path, frame):
    for year, region in (("2020", "north"), ("2021", "01")):
        folder = tmp_path / f"year={year}" / f"region={region}"
        folder.mkdir(parents=True)
        frame.head(5).to_parquet(folder / "rows.parquet")
    rows = partitioned_table(tmp_path).read()
    assert rows["year"].tolist() == [2020] * 5 + [2021] * 5
    assert rows["region"].tolist() == ["north"] * 5 + ["01"] * 5


def test_files_of_several_types_get_one_that_holds_all(tmp_path, frame):
    frame.to_parquet(tmp_path / "0.parquet")
    floats = frame.assign(a=frame["a"].astype(float) + 0.5)
    floats.to_parquet(tmp_path / "1.parquet")
    nothing = frame.assign(b=None)
    nothing.to_parquet(tmp_path / "2.parquet")
    rows = partitioned_table(tmp_path).read()
    assert rows["a"].dtype == "float64"
    assert rows["b"].isna().sum() == 2 * frame["b"].isna().sum() + 1_000


def test_categories_of_all_files_are_levels_of_one_column(tmp_path):
    for i, levels in enumerate((["a", "b"], ["c"])):
        column = pd.Categorical(levels * 5)
        pd.DataFrame({"c": column}).to_parquet(tmp_path / f"{i}.parquet")
    assert set(partitioned_table(tmp_path).read()["c"]) == {"a", "b", "c"}


def test_a_sample_takes_its_share_of_every_part_and_follows_from_the_seed(lake):
    table = partitioned_table(lake)
    places = table.sample_places(400, 0, "sample")
    assert [len(own) for own in places] == [100] * 4
    assert all((np.diff(own) > 0).all() for own in places)
    again = partitioned_table(lake).sample_places(400, 0, "sample")
    other = table.sample_places(400, 1, "sample")
    assert all((a == b).all() for a, b in zip(places, again, strict=True))
    assert any((a != b).any() for a, b in zip(places, other, strict=True))
    assert sum(map(len, table.sample_places(10**6, 0, "sample"))) == 1_000


def test_the_digest_notices_a_changed_file(lake, frame):
    before = partitioned_table(lake).digest
    assert partitioned_table(lake).digest == before
    frame.iloc[:250].sample(frac=1, random_state=0).to_parquet(lake / "0.parquet")
    assert partitioned_table(lake).digest != before


@pytest.mark.parametrize("source", ["rows.csv", "rows.parquet", 5, None, [], [1]])
def test_other_sources_are_no_tables_in_parts(source):
    assert not is_partitioned(source)


def bad_lake(folder, frame, what):
    frame.to_parquet(folder / "0.parquet")
    if what == "columns":
        frame.rename(columns={"b": "c"}).to_parquet(folder / "1.parquet")
    elif what == "types":
        frame.assign(a="text").to_parquet(folder / "1.parquet")
    elif what == "damaged":
        (folder / "1.parquet").write_bytes(b"PAR1 nothing")
    elif what == "other":
        return [folder / "0.parquet", folder / "rows.csv"]
    elif what == "absent":
        return [folder / "0.parquet", folder / "gone.parquet"]
    elif what == "twice":
        (folder / "a=1").mkdir()
        (folder / "0.parquet").rename(folder / "a=1" / "0.parquet")
    elif what == "empty":
        (folder / "0.parquet").unlink()
    elif what == "rows":
        frame.head(0).to_parquet(folder / "0.parquet")
    return folder


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("columns", r"must have the same columns, but 'b' is in .*0\.parquet and not"),
        ("types", r"column 'a' is int64 in .*0.parquet and .*string in .*1.parquet"),
        ("damaged", r"1\.parquet cannot be read as Parquet"),
        ("other", r"must consist of Parquet files, got .*rows\.csv; convert it"),
        ("absent", r"no such file: .*gone\.parquet"),
        ("twice", "'a' is in the files and in the names of their folders; rename"),
        ("empty", "no Parquet file in .*; check the path"),
        ("rows", "needs at least one row"),
    ],
)
def test_bad_lakes_end_in_one_sentence(tmp_path, frame, what, message):
    source = bad_lake(tmp_path, frame, what)
    with pytest.raises(DataError, match=message) as error:
        partitioned_table(source)
    assert "\n" not in str(error.value)


def test_a_file_that_goes_meanwhile_is_named(lake):
    table = partitioned_table(lake)
    (lake / "2.parquet").unlink()
    with pytest.raises(DataError, match=r"no such file: .*2\.parquet; it was there"):
        table.read()

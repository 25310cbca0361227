"""Laws of every table: nothing observed is lost, nothing is invented."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from augmask.table.codec import Codec
from augmask.table.infer import infer_schema
from augmask.table.schema import Schema

LAW = settings(max_examples=25, deadline=None)


def _integers(rng, n):
    return pd.Series(rng.integers(-(10**6), 10**6, n).astype(float))


def _skewed(rng, n):
    return pd.Series(np.where(rng.random(n) < 0.6, 0, rng.lognormal(8, 3, n).round()))


def _floats(rng, n):
    return pd.Series(rng.normal(size=n) * 10.0 ** rng.integers(-8, 9))


def _decimals(rng, n):
    return pd.Series(rng.normal(0, 1000, n).round(int(rng.integers(1, 7))))


def _narrow(rng, n):
    return pd.Series(rng.normal(size=n).round(2).astype(np.float32))


def _booleans(rng, n):
    return pd.Series(rng.random(n) < 0.4, dtype=object)


def _codes(rng, n):
    return pd.Series(rng.integers(-2, 5, n), dtype="Int64")


def _text(rng, n):
    words = np.array(["a", "b b", "ü", "?", "", "10", "nan"], dtype=object)
    return pd.Series(rng.choice(words, n))


def _ordered(rng, n):
    dtype = pd.CategoricalDtype(["low", "mid", "high", "never"], ordered=True)
    return pd.Series(rng.choice(["low", "mid", "high"], n), dtype=dtype)


def _days(rng, n):
    start = pd.Timestamp("1950-01-01")
    return pd.Series(start + pd.to_timedelta(rng.integers(0, 40_000, n), unit="D"))


def _zoned(rng, n):
    start = pd.Timestamp("2000-01-01", tz="Europe/Berlin")
    return pd.Series(start + pd.to_timedelta(rng.integers(0, 10**9, n), unit="s"))


def _dates_as_text(rng, n):
    return _days(rng, n).dt.strftime("%Y-%m-%d")


MAKERS = (
    _integers,
    _skewed,
    _floats,
    _decimals,
    _narrow,
    _booleans,
    _codes,
    _text,
    _ordered,
    _days,
    _zoned,
    _dates_as_text,
)


@st.composite
def frames(draw):
    """Return an incomplete frame of any mix of columns."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, 60))
    ratio = draw(st.sampled_from([0.0, 0.3, 0.9]))
    makers = draw(st.lists(st.sampled_from(MAKERS), min_size=1, max_size=6))
    frame = pd.DataFrame({f"{i}{m.__name__}": m(rng, n) for i, m in enumerate(makers)})
    return frame.mask(rng.random(frame.shape) < ratio)


@st.composite
def overrides(draw, frame):
    """Declare for each column whether missing values are unknown or a level."""
    missing_as = st.sampled_from(["unknown", "level"])
    return {name: {"missing_as": draw(missing_as)} for name in frame.columns}


def encoded(frame, settings=None, dequantize=None):
    codec = Codec.fit(frame, infer_schema(frame, settings), dequantize)
    return codec, codec.encode(frame, dequantize)


def random_arrays(codec, n, seed):
    rng = np.random.default_rng(seed)
    layout = codec.layout
    cat = [rng.integers(0, k, n) for k in layout.cards]
    cat = np.stack(cat, axis=1) if cat else np.zeros((n, 0), int)
    return rng.normal(0, 3, (n, layout.n_num)), cat


@LAW
@given(st.data())
def test_encode_then_decode_is_the_identity_on_observed_cells(data):
    frame = data.draw(frames())
    dequantize = data.draw(st.sampled_from([None, 7]))
    codec, table = encoded(frame, data.draw(overrides(frame)), dequantize)
    out = codec.decode(table.num, table.cat, np.random.default_rng(0))
    assert out.columns.tolist() == frame.columns.tolist()
    for column in codec.schema:
        if not column.learned and column.kind != "constant":
            continue
        observed = frame[column.label].notna()
        before, after = frame[column.label][observed], out[column.label][observed]
        if column.kind == "float" and column.decimals is None:
            span = before.max() - before.min()
            assert np.abs(after - before).max() <= 1e-6 * span
        elif column.kind in ("datetime", "constant") and isinstance(
            before.iloc[0], str
        ):
            before = pd.to_datetime(before) if column.unit else before
            assert after.tolist() == before.tolist()
        else:
            assert after.tolist() == before.tolist()


@LAW
@given(frames(), st.integers(0, 2**32))
def test_output_is_complete_in_range_and_of_the_recovered_dtype(frame, seed):
    codec, _ = encoded(frame)
    out = codec.decode(*random_arrays(codec, 80, seed), np.random.default_rng(seed))
    for column in codec.schema:
        cells, before = out[column.label], frame[column.label].dropna()
        assert str(cells.dtype) == column.dtype
        if column.kind == "all-missing":
            assert cells.isna().all()
            continue
        assert cells.notna().all()
        if column.kind in ("integer", "float"):
            assert cells.between(before.min(), before.max()).all()
        elif column.kind == "datetime":
            before = pd.to_datetime(before)
            assert cells.between(before.min(), before.max()).all()
        elif column.kind != "identifier" and column.unit is None:
            assert set(cells) <= set(before)


@LAW
@given(frames(), st.integers(0, 2**32), st.integers(0, 6))
def test_columns_that_are_not_learned_change_nothing_else(frame, seed, place):
    plain, table = encoded(frame)
    wide = frame.copy()
    for name, values in {
        "same": 3,
        "empty": None,
        "key": [f"k{i:03d}" for i in range(len(frame))],
    }.items():
        wide.insert(min(place, wide.shape[1]), name, values)
    codec, wide_table = encoded(wide, {"key": "identifier"})
    assert codec.layout == plain.layout
    assert wide_table.num.tobytes() == table.num.tobytes()
    assert wide_table.cat.tobytes() == table.cat.tobytes()
    assert wide_table.observed.tobytes() == table.observed.tobytes()
    arrays = random_arrays(plain, 40, seed)
    expected = plain.decode(*arrays, np.random.default_rng(seed))
    rows = codec.decode(*arrays, np.random.default_rng(seed))
    pd.testing.assert_frame_equal(rows[frame.columns.tolist()], expected)


@LAW
@given(st.data())
def test_schemas_survive_json_and_toml(tmp_path_factory, data):
    frame = data.draw(frames())
    schema = infer_schema(frame, data.draw(overrides(frame)))
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    schema.to_toml(path)
    assert infer_schema(frame, path) == schema
    assert infer_schema(frame, schema) == schema


def test_samples_of_rare_levels_do_not_depend_on_other_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"town": [f"t{i}" for i in rng.integers(0, 150, 2000)]})
    more = frame.assign(same=1, place=frame["town"].to_numpy()[::-1])
    narrow, wide = encoded(frame)[0], encoded(more)[0]
    assert narrow.schema["town"].rare_levels
    rare = np.full((500, 2), 100)
    num = np.zeros((500, 0))
    one = narrow.decode(num, rare[:, :1], np.random.default_rng(7))
    two = wide.decode(num, rare, np.random.default_rng(7))
    assert one["town"].tolist() == two["town"].tolist()
    assert two["town"].tolist() != two["place"].tolist()

from __future__ import annotations

import json
import random
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import augmask as am
from augmask.errors import AugMaskWarning, SchemaError
from augmask.table import fakes
from augmask.table.cells import read_cells
from augmask.table.fakes import fake_form, with_fakes
from augmask.table.identifiers import FORM_SPEC, _repeated_fake, fresh_values, pool_root
from augmask.table.infer import infer_schema
from augmask.table.personal import FAKES
from augmask.table.schema import Schema

pytest.importorskip("faker")
MAKE = {"phone": "phone_number", "street": "street_address"}


def people(n: int, seed: int = 1, locale: str = "en_US") -> pd.DataFrame:
    """A table of what faker makes, the worst case for never repeating a value."""
    from faker import Faker

    faker = Faker(locale, use_weighting=False)
    faker.seed_instance(seed)
    frame = pd.DataFrame(
        {
            fake: [getattr(faker, MAKE.get(fake, fake))() for _ in range(n)]
            for fake in FAKES
        }
    )
    frame["age"] = np.arange(n) * 7 % 60 + 20
    return frame


def pools(frame: pd.DataFrame, seed: int = 0, overrides=None) -> Schema:
    return with_fakes(frame, infer_schema(frame, overrides), seed)


def declared(**settings: str) -> dict[str, dict[str, str]]:
    return {fake: {"fake": fake} | settings for fake in FAKES}


@pytest.mark.parametrize("locale", ["en_US", "de_DE"])
def test_no_real_value_ever(locale):
    frame = people(700, locale=locale)
    schema = pools(frame, overrides=declared(locale=locale))
    for fake in FAKES:
        form = schema[fake].form
        assert form["make"] == "pool"
        rows = 4 * len(form["values"])
        assert not set(fresh_values(form, 0, rows)) & set(frame[fake]), fake


def test_no_real_value_even_if_the_table_holds_nearly_all_that_faker_knows():
    from faker import Faker

    faker = Faker("ja_JP", use_weighting=False)
    faker.seed_instance(0)
    known = sorted({faker.first_name() for _ in range(3000)})
    frame = pd.DataFrame({"first_name": known[:-2], "x": range(len(known) - 2)})
    settings = {"first_name": {"fake": "first_name", "locale": "ja_JP"}}
    form = pools(frame, overrides=settings)["first_name"].form
    assert set(form["values"]) <= set(known[-2:])
    assert form["values"]
    values = fresh_values(form, 0, 500)
    assert len(set(values)) == 500
    assert not set(values) & set(known[:-2])
    # none is left: the form of the values, as without faker
    frame = pd.DataFrame({"first_name": known, "x": range(len(known))})
    assert pools(frame, overrides=settings)["first_name"].form["make"] != "pool"


@pytest.mark.parametrize("fake", FAKES)
def test_a_real_value_that_looks_like_a_repeated_fake_is_not_generated(fake):
    frame = people(60)
    pool = pools(frame, overrides=declared())[fake].form["values"]
    reals = [_repeated_fake(fake, text, lap) for text in pool[:30] for lap in (2, 3)]
    frame = pd.DataFrame({fake: reals, "x": range(60)})
    form = pools(frame, overrides={fake: {"fake": fake}})[fake].form
    assert not set(fresh_values(form, 0, 5 * len(form["values"]))) & set(reals)
    assert not set(form["values"]) & set(pool[:30])


@pytest.mark.parametrize(
    ("fake", "real", "other"),
    [
        ("phone", "+1 (415) 555-0199", "1-415-555.0199"),
        ("email", "Ann.Lee@Example.org", "ann.lee@example.org"),
        ("name", "ANN  LEE", "Ann Lee"),
    ],
)
def test_other_spellings_count_as_the_same(fake, real, other):
    assert fakes._same_for_readers(fake, real) == fakes._same_for_readers(fake, other)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FAKES), st.text(min_size=1), st.integers(2, 10**6))
def test_a_repeated_fake_has_the_same_root(fake, text, lap):
    text = text.strip() + ("@example.org" if fake == "email" else "")
    if text:
        again = _repeated_fake(fake, text, lap)
        assert again != text
        assert pool_root(fake, again) == pool_root(fake, text)


def test_unique_where_the_column_was_unique():
    frame = people(300)
    frame["email"] = [f"u{i}@real.org" for i in range(300)]
    frame["phone"] = [f"+49 30 {i % 100:06d}" for i in range(300)]
    schema = pools(frame)
    once = fresh_values(schema["email"].form, 0, 10_000)
    assert len(set(once)) == 10_000
    batches = [
        fresh_values(schema["email"].form, at, 2500) for at in range(0, 10_000, 2500)
    ]
    assert np.concatenate(batches).tolist() == once.tolist()
    # three rows share a number, and do so in what is generated
    some = fresh_values(schema["phone"].form, 0, 300)
    assert 60 < len(set(some)) < 150
    batches = [fresh_values(schema["phone"].form, at, 100) for at in (0, 100, 200)]
    assert np.concatenate(batches).tolist() == some.tolist()


def test_same_seed_and_table_same_fakes_and_no_global_state():
    from faker import Faker

    frame = people(80)
    Faker.seed(7)
    expected, random_state = Faker().name(), random.getstate()
    Faker.seed(7)
    first = pools(frame, 0)
    assert Faker().name() == expected
    assert random.getstate() == random_state
    assert pools(frame, 0) == first
    other = pools(frame, 1)
    assert other["name"].form["values"] != first["name"].form["values"]


def test_the_seed_alone_does_not_tell_what_was_left_out():
    # Whoever knows the seed could otherwise draw the candidates again and compare.
    frame = people(80)
    changed = frame.copy()
    changed.loc[0, "name"] = "Nobody Inparticular"
    mine, theirs = (pools(each)["name"].form["values"] for each in (frame, changed))
    assert len(set(mine[:200]) & set(theirs[:200])) < 50


def test_locale_by_column_from_a_mapping_and_a_file(tmp_path):
    frame = people(60)
    settings = {"name": {"fake": "name", "locale": "ja_JP"}}
    schema = pools(frame, overrides=settings)
    assert all(re.search("[\u3040-\u9fff]", t) for t in schema["name"].form["values"])
    assert schema["city"].locale == "en_US"
    schema.to_toml(tmp_path / "schema.toml")
    assert 'locale = "ja_JP"' in (tmp_path / "schema.toml").read_text()
    again = pools(frame, overrides=tmp_path / "schema.toml")
    assert [column.form for column in again] == [column.form for column in schema]
    assert again.settings() == schema.settings()


def test_the_style_of_the_values():
    frame = people(60)
    frame["name"] = [
        f"{a}, {b}".upper()
        for a, b in zip(frame.last_name, frame.first_name, strict=True)
    ]
    frame["phone"] = [f"415555{i:04d}" for i in range(60)]
    frame["address"] = frame["address"].str.replace("\n", ", ")
    schema = pools(frame.astype(object), overrides={"phone": "identifier"})
    names = schema["name"].form["values"]
    assert all(re.fullmatch("[^,a-z]+, [^,a-z]+", name) for name in names)
    assert not any("\n" in text for text in schema["address"].form["values"])
    cells = read_cells(frame["phone"], "phone")
    phones = fake_form(cells, "phone", "en_US", 0)["values"]
    assert all(phone.isdigit() for phone in phones)


def test_mail_and_web_addresses_belong_to_nobody():
    schema = pools(people(60))
    assert all(
        text.split("@")[1] in ("example.com", "example.net", "example.org")
        for text in schema["email"].form["values"]
    )
    assert all(
        re.fullmatch(r"https://www\.[\w-]+\.example\.(com|net|org)", text)
        for text in schema["url"].form["values"]
    )


def test_nothing_keeps_the_form_of_the_values(tmp_path):
    frame = people(60)
    frame["phone"] = [f"+49 30 {i:06d}" for i in range(60)]
    schema = pools(frame, overrides={"phone": {"fake": "nothing"}})
    assert schema["phone"].form["make"] == "counter"
    schema.to_toml(tmp_path / "schema.toml")
    assert pools(frame, overrides=tmp_path / "schema.toml")["phone"] == schema["phone"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": {"fake": "nme"}}, "fake must be one of .*got 'nme'.*"),
        (
            {"name": {"fake": "name", "kind": "category"}},
            "only an identifier has a fake",
        ),
        ({"name": {"fake": "name", "locale": "de_XX"}}, "no locale 'de_XX'"),
        ({"name": {"fake": "name", "locale": "german"}}, "language and a country"),
        ({"age": {"fake": "phone"}}, "'age' holds no text, and fakes are text"),
        ({"age": {"locale": "de_DE"}}, "only an identifier has a locale"),
        ({"code": {"locale": "de_DE"}}, "is not recognised"),
    ],
)
def test_mistakes_are_one_sentence(settings, message):
    frame = people(40).assign(code=[f"K{i}" for i in range(40)])
    with pytest.raises(SchemaError, match=message):
        infer_schema(frame, settings)


def test_without_the_extra_placeholders_and_one_line(monkeypatch):
    from augmask.table import notes

    frame = people(40)
    schema = infer_schema(frame)
    # what a machine with faker would have made is not there
    for module in (fakes, notes):
        monkeypatch.setattr(module, "faker_installed", lambda: False)
    assert with_fakes(frame, schema, 0) == schema
    values = fresh_values(schema["name"].form, 0, 2)
    assert values.tolist() == ["name 000001", "name 000002"]
    lines = [note for note in schema.notes() if "augmask[fakes]" in note]
    assert len(lines) == 1
    assert "pip install 'augmask[fakes]'" in lines[0]
    assert "'name'" in lines[0]
    # an unknown locale cannot be known without it
    infer_schema(frame, {"name": {"fake": "name", "locale": "de_XX"}})


def test_with_the_extra_nothing_needs_installing():
    assert not any(
        "augmask[fakes]" in note for note in infer_schema(people(40)).notes()
    )


@pytest.fixture(scope="module")
def fitted():
    frame = people(60)[["name", "email", "age"]]
    frame["sex"] = ["f", "m"] * 30
    frame.loc[:4, "email"] = None
    model = am.AugMask(augmenter="ecdf", preset="fast", seed=3, options={"steps": 3})
    with pytest.warns(AugMaskWarning, match="taken for identifiers"):
        model.fit(frame, schema={"name": {"fake": "name", "locale": "de_DE"}})
    return frame, model


def test_a_model_generates_fakes_and_keeps_them_in_its_file(fitted, tmp_path):
    frame, model = fitted
    rows = model.sample(200, seed=1)
    assert rows["email"].str.fullmatch(r"\S+@example\.\w+").all()
    assert rows[["name", "email"]].nunique().tolist() == [200, 200]
    assert not set(rows["name"]) & set(frame["name"])
    model.save(tmp_path / "m.augmask")
    loaded = am.load(tmp_path / "m.augmask")
    pd.testing.assert_frame_equal(loaded.sample(200, seed=1), rows)
    assert loaded.schema_ == model.schema_
    assert loaded.schema_["name"].locale == "de_DE"


def test_a_model_file_does_not_need_faker(fitted, tmp_path, monkeypatch):
    _, model = fitted
    model.save(tmp_path / "m.augmask")
    monkeypatch.setitem(__import__("sys").modules, "faker", None)
    assert len(am.load(tmp_path / "m.augmask").sample(5, seed=1)) == 5


def test_imputing_leaves_missing_identifiers_missing(fitted):
    frame, model = fitted
    imputed = model.impute(frame, seed=0)
    pd.testing.assert_series_equal(imputed["email"], frame["email"])
    pd.testing.assert_series_equal(imputed["name"], frame["name"])


def test_rare_values_stay_private_with_fakes():
    frame = people(60)[["name", "age"]]
    model = am.AugMask(augmenter="ecdf", preset="fast", options={"steps": 3})
    with pytest.warns(AugMaskWarning):
        model.fit(frame, private_extremes=True)
    form = model.schema_["name"].form
    assert form["make"] == "pool"
    assert not set(form["values"]) & set(frame["name"])


@pytest.mark.parametrize(
    "change",
    [
        {"values": []},
        {"values": ["a", "a"]},
        {"values": [3]},
        {"fake": "nothing"},
        {"fake": "card"},
        {"unique": 2},
        {"seed": 0},
    ],
)
def test_stored_pools_are_checked(change):
    form = {"make": "pool", "fake": "name", "values": ["a", "b"], "unique": True}
    assert FORM_SPEC.checked("form", json.loads(json.dumps(form))) == form
    with pytest.raises(SchemaError):
        FORM_SPEC.checked("form", form | change, SchemaError)

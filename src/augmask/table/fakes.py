"""Fakes: names, addresses and the like from faker, never equal to an observed one.

`faker` is used in fitting only: a model stores the pool of fakes from which it
generates identifiers, so rows do not change with faker's version.

Candidates that occur in the table are left out of the pool. Were the pool's seed known,
what is left out would tell who is in the table. Hence the seed is derived from the
observed values as well: the same table gives the same pool, and without the whole
column nobody can draw the candidates again.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp
from statistics import median
from typing import Any

import pandas as pd

from augmask.errors import SchemaError, did_you_mean
from augmask.rng import stream_seed
from augmask.table.cells import Cells, read_cells
from augmask.table.identifiers import pool_root
from augmask.table.personal import MOST, PLURALS, faker_installed, recognised
from augmask.table.schema import Column, Schema

DEFAULT_LOCALE = "en_US"

FEWEST_FAKES, MOST_FAKES = 1024, 65_536
# Draws in a row without a new fake, after which a locale has no more.
_MOST_MISSES = 1000

# Draws of a name, of which the first that is short enough is taken.
_MOST_TITLED = 10

_COMMA = re.compile(r"[^,]+, *[^,]+")
_DOMAINS = ("com", "net", "org")


# -- the settings of a column -----------------------------------------------------


def _check_locale(name: str, locale: str) -> None:
    if not faker_installed():
        return
    from faker.config import AVAILABLE_LOCALES

    if locale not in AVAILABLE_LOCALES:
        raise SchemaError(
            f"column {name!r}: faker has no locale {locale!r}"
            + (did_you_mean(locale, AVAILABLE_LOCALES) or "; use one such as 'de_DE'")
        )


def fake_fields(
    cells: Cells, name: str, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return the fields of an identifier that say what its fakes are, and a reason.

    Examples
    --------
    >>> cells = read_cells(pd.Series(["ann@lee.org", "bo@ek.org"]), "to")
    >>> fake_fields(cells, "to", {"locale": "de_DE"})
    ({'fake': 'email', 'locale': 'de_DE'}, ', email addresses by their form')
    """
    declared, locale = settings.get("fake"), settings.get("locale")
    if declared == "nothing":
        return {"fake": "nothing"}, ""
    reason = ""
    if declared is None and cells.form == "text":
        guess = recognised(name, sorted(set(cells.observed_values.tolist())))
        declared, reason = guess or (None, "")
    if declared is None:
        if locale is not None:
            raise SchemaError(
                f"column {name!r} has a locale but is not recognised as anything that "
                "depends on it; declare fake too, e.g. 'name'"
            )
        return {}, ""
    if cells.form != "text":
        raise SchemaError(
            f"column {name!r} holds no text, and fakes are text; convert it to text, "
            f"or leave fake {declared!r} out"
        )
    if locale is not None:
        _check_locale(name, locale)
    note = f", {reason or f'declared as {PLURALS[declared]}'}"
    return {"fake": declared, "locale": locale or DEFAULT_LOCALE}, note


# -- drawing ----------------------------------------------------------------------


def _maker(fake: str, faker: Any, values: Sequence[str]) -> Callable[[], str]:
    """Return what draws one fake in the style of the observed values."""

    def share(test: Callable[[str], object]) -> float:
        return sum(bool(test(value)) for value in values) / max(len(values), 1)

    make: Callable[[], str]
    if fake == "name" and share(_COMMA.fullmatch) >= MOST:

        def make() -> str:
            return f"{faker.last_name()}, {faker.first_name()}"

    elif fake == "name":
        # without titles, unless they are usual in the table
        usual = int(median(len(value.split()) for value in values))

        def make() -> str:
            for _ in range(_MOST_TITLED):
                text = str(faker.name())
                if len(text.split()) <= max(usual, 2):
                    break
            return text

    elif fake == "phone":
        digits_only = share(str.isdigit) >= MOST

        def make() -> str:
            number = pool_root(fake, str(faker.phone_number()))
            return re.sub(r"\D", "", number) if digits_only else number

    elif fake == "address":
        joint = "\n" if share(lambda value: "\n" in value) > 0.5 else ", "

        def make() -> str:
            return joint.join(str(faker.address()).splitlines())

    elif fake == "url":

        def make() -> str:
            # names of sites that can never exist
            domain = faker.random_element(_DOMAINS)
            return f"https://www.{faker.domain_word()}.example.{domain}"

    else:
        make = {
            "first_name": faker.first_name,
            "last_name": faker.last_name,
            # addresses that can never exist
            "email": faker.ascii_safe_email,
            "street": faker.street_address,
            "city": faker.city,
            "company": faker.company,
        }[fake]
    if fake not in ("email", "url", "phone"):
        for case, test in ((str.upper, str.isupper), (str.lower, str.islower)):
            if share(test) >= MOST:
                return lambda: case(str(make()))
    return lambda: str(make())


def _same_for_readers(fake: str, text: str) -> str:
    """Return what texts that a reader takes for the same have in common.

    Whatever is appended to a fake to repeat it is left out.
    """
    root = unicodedata.normalize("NFKC", pool_root(fake, text)).casefold()
    if fake == "phone":
        return re.sub(r"\D", "", root)
    return re.sub(r"[\W_]", "", root) or root


def _pool_size(n_distinct: int, n_observed: int) -> int:
    """Return how many fakes repeat as rarely as the observed values, a power of two."""
    size = 32
    if n_distinct == n_observed:
        size, needed = FEWEST_FAKES, n_distinct
        while size < min(needed, MOST_FAKES):
            size *= 2
        return size
    most = min(4 * n_observed, MOST_FAKES)
    while size < most and size * (1 - exp(-n_observed / size)) < n_distinct:
        size *= 2
    return size


def fake_form(cells: Cells, fake: str, locale: str, seed: int) -> dict[str, Any] | None:
    """Return how fakes are made: a pool of them, none of which was observed.

    None if the locale has no fake that was not observed.
    """
    from faker import Faker

    values = cells.observed_values.tolist()
    distinct = sorted(set(values))
    observed = {_same_for_readers(fake, value) for value in distinct}
    digest = hashlib.sha256("\0".join(values).encode()).hexdigest()
    # its own source of random numbers; the global one of faker is left alone
    faker = Faker(locale, use_weighting=False)
    faker.seed_instance(stream_seed(seed, digest))
    make = _maker(fake, faker, distinct[:1000])
    size = _pool_size(len(distinct), len(values))
    pool: dict[str, str] = {}
    misses = 0
    while len(pool) < size and misses < _MOST_MISSES:
        text = make()
        key = _same_for_readers(fake, text)
        if not key or key in observed or key in pool:
            misses += 1
        else:
            pool[key], misses = text, 0
    if not pool:
        return None
    return {
        "make": "pool",
        "fake": fake,
        "values": list(pool.values()),
        "unique": len(distinct) == len(values),
    }


def with_fakes(frame: pd.DataFrame, schema: Schema, seed: int) -> Schema:
    """Return the schema with pools of fakes, where faker is installed.

    Without it, identifiers keep the form that `infer_schema` gave them.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> frame = pd.DataFrame({"to": [f"ann{i}@lee.org" for i in range(30)]})
    >>> schema = with_fakes(frame, infer_schema(frame), seed=0)
    >>> schema["to"].form["make"], schema["to"].form["unique"]
    ('pool', True)
    """
    if not faker_installed():
        return schema
    labels = {str(label): label for label in frame.columns}

    def with_pool(column: Column) -> Column:
        if column.fake in (None, "nothing"):
            return column
        cells = read_cells(frame[labels[column.name]], column.name, column.na_values)
        form = fake_form(
            cells,
            str(column.fake),
            column.locale or DEFAULT_LOCALE,
            stream_seed(seed, "fakes", column.name),
        )
        return column if form is None else replace(column, form=form)

    return Schema(tuple(with_pool(column) for column in schema))

from __future__ import annotations

import pandas as pd
import pytest

from augmask.table.infer import infer_schema
from augmask.table.personal import FAKES, recognised

GIVEN = ["Anna", "Peter", "Yusuf", "Maria", "Zeynep", "Paul", "Helen", "Igor"]
LAST = ["Berg", "O'Neil", "Müller-Lind", "de Vries", "Okafor", "Sato", "Rossi", "Lee"]
PEOPLE = [f"{first} {last}" for first in GIVEN for last in LAST]
STREETS = [f"{i} {last} Road" for i, last in enumerate(LAST * 8)]


@pytest.mark.parametrize(
    ("column", "values", "fake"),
    [
        ("name", PEOPLE, "name"),
        ("patient_name", ["Qxu Zr", "Wop Lin", "Tra Bem"], "name"),
        ("fullName", PEOPLE, "name"),
        (
            "Name",
            ["Braund, Mr. Owen Harris", 'Cumings, Mrs. John (Florence "B")'],
            "name",
        ),
        ("first_name", GIVEN, "first_name"),
        ("Vorname", GIVEN, "first_name"),
        ("surname", LAST, "last_name"),
        ("Nachname", LAST, "last_name"),
        ("name", GIVEN, "first_name"),
        ("to", ["a.b@x.org", "c+d@y.co.uk"], "email"),
        ("homepage", ["https://a.org/x?y=1", "http://b.de"], "url"),
        ("phone", ["+49 (0)30 123456", "030/1234-56", "555-012-3456 x12"], "phone"),
        ("contact_phone_number", ["(415) 555-0199", "4155550123"], "phone"),
        ("street", STREETS, "street"),
        ("home address", STREETS, "street"),
        ("address", [f"{street}, Springfield" for street in STREETS], "address"),
        (
            "Adresse",
            ["Ahornweg 5\n10115 Berlin", "Am Ring 7\n80331 München"],
            "address",
        ),
        ("Wohnort", ["Bad Ems", "Frankfurt (Oder)", "Garmisch-Partenkirchen"], "city"),
        ("employer", ["Lee & Sons", "3M", "Rossi Srl", "Sato Holdings Ltd."], None),
        ("employer", ["Lee & Sons", "Rossi Srl", "Sato Holdings Ltd."], "company"),
        # neither the name alone nor the form alone is enough
        ("name", ["Red Chair", "Oak Table", "Blue Sofa"], None),
        ("name", ["Kepler-22b", "HD 209458", "51 Peg"], None),
        ("product_name", PEOPLE, None),
        ("file name", PEOPLE, None),
        ("remark", PEOPLE, None),
        ("remark", ["+49 30 123456", "030/123456"], None),
        ("phone", ["iPhone 12", "Pixel 9"], None),
        ("ip_address", ["10.0.0.1", "10.0.0.2"], None),
        ("mac address", ["00:1b:aa:bb:cc:01", "00:1b:aa:bb:cc:02"], None),
        ("email", ["yes please", "no"], None),
        ("city", ["101", "102"], None),
        ("", PEOPLE, None),
        ("name", [], None),
    ],
)
def test_needs_the_form_and_mostly_the_name(column, values, fake):
    found = recognised(column, values)
    assert (found and found[0]) == fake


def test_a_few_other_values_do_not_hide_what_a_column_holds():
    mails = [f"u{i}@x.org" for i in range(97)]
    assert recognised("to", [*mails, "none", "-", "??"])[0] == "email"
    assert recognised("to", mails[:30] + ["none"] * 10) is None


@pytest.mark.parametrize("locale", ["en_US", "de_DE", "fr_FR", "es_ES"])
def test_what_faker_makes_of_each_kind_is_recognised(locale):
    faker = pytest.importorskip("faker").Faker(locale)
    faker.seed_instance(3)
    method = {"phone": "phone_number", "street": "street_address"}
    missed = []
    for fake in FAKES:
        values = [getattr(faker, method.get(fake, fake))() for _ in range(300)]
        found = recognised(fake, values)
        missed += [fake] if found is None or found[0] != fake else []
    assert not missed


def infer(name: str, values: list[str]):
    return infer_schema(pd.DataFrame({name: values, "x": range(len(values))}))[name]


def test_repeated_cities_companies_and_first_names_stay_categories():
    cities = [f"{a}{b}" for a in ("New ", "Old ", "Bad ") for b in LAST + GIVEN]
    assert infer("city", cities * 10).kind == "category"
    assert infer("company", [f"{name} Ltd." for name in LAST] * 30).kind == "category"
    assert infer("first_name", GIVEN * 30).kind == "category"
    # storms have the names of persons
    storms = [f"{name}{i}" for name in GIVEN for i in ("a", "e", "y", "o") * 4]
    assert infer("name", [*storms, *GIVEN] * 30).kind == "category"


def test_contacts_and_names_are_not_learned_even_if_they_repeat():
    mails = [f"user{i}@mail.org" for i in range(60)]
    column = infer("to", mails * 20)
    assert (column.kind, column.fake) == ("identifier", "email")
    assert (
        column.reason == "60 different email addresses, email addresses by their form"
    )
    assert (
        infer("phone", [f"+44 20 7946 {i:04d}" for i in range(60)] * 9).fake == "phone"
    )
    people = [f"{a} {b}" for a in GIVEN + LAST for b in LAST + GIVEN]
    assert infer("customer_name", people * 9).kind == "identifier"
    # a few desks are categories
    assert infer("desk", mails[:8] * 50).kind == "category"
    # but not if they hardly repeat
    assert infer("to", mails[:8]).kind == "identifier"

"""Personal data: what the texts of a column are, by their form and the column's name.

Only columns whose values are made anew ask for it, so a city with fifty repeated
levels stays a learned category. The exceptions are what points to a person: contacts,
names and home addresses are not learned even if they repeat, unless they are few.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from importlib.util import find_spec

PLURALS = {
    "name": "names of persons",
    "first_name": "first names",
    "last_name": "last names",
    "email": "email addresses",
    "phone": "phone numbers",
    "street": "street addresses",
    "address": "postal addresses",
    "city": "cities",
    "company": "companies",
    "url": "web addresses",
}
FAKES = tuple(PLURALS)
EXTRA = "pip install 'augmask[fakes]'"

# The share of values that must have the form.
MOST = 0.9
# With so few different values, they may be those of a few desks, agents or branches.
FEW = {"email": 20, "phone": 20}
FEW |= dict.fromkeys(("name", "first_name", "last_name", "street", "address"), 100)
_EXAMINED = 1000


def faker_installed() -> bool:
    """Whether the extra `fakes` is installed."""
    return find_spec("faker") is not None


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def words_of(name: str) -> list[str]:
    """Return the words of a column's name in lower case, without accents.

    Examples
    --------
    >>> words_of("homePhone-2"), words_of("Prénom")
    (['home', 'phone', '2'], ['prenom'])
    """
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return [word.lower() for word in _WORD.findall(plain)]


# -- by the name of the column ----------------------------------------------------


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FIRST = _set("first given fore vor firstname givenname forename vorname prenom")
_LAST = _set(
    "last sur family nach familien lastname surname familyname nachname familienname "
    "apellido apellidos cognome"
)
_PLAIN_NAME = _set("name names nombre nom nome naam navn namn fullname realname")
_PERSON = _set(
    "full real complete person people contact customer client patient employee student "
    "teacher member guest passenger author doctor physician nurse manager applicant "
    "subscriber holder player driver tenant buyer borrower beneficiary spouse mother "
    "father child parent owner user candidate participant respondent donor "
    "kunde kunden patienten mitarbeiter person completo complet"
)
_PHONE = _set(
    "phone phones telephone tel mobile cell cellphone fax telefon telefono telefone "
    "handy mobil rufnummer"
)
_STREET = _set(
    "address addr street adresse strasse str anschrift direccion endereco indirizzo "
    "rue calle"
)
_CITY = _set(
    "city town hometown birthplace ville stadt ort wohnort ciudad cidade citta"
)
_COMPANY = _set(
    "company employer organisation organization firm business firma unternehmen "
    "entreprise societe empresa vendor supplier arbeitgeber"
)


def _fake_by_name(name: str) -> tuple[str | None, bool]:
    """Return the fake that a name suggests, and whether the name alone leaves doubt."""
    words = [word for word in words_of(name) if not word.isdigit()]
    while len(words) > 1 and words[-1] in ("line", "no", "nr", "number"):
        words.pop()
    if not words:
        return None, True
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _PLAIN_NAME and before:
        matches = {
            "first_name": before in _FIRST,
            "last_name": before in _LAST,
            "name": before in _PERSON,
            "city": before in _CITY,
            "company": before in _COMPANY,
            "street": before in _STREET,
        }
        return next((fake for fake, true in matches.items() if true), None), False
    sets = {
        "first_name": _FIRST,
        "last_name": _LAST,
        "phone": _PHONE,
        "street": _STREET,
        "city": _CITY,
        "company": _COMPANY,
    }
    for fake, known in sets.items():
        # "first" and "sur" are names of persons only before "name"
        if last in known and (fake not in ("first_name", "last_name") or len(last) > 6):
            return fake, False
    if last in ("prenom", "fullname", "realname") or before + last == "fullname":
        return ("first_name" if last == "prenom" else "name"), False
    return ("name", True) if last in _PLAIN_NAME | _PERSON else (None, True)


# -- by the form of the values ----------------------------------------------------

_EMAIL = re.compile(r"[^@\s,;<>()]+@[^@\s.,;]+(\.[^@\s.,;]+)+")
_URL = re.compile(r"(https?://|www\.)[^\s/]+\.\S+", re.IGNORECASE)
_PHONE_FORM = re.compile(r"[+(]?[\d\s().\-/+]+?(\s*(x|ext\.?)\s*\d+)?", re.IGNORECASE)
# a street, and a place behind it
_TWO_LINES = re.compile(r"[^\W\d][^,\n]*[,\n]\s*\S")
_NAME_WORD = re.compile(r"[^\W\d_]+([.'’\-][^\W\d_]+)*[.]?")
_UNSPACED = re.compile("[\u3040-\u9fff\uac00-\ud7af]{2,6}")


def _is_phone(text: str) -> bool:
    number = re.split("x|ext", text.casefold())[0]
    return bool(_PHONE_FORM.fullmatch(text)) and (
        6 <= sum(char.isdigit() for char in number) <= 15
    )


def _name_words(text: str) -> list[str] | None:
    """Return the words of what may be the name of a person or a place."""
    words = re.sub(r"[(),\"]", " ", text).split()
    plain = all(_NAME_WORD.fullmatch(word) for word in words)
    return words if words and plain else None


def _is_person(text: str) -> bool:
    words = _name_words(text)
    if words is None:
        return False
    return 2 <= len(words) <= 8 or bool(_UNSPACED.fullmatch(text))


def _is_short_name(text: str) -> bool:
    words = _name_words(text)
    return words is not None and len(words) <= 3 and len(text) <= 40


def _is_place(text: str) -> bool:
    words = _name_words(text)
    return words is not None and len(words) <= 6


def _is_address(text: str) -> bool:
    letters = sum(char.isalpha() for char in text)
    several = len(text.split()) >= 2 or bool(re.search("[\u3040-\u9fff]", text))
    return letters >= 3 and several and any(char.isdigit() for char in text)


def _is_company(text: str) -> bool:
    if _EMAIL.fullmatch(text) or _URL.fullmatch(text):
        return False
    letters = sum(char.isalpha() for char in text)
    return letters > sum(char.isdigit() for char in text) and len(text.split()) <= 8


_FORMS: dict[str, tuple[Callable[[str], object], float]] = {
    "name": (_is_person, MOST),
    "first_name": (_is_short_name, MOST),
    "last_name": (_is_short_name, MOST),
    "phone": (_is_phone, MOST),
    # not every house has a number
    "street": (_is_address, 0.6),
    "city": (_is_place, MOST),
    "company": (_is_company, MOST),
}

# Frequent given names. A column called only "name" may hold names of anything; among
# those of persons, whatever the language, some of these occur.
_GIVEN = _set(
    "aaron abigail adam agnieszka ahmed aisha alain alejandro alexander ali alice "
    "amanda amit amy ana anders andrea andreas andrew angela anil ann anna anne "
    "anthony antoine antonio arthur ashley austin barbara benjamin betty birgit "
    "brandon brenda brian brigitte camille carl carlos carmen carol carolyn catherine "
    "charles charlotte cheryl chiara chloe christian christina christine christopher "
    "claude cynthia daniel david deborah debra dennis diane dieter dmitri dolores "
    "donald donna douglas edward elena elizabeth emily emma eric erik ethan evelyn "
    "fatima felix florian francesca francesco francisco francoise frank gary george "
    "gerald giovanni giulia giuseppe gloria grace gregory gunter hannah hans harold "
    "heather heinz helen helga henry hiroshi ingrid isabella isabelle ivan jack jacob "
    "jacqueline jacques james jan janet janice jason javier jean jeffrey jennifer "
    "jeremy jerry jesse jessica joan joao john jonathan jorge jose joseph joshua "
    "joyce juan judith julia julie jurgen justin karen karin katarzyna katherine "
    "kathleen kathryn katrin keith kelly kenneth kevin kimberly klaus krzysztof kyle "
    "larry lars laura lauren lawrence lea lena leo li liam linda lisa louis luc lucas "
    "lucia luigi luis lukas madison manfred manuel marco margaret maria marie mario "
    "mark markus martha mary matthew matthias max megan melissa mia michael michel "
    "michelle miguel ming mohamed mohammed monika monique nancy natalia nathalie "
    "nathan nicholas nicole noah olga oliver olivia omar pamela paolo patricia "
    "patrick paul paula paulo pedro peter petra philippe pierre pilar piotr priya "
    "rachel raj raymond rebecca renate richard robert roger ronald rosa ruth ryan "
    "sabine samantha samuel sandra sara sarah scott sean sebastian sergei sharon "
    "shirley sofia sophia stefan stephanie stephen steven sunita susan sven sylvie "
    "takashi tatiana teresa terry thomas timothy tobias tyler ursula uwe victoria "
    "virginia walter wei william wolfgang yuki zachary "
)


def _has_given_names(levels: Sequence[str]) -> bool:
    """Whether a tenth of the texts contain a frequent given name."""
    known = sum(not _GIVEN.isdisjoint(words_of(level)) for level in levels)
    return known >= 0.1 * len(levels)


def recognised(name: str, levels: Sequence[str]) -> tuple[str, str] | None:
    """Return which fake stands for the texts of a column, and why; None if none does.

    Parameters
    ----------
    name : str
        Of the column.
    levels : sequence of str
        Its distinct values.

    Examples
    --------
    >>> recognised("contact", ["ann@lee.org", "bo@ek.org"])
    ('email', 'email addresses by their form')
    >>> recognised("city", ["Paris", "Saint-Denis"])
    ('city', "cities by the column's name and their form")
    >>> recognised("name", ["Red Chair", "Oak Table"])
    """
    levels = [level.strip() for level in levels[:_EXAMINED]]
    if not levels:
        return None

    def share(test: Callable[[str], object]) -> float:
        return sum(bool(test(level)) for level in levels) / len(levels)

    for fake, form in (("email", _EMAIL), ("url", _URL)):
        if share(form.fullmatch) >= MOST:
            return fake, f"{PLURALS[fake]} by their form"
    kind, doubtful = _fake_by_name(name)
    if kind is None:
        return None
    if doubtful and not _has_given_names(levels):
        return None
    if doubtful and share(_is_person) < MOST:
        kind = "first_name"
    test, needed = _FORMS[kind]
    if share(test) < needed:
        return None
    if kind == "street" and share(_TWO_LINES.search) > 0.5:
        kind = "address"
    return kind, f"{PLURALS[kind]} by the column's name and their form"


def personal_reason(name: str, levels: Sequence[str], n_observed: int) -> str | None:
    """Return why texts point to persons, or None if they do not.

    Examples
    --------
    >>> personal_reason("to", ["ann@lee.org", "bo@ek.org", "cy@ek.org"], 4)
    '3 different email addresses'
    """
    n = len(levels)
    if n <= min(FEW.values()) and (n < 3 or n <= n_observed / 2):
        return None
    fake, _ = recognised(name, levels) or ("", "")
    few = FEW.get(fake, n)
    if fake in ("name", "first_name") and _fake_by_name(name)[1]:
        # storms have the names of persons, too
        return None
    # contacts that hardly repeat are nobody's desk
    if n > few or (fake in ("email", "phone") and n > n_observed / 2):
        return f"{n} different {PLURALS[fake]}"
    return None

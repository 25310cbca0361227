"""Formats: dates, times of day and numbers that a table writes as text.

``16/08/2021``, ``14:00``, ``$7,636``, ``€ 1.234,56`` and ``12 %`` are values. A format
says how a column spells them, so that they are learned as values and come back in the
same form. It is a pattern that a schema file can hold: ``%d/%m/%Y`` for dates and
times, as in `strftime`, and ``$#,##0`` for numbers, written as they look, with the
separators that the column uses.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
# Longer text is no date and no number.
LONGEST = 40
MAX_DECIMALS = 6
# What every float holds exactly.
EXACT_DIGITS = 15

# -- dates and times of day -------------------------------------------------------

_TOKEN = re.compile(r"%([-^]?[A-Za-z])")
_NUMERIC_FIELDS = {"d": r"\d{1,2}", "m": r"\d{1,2}", "Y": r"\d{4}", "y": r"\d{2}"}
_NUMERIC_FIELDS |= {"H": r"\d{1,2}", "I": r"\d{1,2}", "M": r"\d{2}", "S": r"\d{2}"}
_NAMED_FIELDS = {
    "b": "|".join(name[:3] for name in MONTHS),
    "B": "|".join(MONTHS),
    "p": "am|pm",
}
_MONTH_NUMBER = {name[:3].lower(): i for i, name in enumerate(MONTHS, start=1)}
_TOKENS = {
    *_NUMERIC_FIELDS,
    *(f"-{field}" for field in "dmHI"),
    *("b", "B", "^b", "^B", "p", "P"),
}


@dataclass(frozen=True)
class DateFormat:
    """How a column writes dates, times of day, or both.

    Parameters
    ----------
    pattern : str
        Fields of `strftime`: %d %m %Y %y %b %B %H %I %M %S %p; a minus, as in %-d,
        writes no leading zero, and ^, as in %^b, capital letters.

    Examples
    --------
    >>> day = DateFormat("%d/%m/%Y")
    >>> day.parse(["16/08/2021", "31/02/2021"]).tolist()
    [datetime.datetime(2021, 8, 16, 0, 0), None]
    >>> day.write(day.parse(["1/8/2021"]))
    ['01/08/2021']
    """

    pattern: str

    @cached_property
    def fields(self) -> list[str]:
        """The fields in their order, without flags."""
        return [token[-1] for token in _TOKEN.findall(self.pattern)]

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """What a cell must look like; leading zeros and capitals may differ."""
        parts, end = [], 0
        for match in _TOKEN.finditer(self.pattern):
            field = match[1][-1].replace("P", "p")
            spelled = _NUMERIC_FIELDS.get(field) or _NAMED_FIELDS[field]
            parts += [re.escape(self.pattern[end : match.start()]), f"({spelled})"]
            end = match.end()
        text = "".join(parts) + re.escape(self.pattern[end:])
        return re.compile(rf"\s*{text}\s*", re.IGNORECASE)

    @property
    def kind(self) -> str:
        """The kind of a column in this format."""
        return "datetime"

    @property
    def is_time(self) -> bool:
        """Whether the format has a time of day but no date."""
        return not {"d", "Y", "y"} & set(self.fields)

    def _instant(self, text: str) -> dt.datetime | None:
        match = self.regex.fullmatch(text)
        if match is None:
            return None
        part = dict(zip(self.fields, match.groups(), strict=True))
        year = int(part.get("Y", 1970))
        if "y" in part:
            # POSIX: 69 is 1969, 68 is 2068.
            year = int(part["y"]) + (1900 if int(part["y"]) >= 69 else 2000)
        name = part.get("b") or part.get("B")
        month = _MONTH_NUMBER[name[:3].lower()] if name else int(part.get("m", 1))
        hour = int(part.get("H", 0))
        if "I" in part:
            if not 1 <= int(part["I"]) <= 12:
                return None
            afternoon = (part.get("p") or part.get("P") or "am")[0] in "pP"
            hour = int(part["I"]) % 12 + 12 * afternoon
        minute, second = int(part.get("M", 0)), int(part.get("S", 0))
        try:
            return dt.datetime(year, month, int(part.get("d", 1)), hour, minute, second)
        except ValueError:
            return None

    def parse(self, texts: Iterable[str]) -> AnyArray:
        """Return the instants in seconds, NaT for text in another form."""
        instants = [self._instant(text) for text in texts]
        return np.array(instants, dtype="datetime64[s]")

    def write(self, values: AnyArray) -> list[str]:
        """Return instants as text."""
        written = re.split(_TOKEN, self.pattern)

        def text(instant: dt.datetime) -> str:
            return "".join(
                part if i % 2 == 0 else _written_field(part, instant)
                for i, part in enumerate(written)
            )

        return _each_once(values.astype("datetime64[s]"), text)


def _each_once(values: AnyArray, text: Callable[[Any], str]) -> list[str]:
    """Return the text of every value, made once for equal ones."""
    unique, place = np.unique(values, return_inverse=True)
    texts = [text(value) for value in unique.tolist()]
    return [texts[i] for i in place.ravel().tolist()]


def _digits_of_field(part: str, number: int) -> str:
    return str(number) if part.startswith("-") else f"{number:02}"


def _name_of_field(part: str, name: str) -> str:
    return name.upper() if part.startswith("^") else name


def _written_field(part: str, at: dt.datetime) -> str:
    """Return one field of an instant; `part` is its letter with a flag before it."""
    numbers = {"d": at.day, "m": at.month, "H": at.hour, "M": at.minute}
    numbers |= {"S": at.second, "y": at.year % 100, "I": (at.hour - 1) % 12 + 1}
    field = part[-1]
    if field in numbers:
        return _digits_of_field(part, numbers[field])
    if field == "Y":
        return f"{at.year:04}"
    if field in "pP":
        text = "PM" if at.hour >= 12 else "AM"
        return text if field == "p" else text.lower()
    month = MONTHS[at.month - 1]
    return _name_of_field(part, month if field == "B" else month[:3])


@cache
def _date_candidates() -> tuple[DateFormat, ...]:
    """Return the formats that are recognised."""
    dates = [
        order.replace(" ", mark)
        for mark in ("/", ".", "-", " ")
        for order in ("%d %m %Y", "%m %d %Y", "%Y %m %d", "%d %m %y", "%m %d %y")
    ]
    dates += [
        order.replace(" ", mark)
        for mark in (" ", "-", "/")
        for order in ("%d %b %Y", "%d %B %Y", "%d %b %y")
    ]
    dates += [f"{month} %d{mark} %Y" for month in ("%b", "%B") for mark in (",", "")]
    times = ["%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p", "%I%p"]
    marks = (" ", "T", ", ")
    joined = [
        f"{date}{mark}{time}" for date in dates for mark in marks for time in times
    ]
    return tuple(DateFormat(pattern) for pattern in (*dates, *times, *joined))


def _as_written(form: DateFormat, texts: Sequence[str]) -> DateFormat:
    """Return the format with the leading zeros and capitals of the texts."""
    cells = [match.groups() for text in texts if (match := form.regex.fullmatch(text))]
    pattern = form.pattern
    for i, field in enumerate(form.fields):
        spelled = [cell[i] for cell in cells]
        written = field
        if field in "dmHI":
            # "8" is decisive, "08" only where most small numbers are written so.
            short = sum(len(text) == 1 for text in spelled)
            zeros = sum(text.startswith("0") for text in spelled)
            written = f"-{field}" if short > zeros else field
        elif field in "bB" and all(text.isupper() for text in spelled):
            written = f"^{field}"
        elif field == "p" and all(text.islower() for text in spelled):
            written = "P"
        pattern = pattern.replace(f"%{field}", f"%{written}")
    return DateFormat(pattern)


# -- numbers ----------------------------------------------------------------------

_BLANKS = " \u00a0\u202f"
_MINUSES = ("-", "\u2212")
_MINUS = r"\-\u2212"
_BODY = re.compile(
    r"(?:#(?P<group>[,.'\u2019 \u00a0\u202f])##)?0"
    r"(?:\[(?P<mark>[.,])(?P<whole>0+)\]|(?P<point>[.,])(?P<digits>0+|#+))?"
)
_PATTERN = re.compile(
    rf"(?P<front>\u2212?)(?P<open>\(?)(?P<prefix>[^#0()\u2212]*?)(?P<inner>[{_MINUS}]?)"
    rf"(?P<body>{_BODY.pattern})(?P<suffix>[^#0\[\]()\d]*)(?P<close>\)?)"
)
_CELL = re.compile(
    rf"(?P<open>\()?(?P<sign>[+{_MINUS}])?(?P<prefix>[^\d+(){_MINUS}.,'\u2019]*)"
    rf"(?P<inner>[{_MINUS}])?"
    rf"(?P<core>\d(?:[\d.,'\u2019{_BLANKS}]*\d)?)(?P<suffix>[^\d()]*)(?P<close>\))?"
)
_CURRENCIES = (
    "USD EUR GBP JPY CHF CNY INR BRL CAD AUD SEK NOK DKK PLN CZK HUF RUB TRY KRW ZAR "
    "MXN NZD HKD SGD TWD THB IDR MYR PHP ILS AED SAR CLP COP ARS RON BGN UAH EGP NGN "
    "KR ZŁ FR FR. SFR. R RP KČ FT"
)
_GROUPINGS = ((",", "."), (".", ","), (" ", ","), (" ", "."), ("'", "."))
_UNGROUPED = (("", "."), ("", ","))


def _is_symbol(text: str) -> bool:
    """Whether a text before or after a number is a currency, a percent sign or none."""
    plain = text.strip(_BLANKS)
    if plain in ("", "%", "\u2030"):
        return True
    if plain.upper() in _CURRENCIES.split():
        # Without a blank, R1 is a code.
        return plain != text
    return len(plain) <= 3 and any(unicodedata.category(c) == "Sc" for c in plain)


def _plain_blanks(text: str) -> str:
    """Return the text with one kind of blank and of apostrophe."""
    return text.translate({0xA0: " ", 0x202F: " ", 0x2019: "'"})


@cache
def _core_regex(group: str, point: str) -> re.Pattern[str]:
    fraction = rf"(?:{re.escape(point)}\d+)?" if point else ""
    grouped = (
        rf"[1-9]\d{{0,2}}(?:{re.escape(group)}\d{{3}})+{fraction}|" if group else ""
    )
    return re.compile(rf"{grouped}\d+{fraction}")


@dataclass(frozen=True)
class NumberFormat:
    """How a column writes numbers.

    Parameters
    ----------
    pattern : str
        As numbers look: ``$#,##0`` groups thousands with commas, ``0,00`` has two
        decimals after a comma, ``0.##`` at most two, ``0[.00]`` two or none. A minus
        stands in front unless the pattern has one; parentheses mean negative.

    Examples
    --------
    >>> price = NumberFormat("€ #.##0,00")
    >>> price.parse(["€ 1.234,56", "-€ 3,50", "12 %"]).tolist()
    [1234.56, -3.5, nan]
    >>> price.write(np.array([98765.4, -0.5]))
    ['€ 98.765,40', '-€ 0,50']
    """

    pattern: str

    @cached_property
    def _parts(self) -> dict[str, str]:
        match = _PATTERN.fullmatch(self.pattern)
        assert match is not None
        return {key: text or "" for key, text in match.groupdict().items()}

    @property
    def _point(self) -> str:
        return self._parts["point"] or self._parts["mark"]

    @property
    def decimals(self) -> int:
        """The largest number of decimals that is written."""
        return len(self._parts["digits"] or self._parts["whole"])

    @property
    def kind(self) -> str:
        """The kind of a column in this format."""
        return "float" if self.decimals else "integer"

    def _number(self, text: str) -> float:
        """Return the number, NaN for text in another form."""
        match = _CELL.fullmatch(text.strip()) if len(text) <= LONGEST else None
        if match is None:
            return float("nan")
        parts = self._parts
        for end in ("prefix", "suffix"):
            if match[end].strip(_BLANKS) not in ("", parts[end].strip(_BLANKS)):
                return float("nan")
        brackets = bool(match["open"]), bool(match["close"])
        if brackets[0] != brackets[1] or (brackets[0] and not parts["open"]):
            return float("nan")
        # A number without its decimals is one, too; without a point nothing is.
        group = _plain_blanks(parts["group"])
        core = _plain_blanks(match["core"])
        if _core_regex(group, self._point).fullmatch(core) is None:
            return float("nan")
        core = core.replace(group, "") if group else core
        value = float(core.replace(self._point, ".") if self._point else core)
        signs = (match["sign"] or "") + (match["inner"] or "")
        return -value if brackets[0] or set(signs) & set(_MINUSES) else value

    def parse(self, texts: Iterable[str]) -> AnyArray:
        """Return the numbers, NaN for text in another form."""
        return np.array([self._number(text) for text in texts], dtype=np.float64)

    def _digits(self, value: float) -> str:
        """Return a number that is not negative, without symbols."""
        parts = self._parts
        whole, _, fraction = f"{value:.{self.decimals}f}".partition(".")
        if "#" in parts["digits"] or (parts["whole"] and not fraction.strip("0")):
            fraction = fraction.rstrip("0")
        grouped = f"{int(whole):,}".replace(",", parts["group"])
        return grouped + (self._point + fraction if fraction else "")

    def _text(self, value: float) -> str:
        parts = self._parts
        digits = self._digits(abs(value))
        negative = value < 0 and any(c in "123456789" for c in digits)
        if parts["open"] and not negative:
            return parts["prefix"] + digits + parts["suffix"]
        if parts["open"]:
            return f"({parts['prefix']}{digits}{parts['suffix']})"
        front = inner = ""
        if negative:
            inner = parts["inner"]
            front = "" if inner else parts["front"] or "-"
        return front + parts["prefix"] + inner + digits + parts["suffix"]

    def write(self, values: AnyArray) -> list[str]:
        """Return numbers as text."""
        return _each_once(values, self._text)


Format = DateFormat | NumberFormat


def is_pattern(pattern: str) -> bool:
    """Whether a text is the pattern of a format.

    Examples
    --------
    >>> is_pattern("%d.%m.%Y"), is_pattern("0 %"), is_pattern("%d of"), is_pattern("x")
    (True, True, False, False)
    """
    tokens = _TOKEN.findall(pattern)
    if not tokens:
        return _PATTERN.fullmatch(pattern) is not None and (
            pattern.count("(") == pattern.count(")")
        )
    fields = [token[-1].upper() if token[-1] in "pP" else token[-1] for token in tokens]
    month = {"m", "b", "B"} & set(fields)
    date = bool(month) and "d" in fields and bool({"Y", "y"} & set(fields))
    partial = {"m", "b", "B", "d", "Y", "y"} & set(fields)
    return (
        set(tokens) <= _TOKENS
        and "%" not in _TOKEN.sub("", pattern)
        and len(set(fields)) == len(fields)
        and len(month) <= 1
        and not {"Y", "y"} <= set(fields)
        and not {"H", "I"} <= set(fields)
        and (date or (not partial and bool({"H", "I"} & set(fields))))
    )


@cache
def read_format(pattern: str) -> Format:
    """Return the format of a pattern for which `is_pattern` is true."""
    return (DateFormat if _TOKEN.search(pattern) else NumberFormat)(pattern)


# -- recognition ------------------------------------------------------------------


class Recognised(NamedTuple):
    """A format that all texts of a column have.

    `other` is a pattern that fits as well and would give other values, or None; `told`
    says in words how the texts were read.
    """

    format: Format
    other: Format | None = None
    told: str = ""


def _recognise_date(texts: Sequence[str]) -> Recognised | None:
    first = texts[0]
    forms = [form for form in _date_candidates() if form.regex.fullmatch(first)]
    forms = [form for form in forms if not np.isnat(form.parse(texts)).any()]
    if not forms:
        return None
    best, *others = forms
    if others and "b" in best.fields + others[0].fields:
        # A column of May dates: the short and the full name are the same.
        others = []
    if others and best.pattern[2] == ".":
        # Dots are written where the day comes first.
        others = []
    short = _as_written(best, texts).pattern
    version = not {"/", "b", "B"} & {*short, *best.fields} and "%-" in short
    if "y" in best.fields and (others or version):
        # Neither the order nor the century is written, or it may be a version 1.2.10.
        return None
    other = _as_written(others[0], texts) if others else None
    told = ""
    if other is not None:
        told = "day or month first, no date tells"
    elif "y" in best.fields:
        told = "two digits of a year mean 1969 to 2068"
    return Recognised(_as_written(best, texts), other, told)


def _most_common(texts: Iterable[str]) -> str:
    return Counter(texts).most_common(1)[0][0]


def _decimal_pattern(cores: Sequence[str], point: str) -> str:
    """Return the decimals of a pattern as the numbers have them."""
    fractions = [core.partition(point)[2] for core in cores if point in core]
    if not fractions:
        return ""
    lengths = {len(fraction) for fraction in fractions}
    longest = max(lengths)
    if len(lengths) == 1 and len(fractions) == len(cores):
        return point + "0" * longest
    if len(lengths) == 1 and longest > 1:
        return f"[{point}{'0' * longest}]"
    return point + "#" * longest


def _recognise_number(texts: Sequence[str]) -> Recognised | None:
    cells = []
    for text in texts:
        match = _CELL.fullmatch(text.strip()) if len(text) <= LONGEST else None
        if match is None or not (
            _is_symbol(match["prefix"]) and _is_symbol(match["suffix"])
        ):
            return None
        cells.append(match)
    affixes = {(c["prefix"].strip(_BLANKS), c["suffix"].strip(_BLANKS)) for c in cells}
    if len(affixes) > 1 or all(next(iter(affixes))):
        return None
    prefix = _most_common(cell["prefix"] for cell in cells)
    suffix = _most_common(cell["suffix"] for cell in cells)
    raw = [cell["core"] for cell in cells]
    if max(sum(map(str.isdigit, core)) for core in raw) > EXACT_DIGITS:
        return None
    cores = [_plain_blanks(core) for core in raw]
    grouped = {
        (group, point): all(map(_core_regex(group, point).fullmatch, cores))
        and any(group in core for core in cores)
        for group, point in _GROUPINGS
    }
    plain = {
        (group, point): all(map(_core_regex(group, point).fullmatch, cores))
        for group, point in _UNGROUPED
    }
    readings = [pair for pair, fits in (grouped | plain).items() if fits]
    if not readings:
        return None
    # Money has no three decimals, other numbers do: 1.234 is a little more than one.
    money = bool((prefix + suffix).strip(_BLANKS)) and "%" not in suffix
    best = readings[0]
    if best == (".", ",") and ("", ".") in readings and not money:
        best = ("", ".")
    rest = [pair for pair in readings if pair != best and pair[1] != best[1]]
    group, point = best
    certain = money or not rest or all(core.isdigit() for core in cores)
    if not group and not prefix.strip(_BLANKS) and not suffix.strip(_BLANKS):
        signs = any(c["open"] or c["sign"] == "\u2212" for c in cells)
        if not signs and not any(point in core for core in cores if point == ","):
            # Plain numbers need no format.
            return None
    form = _number_pattern(cells, raw, cores, (group, point), prefix, suffix)
    if form is None:
        return None
    other = None
    if not certain:
        other = _number_pattern(cells, raw, cores, rest[0], prefix, suffix)
        if other and np.array_equal(other.parse(texts), form.parse(texts)):
            other = None
    told = "a mark may group thousands or precede decimals" if other else ""
    if not group and point == "," and not told:
        told = "with a decimal comma"
    return Recognised(form, other, told)


def _number_pattern(
    cells: Sequence[re.Match[str]],
    raw: Sequence[str],
    cores: Sequence[str],
    separators: tuple[str, str],
    prefix: str,
    suffix: str,
) -> NumberFormat | None:
    """Return the format of cells with these separators of thousands and decimals."""
    group, point = separators
    written = ""
    if group:
        # As it was spelled: there are several blanks and apostrophes.
        spelled = [
            text[i]
            for text, core in zip(raw, cores, strict=True)
            for i, char in enumerate(core)
            if char == group
        ]
        written = f"#{_most_common(spelled)}##" if spelled else ""
    body = f"{written}0{_decimal_pattern(cores, point)}"
    negative = [cell for cell in cells if cell["open"] or cell["sign"] or cell["inner"]]
    minus = (
        _most_common(
            [
                "(" if c["open"] else "inner" if c["inner"] else c["sign"]
                for c in negative
            ]
        )
        if negative
        else "-"
    )
    if minus == "+" or any((c["open"] is None) != (c["close"] is None) for c in cells):
        return None
    if minus == "(":
        return NumberFormat(f"({prefix}{body}{suffix})")
    if minus == "inner":
        mark = _most_common(cell["inner"] for cell in negative if cell["inner"])
        return NumberFormat(f"{prefix}{mark}{body}{suffix}")
    front = "\u2212" if minus == "\u2212" else ""
    return NumberFormat(f"{front}{prefix}{body}{suffix}")


def recognise(texts: Sequence[str]) -> Recognised | None:
    """Return the format that all texts share, None if they share none.

    Examples
    --------
    >>> recognise(["16/08/2021", "01/02/2020"]).format
    DateFormat(pattern='%d/%m/%Y')
    >>> recognise(["$7,636", "$12"]).format
    NumberFormat(pattern='$#,##0')
    >>> recognise(["1,234", "2,345"]).other
    NumberFormat(pattern='0,000')
    >>> recognise(["16/08/2021", "soon"]) is None
    True
    """
    if not len(texts) or len(texts[0]) > LONGEST:
        return None
    if not any(char.isdigit() for char in texts[0]):
        return None
    best = _recognise_date(texts) or _recognise_number(texts)
    decimals = getattr(best.format, "decimals", 0) if best else 0
    if best is None or decimals > MAX_DECIMALS or not is_pattern(best.format.pattern):
        return None
    values = best.format.parse(texts)
    if np.isnan(values.astype(np.float64)).any():
        return None
    # Leading zeros and capitals may vary a little; most must come back as they were.
    same = sum(
        a == b.strip() for a, b in zip(best.format.write(values), texts, strict=True)
    )
    return best if 2 * same >= len(texts) else None

r"""Normalization of mathematical answers as text: removal of meaningless differences in spelling, distinction of words
and units from variables, and comparison as text. `math_worker` parses the results.

The worker loads only this file, so it imports nothing but the standard library."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

WORD_LETTERS = 4
"""Minimum number of letters without markup that count as a word, not a product, so that `east` is not `seat`."""

SHORT_WORD_LETTERS = 3
"""Minimum number of letters of a word after the number in an answer, if the expected answer is a number."""


def _listed(names: str) -> frozenset[str]:
    return frozenset(names.split())


_CHARACTERS = str.maketrans(
    dict.fromkeys("−‐‑‒–—﹣-", "-")
    | {
        "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "×": r"\times ", "·": r"\cdot ", "÷": "/",
        "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "±": r"\pm ", "°": r"^\circ ",
        "²": "^{2}", "³": "^{3}", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "≠": r"\ne ",
        "√": r"\sqrt ", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "≈": r"\approx ",
    }
)  # fmt: skip
_WRAPPED = re.compile(r"\A(?:\$\$(?P<d>.+)\$\$|\$(?P<s>[^$]+)\$|\\\((?P<p>.+)\\\)|\\\[(?P<b>.+)\\\])\Z", re.DOTALL)
_TRAILING = re.compile(r"(?:\\\\|[.,;:\s])+\Z")
_LEADING = re.compile(r"\A\s*\\(?:approx|simeq|sim)(?![A-Za-z])")
_SPACING = re.compile(r"(?<!\\)\\(?:!\s*|[,;: ]|q?quad(?![A-Za-z])|(?:thin|med|thick)space(?![A-Za-z]))|~")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d])")
_MIXED = re.compile(r"(?<![\d.,/^_])(\d+) +(\d+) ?/ ?(\d+)(?![\d.])")
_BARE_ARGUMENTS = re.compile(r"\\([dt]?frac|binom) *(\d) *(\d)(?!\d)")
_EXPONENT = re.compile(r"(?<=\d)[eE]([-+]?\d{1,4})(?![\w{])")
_REPEATING = re.compile(r"(?<![\d.])(\d{0,30})\.(\d{0,30})\\overline\s*\{(\d{1,30})\}")
_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")

_MARK = r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf|sf)|mbox|operatorname)\s*"
_MARKED = re.compile(_MARK + r"\{([^{}]*)\}")
_MARKED_NUMBER = re.compile(r"\A" + _MARK + r"\{([^{}]*\d[^{}]*)\}\.?\Z")
_SPELLED = re.compile(rf"\A(?:{_MARK}\{{)?\s*([A-Za-z][A-Za-z ,'-]*)\}}?\Z")
_NO_WORDS = {"inf", "infinity"}
_SPACE = re.compile(r"(?<=(.))\s+(?=(.))")
_LETTERS = re.compile(r"\\?[A-Za-z]{2,}")

_FUNCTIONS = _listed(
    "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan asin acos atan log exp sqrt cbrt root abs max "
    "min sup inf lim mod gcd lcm det dim ker arg floor ceil sgn sign sum prod cis infinity phi tau alpha beta gamma "
    "delta theta lambda omega sigma epsilon percent percentage pct"
)
"""Names of functions and constants in formulas, which are not taken for ordinary words."""
_COUNTING = _listed(
    "zero one two three four five six seven eight nine ten eleven twelve twenty hundred hundreds thousand thousands "
    "million millions billion billions trillion trillions dozen dozens score half halves third thirds quarter quarters "
    "fourth fourths fifth fifths sixth sixths seventh sevenths eighth eighths ninth ninths tenth tenths hundredth "
    "hundredths thousandth thousandths plus minus times over divided squared cubed factorial choose base binary octal "
    "decimal hexadecimal and not nor never wrong incorrect false"
)
"""Words that change the meaning of the number before them."""
_SHORT_WORDS = frozenset(("sq", "cu", "of", "per"))

_CLEAR_UNITS = (
    r"feet|foot|ft|inch(?:es)?|miles?|yards?|yds?|[ckm]m|kg|lbs?|oz|pounds?|ounces?|(?:kilo)?grams?|tons?|acres?|"
    r"(?:kilo|centi|milli)?(?:meters?|metres?)|lit(?:er|re)s?|gallons?|secs?|seconds?|mins?|minutes?|hrs?|hours?|days?|"
    r"weeks?|months?|years?|yrs?|dollars?|cents?|deg|degrees?|units?|mph|km/h|kmh|kph"
)
_LETTER_UNITS = r"m|g|s|h|l|L|in|mi|mg|ms"
"""Units that could also be variables."""
_UNIT = rf"(?:{_CLEAR_UNITS}|{_LETTER_UNITS})(?![A-Za-z])"
_UNIT_TAIL = re.compile(
    rf"(?P<gap>\s*)(?<![A-Za-z\\])(?:(?:sq|square|cu|cubic)\b\.?\s*)?(?:(?P<letter>{_LETTER_UNITS})|{_CLEAR_UNITS})"
    rf"(?![A-Za-z])(?P<per>\s*(?:/|\bper\b)\s*{_UNIT})?(?:\s*\^\s*\{{?[23]\}}?)?\s*\Z"
)
_MARKED_TAIL = re.compile(rf"\s*(?:{_MARK}\{{[^{{}}]*\}}\s*/\s*)?{_MARK}\{{([^{{}}]*)\}}(?:\s*\^\s*\{{?[23]\}}?)?\s*\Z")
_WORD_TAIL = re.compile(r"(?<=[\d}%]) +([A-Za-z][A-Za-z. '-]*)\Z")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th|\^\s*\{?\s*\\text\s*\{\s*(?:st|nd|rd|th)\s*\}\s*\}?)\Z")
_TEMPERATURE = re.compile(r"(?<=\\circ)\}?\s*(?:C|F)\Z")
_NAMED = re.compile(r"\A[A-Za-z](?:_\{?\w{1,20}\}?)?\s*=\s*")
_NUMERAL = re.compile(
    r"(?=[^\d]{0,20}\d)[-+]?\s*(?:\\?\$)?\s*[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)?\s*"
    r"(?:\\[dt]?frac\{\d+\}\s*\{\d+\}|/ ?\d+)?"
    r"(?:\s*\^\s*(?:\\circ|\{\\circ\})|\s*\\?%)?\s*"
)
_CONSTANT = re.compile(
    r"(?:\\(?:[dtc]?frac|sqrt|pi|cdot|times|left|right|pm|circ)(?![A-Za-z])|\\[$%]|[^A-Za-z\\,;=<>])+"
)
_OPEN_ENDED = re.compile(r"(?:[-+*/^_=<>(\[{,;:|&]|\\(?!pi|circ|infty|%)[A-Za-z]+)\s*\Z")
"""Pattern of text that ends with an operator or command. Letters after it are an operand and not a unit."""

_NAMES = r"text\w*|math\w*|mbox|operatorname|begin|end|hat|vec|bar|overline|overrightarrow|tilde|widehat"
_IMAGINARY = re.compile(
    rf"(?P<marked>\\(?:text(?:rm)?|math(?:rm|sf))\s*\{{\s*i\s*\}}|\\imath(?![A-Za-z]))|"
    rf"\\(?:{_NAMES})(?![A-Za-z])\s*(?:\{{[^{{}}]*\}})?|\\[A-Za-z]+|"
    r"(?<![A-Za-z])(?:inf(?:inity)?|(?:arc)?sinh?|lim|min)(?![a-z])|(?P<bare>[iI])(?P<power>\s*\^)?"
)
_SUBSCRIPT = re.compile(r"_\s*(?:\{([^{}]*)\}|([A-Za-z]))")
_COUNTED = re.compile(
    r"(?<![A-Za-z\\])di(?![A-Za-z])|(?:\A|[,;])\s*i\s*=|"
    r"(?<![A-Za-z\\])i\s*(?:[<>]|\\(?:le|ge|leq|geq|lt|gt|ne|in|to)(?![A-Za-z]))|"
    r"(?:[<>]|\\(?:le|ge|leq|geq|lt|gt)(?![A-Za-z]))\s*i(?![A-Za-z])"
)
"""Pattern of `i` as the variable of an integral, an equation or an inequality."""


def plain(text: str) -> str:
    """Remove the parts of an answer that have no meaning: delimiters, spacing, typographic characters, a final full
    stop."""
    text = "".join(str(unicodedata.decimal(c, c)) if not c.isascii() else c for c in text.translate(_CHARACTERS))
    text = text.strip()
    while found := _WRAPPED.match(text):
        text = next(part for part in found.groups() if part is not None).strip()
    text = _SPACING.sub(lambda m: "" if m[0][:2] == "\\!" else " ", text)
    text = " ".join(text.split())
    text = _MARKED_NUMBER.sub(lambda m: m[1], text)
    text = _TRAILING.sub("", _LEADING.sub("", text)).strip()
    text = _THOUSANDS.sub(lambda m: m[0].replace(" ", ""), text.replace("{,}", ","))
    text = _BARE_ARGUMENTS.sub(r"\\\1{\2}{\3}", text)
    text = _REPEATING.sub(_fraction, text)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    text = _EXPONENT.sub(r"\\times 10^{\1}", text)
    return _PI.sub(r"\\pi ", text.replace("\\varnothing", "\\emptyset")).strip()


def squeezed(text: str) -> str:
    """Remove insignificant whitespace. Whitespace is kept between letters and digits (`1 1/2` is not `11/2`) and next
    to a comma or point between digits (`1, 234` is not `1,234`)."""
    return _SPACE.sub(lambda m: " " if _is_significant(m[1], m[2]) else "", text.strip())


def _is_significant(before: str, after: str) -> bool:
    """Return whether whitespace between two characters has a meaning."""
    both = before.isalnum() and after.isalnum()
    return both or (before in ",." and after.isdigit()) or (before.isdigit() and after in ",.")


def same_text(first: str, second: str) -> bool:
    r"""Return whether two normalized answers are equal, apart from text markup and the case of words."""
    return _unmarked(first) == _unmarked(second)


def _unmarked(text: str) -> str:
    """Remove text markup, and convert words to lower case."""
    bare = _MARKED.sub(lambda m: m[1], text)
    return squeezed(_LETTERS.sub(lambda m: m[0] if m[0][0] == "\\" else m[0].lower(), bare)).rstrip(".")


def spelled(text: str) -> str | None:
    """Normalize text that consists of words only; return None for any other text."""
    found = _SPELLED.match(text)
    return " ".join(found[1].lower().split()) if found else None


def words(text: str) -> str | None:
    """Normalize text that consists of words: letters marked as text, or too many letters to be a product of variables.
    Return None for any other text."""
    said = spelled(text)
    if said is None or len(said) == 1 or said in _NO_WORDS:
        return None
    bare = said.replace(" ", "").isalpha() and max(map(len, said.split())) >= WORD_LETTERS
    return said if "\\" in text or bare else None


def is_prose(text: str) -> bool:
    """Return whether text contains words that do not belong to a formula, so that it can only be compared as text."""
    bare = re.sub(rf"\\(?:{_NAMES})(?![A-Za-z])\s*\{{[^{{}}]*\}}|\\[A-Za-z]+", "\\\\", text)
    found = re.findall(r"(?:(?<=\s)|(?<=\A))[A-Za-z]+(?=[\s,.:;]|\Z)", bare)
    return any(len(word) >= WORD_LETTERS and word.lower() not in _FUNCTIONS and not _is_product(word) for word in found)


def is_numeral(text: str) -> bool:
    """Return whether a normalized answer is one number, optionally with a name: `12`, `x = -1/2`, `$3.50`."""
    return _NUMERAL.fullmatch(_NAMED.sub("", text)) is not None


def without_unit(text: str, number_expected: bool) -> str:
    r"""Remove the unit or the counted things (`12 apples`) at the end of an answer.

    Letters are removed only if they cannot be variables: if they are marked as text, or if everything before them is
    one number. `4 \pi h` and `x + 2 m` are not changed.

    Args:
        text: Text that `plain` returned.
        number_expected: Whether the expected answer is one number, so that letters after a number are not a product.
    """
    for head in (_before_marked(text), _before_unit(text, number_expected), _before_words(text, number_expected)):
        if head is not None:
            return head
    short = _ORDINAL.sub("", text)
    short = short if is_numeral(short) else text
    return _TEMPERATURE.sub(lambda m: "}" if "}" in m[0] else "", short)


def _before_marked(text: str) -> str | None:
    """Return the part of an answer before a unit that is marked as text; None if there is no such unit."""
    found = _MARKED_TAIL.search(text)
    if found is None:
        return None
    head, said = text[: found.start()].rstrip(), found[1].strip()
    if not head or _OPEN_ENDED.search(head) or said in ("i", "e") or any(map(str.isdigit, said)):
        return None
    if said[0:1] != "(" and {word.lower() for word in re.findall("[A-Za-z]+", said)} & (
        _COUNTING | _FUNCTIONS - {"min", "sec"} | {"or"}
    ):
        return None
    return head if len(said) > 1 or _is_constant(head) else None


def _before_unit(text: str, number_expected: bool) -> str | None:
    """Return the part of an answer before a known unit such as `cm`; None if there is no such unit."""
    found = _UNIT_TAIL.search(text)
    if found is None:
        return None
    head = text[: found.start()]
    if not found["letter"]:
        return head if _is_constant(head) else None
    return head if is_numeral(head) and (found["gap"] or found["per"] or number_expected) else None


def _before_words(text: str, number_expected: bool) -> str | None:
    """Return the number before counted things such as `12 apples`; None if there are no such words."""
    found = _WORD_TAIL.search(text)
    if found is None or not is_numeral(text[: found.start()]):
        return None
    least = SHORT_WORD_LETTERS if number_expected else WORD_LETTERS
    said = [word.strip(".'-").lower() for word in found[1].split()]
    fine = all(_is_word(word, least) for word in said) and max(map(len, said)) >= least
    return text[: found.start()] if fine else None


def _is_word(word: str, least: int) -> bool:
    """Return whether the letters after a number are a known unit, or a word of at least `least` letters."""
    if word in _SHORT_WORDS or re.fullmatch(_CLEAR_UNITS, word):
        return True
    return len(word) >= least and word not in _COUNTING | _FUNCTIONS | {"pi"} and not _is_product(word)


def _is_product(word: str) -> bool:
    """Return whether letters are probably a product of variables and not a word: they are in alphabetical order or have
    no vowel, like `abc` or `xyz`."""
    return all(first < second for first, second in pairwise(word)) or not set(word) & set("aeiouy")


def _is_constant(text: str) -> bool:
    """Return whether text is a number or a formula without variables, optionally with a name (`x = …`)."""
    value = _NAMED.sub("", text)
    return _CONSTANT.fullmatch(value) is not None and ("\\pi" in value or any(map(str.isdigit, value)))


def i_is_variable(text: str) -> bool:
    """Return whether `i` is a variable here: in a subscript, under a sum, or on the left of an equation."""
    indices = (re.sub(r"\\[A-Za-z]+", "", found[1] or found[2]) for found in _SUBSCRIPT.finditer(text))
    return any("i" in index for index in indices) or _COUNTED.search(text) is not None


def with_imaginary(text: str, lower: bool) -> str:
    """Write the imaginary unit in the form that the grammar expects: `I`, or `{I}` before an exponent, since the
    grammar ignores `I` there.

    Args:
        text: Text that `plain` returned.
        lower: Whether `i` is also the imaginary unit.
    """

    def written(found: re.Match[str]) -> str:
        if not found["bare"]:
            return " I" if found["marked"] and lower else found[0]
        if found["bare"] == "i" and not lower:
            return found[0]
        return f"{{I}}{found['power']}" if found["power"] else "I"

    return _IMAGINARY.sub(written, text)


def _fraction(found: re.Match[str]) -> str:
    """Convert a repeating decimal to a fraction."""
    whole, fixed, repeated = found.groups()
    value = int(whole + fixed + repeated) - int(whole + fixed or "0")
    return rf"\frac{{{value}}}{{{10 ** len(fixed) * (10 ** len(repeated) - 1)}}}"

r"""A table of models × environments as LaTeX with booktabs, and escaping of text for LaTeX. The result compiles with
pdfLaTeX, XeLaTeX and LuaLaTeX; pdfLaTeX prints characters that it lacks as code points such as `U+6A21`."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from harness.core.redact import redactor
from harness.report.numerals import NONE
from harness.report.paper_tables.cells import ResultTable
from harness.report.paper_tables.footnotes import EQUALITY, SIGNS, cell_notes, footnotes
from harness.report.paper_tables.layout import Shown, layout_of, shown_rate
from harness.report.text import clean
from harness.stats.intervals import Estimate

LABEL = 120
"""Maximum characters of a name in the table."""

SENTENCE = 2000
"""Maximum characters of a footnote."""

ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\char34{}", "`": r"\char96{}", "[": r"{[}", "]": r"{]}",
    "*": r"{*}", "\u00a0": "~", "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "œ": r"\oe{}",
    "Œ": r"\OE{}", "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "·": r"$\cdot$", "×": r"$\times$", "±": r"$\pm$",
    "≠": r"$\neq$",
    "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\rightarrow$", "←": r"$\leftarrow$", "∞": r"$\infty$", "−": r"$-$",
    "µ": r"$\mu$", "°": r"$^{\circ}$", "²": r"$^{2}$", "³": r"$^{3}$", "†": r"$\dagger$", "‡": r"$\ddagger$",
    "–": r"\textendash{}", "—": r"\textemdash{}", "…": r"\ldots{}", "‘": r"`{}", "’": r"'{}", "“": r"``{}",
    "”": r"''{}",
}  # fmt: skip
"""LaTeX code for characters that are special in LaTeX or missing from some engine. The `{}` after quotes and hyphens
prevents ligatures."""

ACCENTS = {
    "\u0300": r"\`", "\u0301": r"\'", "\u0302": r"\^", "\u0303": r"\~", "\u0304": r"\=", "\u0306": r"\u",
    "\u0307": r"\.", "\u0308": r'\"', "\u030a": r"\r", "\u030b": r"\H", "\u030c": r"\v", "\u0327": r"\c",
}  # fmt: skip
"""LaTeX accents, by combining character."""

_GREEK_NAMES = (
    r"\alpha \beta \gamma \delta \varepsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi \pi \rho \sigma \tau "
    r"\upsilon \varphi \chi \psi \omega \Gamma \Delta \Theta \Lambda \Xi \Pi \Sigma \Phi \Psi \Omega"
)

GREEK = {
    letter: f"${name}$" for letter, name in zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ", _GREEK_NAMES.split(), strict=True)
}
"""LaTeX for Greek letters."""

SIGN_CODES = {SIGNS["tied"]: r"\dagger", SIGNS["better"]: r"\ddagger", EQUALITY["different"]: r"\neq"}
"""LaTeX code of signs, in a formula."""

OTHER = r"\providecommand{\benchchar}[2]{\ifdefined\XeTeXversion#1\else\ifdefined\directlua#1\else#2\fi\fi}"
"""Definition of a LaTeX command that prints a character if the engine supports it, else its code point."""


def latex_table(table: ResultTable) -> str:
    """The table with its footnotes as a LaTeX `table` environment, for `\\input`. It needs the package booktabs."""
    layout = layout_of(table)
    head = " & ".join(map(latex_text, [layout.corner, *layout.columns]))
    lines: list[str] = []
    for name, cells in layout.rows:
        lines.append(f"    {latex_text(name)} & {' & '.join(map(_mean, cells))} \\\\")
        if any(cell.interval or cell.places for cell in cells):
            lines.append(f"    & {' & '.join(map(_interval, cells))} \\\\")
    notes = [f"$^{{\\mathrm{{{letter}}}}}$ {_sentence(words)}" for letter, words in cell_notes(table).values()]
    notes += map(_sentence, footnotes(table))
    body = [
        r"\begin{table}[htbp]",
        r"  \centering",
        f"  \\caption{{{latex_text(table.title)}}}",
        r"  \label{tab:bench}",
        r"  \small",
        r"  \setlength{\tabcolsep}{4pt}",
        f"  \\begin{{tabular}}{{l{'c' * len(layout.columns)}}}",
        r"    \toprule",
        f"    {head} \\\\",
        r"    \midrule",
        *lines,
        r"    \bottomrule",
        r"  \end{tabular}",
        *_attempts(table),
        r"  \par\medskip",
        r"  \begin{minipage}{\linewidth}\footnotesize\raggedright",
        *(f"    {each}\\par" for each in notes),
        r"  \end{minipage}",
        r"\end{table}",
    ]
    return "\n".join([*_preamble(body, table), *body]) + "\n"


def _attempts(table: ResultTable) -> list[str]:
    """Lines of a second table, with pass@k and pass^k of each run; empty without a k above 1."""
    names = list(dict.fromkeys(name for cell in table.ordered for name in cell.attempts))
    if not any(name != "pass@1" for name in names):
        return []
    several = len(table.environments) > 1
    lines: list[str] = []
    for cell in table.ordered:
        label = f"{cell.row}, {cell.environment}" if several else cell.row
        shown = [shown_rate(cell.attempts.get(name, Estimate())) for name in names]
        lines.append(f"    {latex_text(label)} & {' & '.join(map(_mean, shown))} \\\\")
        lines.append(f"    & {' & '.join(map(_interval, shown))} \\\\")
    return [
        r"  \par\medskip",
        f"  \\begin{{tabular}}{{l{'c' * len(names)}}}",
        r"    \toprule",
        f"    {' & '.join(map(latex_text, ['model', *names]))} \\\\",
        r"    \midrule",
        *lines,
        r"    \bottomrule",
        r"  \end{tabular}",
    ]


def _preamble(body: Iterable[str], table: ResultTable) -> list[str]:
    runs = ", ".join(dict.fromkeys(clean(cell.entry.id, LABEL) for cell in table.ordered))
    lines = [
        r"% Made by bench. Needs \usepackage{booktabs}; include it with \input.",
        f"% Runs: {runs}",
    ]
    if any(r"\benchchar" in line for line in body):
        lines += [
            "% pdfLaTeX prints some characters as code points; XeLaTeX and LuaLaTeX need a font with them.",
            OTHER,
        ]
    return lines


def latex_text(value: str, limit: int = LABEL) -> str:
    """Escape untrusted text for LaTeX, as one line; known secrets are removed."""
    words = unicodedata.normalize("NFC", redactor.text(clean(value, limit), patterns=False))
    return "".join(map(_character, words)).replace("--", "-{}-").replace("--", "-{}-")  # no dashes of two hyphens


def _character(character: str) -> str:
    if (known := ESCAPES.get(character) or GREEK.get(character)) is not None:
        return known
    if character.isascii():
        return character
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[0].isascii() and parts[0].isalpha() and parts[1] in ACCENTS:
        letter = {"i": r"\i", "j": r"\j"}.get(parts[0], parts[0])
        return f"{ACCENTS[parts[1]]}{{{letter}}}"
    return rf"\benchchar{{{character}}}{{U+{ord(character):04X}}}"


def _sentence(words: str) -> str:
    return latex_text(words, SENTENCE)


def _mean(shown: Shown) -> str:
    number = _number(shown.mean)
    mean = rf"\textbf{{{number}}}" if shown.is_best else number
    signs = [SIGN_CODES.get(sign, sign) for sign in shown.sign]
    signs += [rf"\mathrm{{{shown.letter}}}"] if shown.letter else []
    above = r"\,".join(sign for sign in signs if sign)
    return f"{mean}$^{{{above}}}$" if above else mean


def _interval(shown: Shown) -> str:
    words = " ".join(
        part for part in (_number(shown.interval) if shown.interval else "", latex_text(shown.places)) if part
    )
    return rf"{{\scriptsize {words}}}" if words else ""


def _number(words: str) -> str:
    return "--" if words == NONE else words.replace("-", "$-$")

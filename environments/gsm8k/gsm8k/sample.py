"""Grade-school word problems that ship with the package. Owns their templates; reads no file and asks no network.

Every problem is a function of its index alone, so the set is the same on every machine, and a longer set begins with
the shorter one. Worked answers follow GSM8K's notation: `<<4*6=24>>` beside each step, `#### 24` at the end. A test
recomputes every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TypeAlias

SIZE = 200
"""Enough for a standard error of about 0.035 at 50 % accuracy; small enough to finish in seconds."""

Problem: TypeAlias = "tuple[str, list[str]]"
"""A question and the sentences that solve it; the last sentence's result is the answer."""

PEOPLE = (
    ("Amara", "she", "her"), ("Ben", "he", "his"), ("Chiara", "she", "her"), ("Diego", "he", "his"),
    ("Elif", "she", "her"), ("Farid", "he", "his"), ("Grace", "she", "her"), ("Hiro", "he", "his"),
    ("Ingrid", "she", "her"), ("Jonas", "he", "his"), ("Kavya", "she", "her"), ("Liam", "he", "his"),
    ("Mei", "she", "her"), ("Noah", "he", "his"), ("Olga", "she", "her"), ("Pablo", "he", "his"),
)  # fmt: skip
"""Name, subject pronoun, possessive pronoun."""


def problems(size: int = SIZE) -> Iterator[dict[str, str]]:
    """Rows with `question` and `answer`, as in GSM8K's own files.

    Args:
        size: How many; kinds of problem take turns, so any prefix holds all kinds in equal shares.
    """
    seen: set[str] = set()
    for index in range(size):
        # a text seed goes through sha512, so it depends neither on PYTHONHASHSEED nor on the platform
        rng, template = Random(f"gsm8k sample {index}"), TEMPLATES[index % len(TEMPLATES)]
        question, steps = template(rng)
        while question in seen:
            question, steps = template(rng)
        seen.add(question)
        result = steps[-1].rpartition("=")[2].partition(">>")[0]
        yield {"question": question, "answer": "\n".join([*steps, f"#### {result}"])}


def calc(expression: str, value: int) -> str:
    """One calculation in GSM8K's notation: `4*6=<<4*6=24>>24`."""
    return f"{expression}=<<{expression}={value}>>{value}"


def bakery(rng: Random) -> Problem:
    name, she, _ = rng.choice(PEOPLE)
    trays, per_tray, price = rng.randint(3, 9), rng.choice((6, 8, 10, 12)), rng.randint(2, 4)
    baked, burnt = trays * per_tray, rng.randint(2, 5)
    sold = baked - burnt
    return (
        f"{name} bakes {trays} trays of {per_tray} muffins each. {burnt} of the muffins burn, and {she} sells all the "
        f"others at the school fair for ${price} apiece. How many dollars does {name} take in?",
        [
            f"{name} bakes {calc(f'{trays}*{per_tray}', baked)} muffins.",
            f"Without the burnt ones that leaves {calc(f'{baked}-{burnt}', sold)} muffins.",
            f"They bring in ${calc(f'{sold}*{price}', sold * price)}.",
        ],
    )


def bus_ride(rng: Random) -> Problem:
    first, on, off = rng.randint(14, 30), rng.randint(4, 12), rng.randint(3, 9)
    factor = rng.choice((2, 3))
    middle = first + on - off
    more = factor * off
    return (
        f"A bus leaves the depot with {first} passengers. At the first stop {on} people get on and {off} get off. At "
        f"the second stop nobody gets off, and {'twice' if factor == 2 else 'three times'} as many people get on as "
        f"got off at the first stop. How many passengers are on the bus now?",
        [
            f"After the first stop there are {calc(f'{first}+{on}-{off}', middle)} passengers.",
            f"At the second stop {calc(f'{factor}*{off}', more)} people get on.",
            f"Now there are {calc(f'{middle}+{more}', middle + more)} passengers.",
        ],
    )


def savings(rng: Random) -> Problem:
    name, she, her = rng.choice(PEOPLE)
    weekly, spent, weeks, start = rng.randint(12, 25), rng.randint(3, 9), rng.randint(4, 10), rng.randint(15, 60)
    kept = weekly - spent
    saved = kept * weeks
    return (
        f"{name} gets ${weekly} of pocket money every week and spends ${spent} of it; the rest goes into {her} savings "
        f"box. There are already ${start} in the box. How many dollars will {she} have in it after {weeks} weeks?",
        [
            f"{name} puts aside ${calc(f'{weekly}-{spent}', kept)} a week.",
            f"In {weeks} weeks that makes ${calc(f'{kept}*{weeks}', saved)}.",
            f"With the money that was there before, the box holds ${calc(f'{start}+{saved}', start + saved)}.",
        ],
    )


def rectangle(rng: Random) -> Problem:
    width, longer, price = rng.randint(6, 20), rng.randint(3, 15), rng.randint(4, 12)
    length = width + longer
    fence = 2 * (width + length)
    return (
        f"A rectangular garden is {width} meters wide, and its length is {longer} meters more than its width. Fencing "
        f"costs ${price} per meter. How many dollars does a fence around the whole garden cost?",
        [
            f"The garden is {calc(f'{width}+{longer}', length)} meters long.",
            f"The fence is {calc(f'2*({width}+{length})', fence)} meters long.",
            f"It costs ${calc(f'{fence}*{price}', fence * price)}.",
        ],
    )


def discount(rng: Random) -> Problem:
    name, she, _ = rng.choice(PEOPLE)
    percent, price, voucher = rng.choice((10, 20, 25, 40)), 20 * rng.randint(3, 12), rng.randint(3, 15)
    off = price * percent // 100
    reduced = price - off
    return (
        f"A pair of hiking boots costs ${price}. This week the shop takes {percent}% off, and {name} also has a "
        f"voucher worth ${voucher} that is taken off the reduced price. How many dollars does {she} pay?",
        [
            f"The reduction is ${calc(f'{price}*{percent}/100', off)}.",
            f"The reduced price is ${calc(f'{price}-{off}', reduced)}.",
            f"With the voucher, {name} pays ${calc(f'{reduced}-{voucher}', reduced - voucher)}.",
        ],
    )


def ages(rng: Random) -> Problem:
    (child, *_), (parent, *_) = rng.sample(PEOPLE, 2)
    age, factor, years = rng.randint(5, 12), rng.randint(3, 5), rng.randint(4, 15)
    now = age * factor
    then = now + years
    child_then = age + years
    return (
        f"{parent} is {factor} times as old as {child}, who is {age}. In {years} years, what will be the sum of their "
        f"ages?",
        [
            f"{parent} is {calc(f'{factor}*{age}', now)} years old.",
            f"In {years} years {parent} will be {calc(f'{now}+{years}', then)}.",
            f"{child} will then be {calc(f'{age}+{years}', child_then)}.",
            f"Together that makes {calc(f'{then}+{child_then}', then + child_then)}.",
        ],
    )


def road_trip(rng: Random) -> Problem:
    name, she, _ = rng.choice(PEOPLE)
    fast, slow = 10 * rng.randint(8, 12), 10 * rng.randint(4, 7)
    fast_hours, slow_hours, extra = rng.randint(2, 5), rng.randint(2, 4), rng.randint(20, 95)
    first, second = fast * fast_hours, slow * slow_hours
    total = first + second + extra
    return (
        f"{name} drives for {fast_hours} hours at {fast} km per hour and then for {slow_hours} hours at {slow} km per "
        f"hour. After that {she} still has {extra} km to go. How many kilometers long is the whole trip?",
        [
            f"At the higher speed {name} covers {calc(f'{fast_hours}*{fast}', first)} km.",
            f"At the lower speed {she} covers {calc(f'{slow_hours}*{slow}', second)} km.",
            f"The whole trip is {calc(f'{first}+{second}+{extra}', total)} km long.",
        ],
    )


def sharing(rng: Random) -> Problem:
    name, she, _ = rng.choice(PEOPLE)
    friends, each, packs = rng.randint(3, 8), rng.randint(5, 12), rng.randint(2, 6)
    kept = 4 + (-4 - friends * each) % packs  # so that the bags come out even
    total = friends * each + kept
    per_pack = total // packs
    return (
        f"{name} opens {packs} bags of marbles with {per_pack} marbles in each. {name} keeps {kept} marbles and shares "
        f"the others equally among {friends} friends. How many marbles does {she} give to each friend?",
        [
            f"There are {calc(f'{packs}*{per_pack}', total)} marbles.",
            f"{name} gives away {calc(f'{total}-{kept}', total - kept)} of them.",
            f"Each friend gets {calc(f'{total - kept}/{friends}', each)} marbles.",
        ],
    )


def library(rng: Random) -> Problem:
    shelves, quarter = rng.randint(4, 9), rng.randint(4, 9)
    per_shelf = 4 * quarter
    total, back = shelves * per_shelf, rng.randint(5, 15)
    lent = total // 4
    left = total - lent
    return (
        f"A classroom library has {shelves} shelves with {per_shelf} books on each. Before the holidays a quarter of "
        f"all the books are lent out, and by the first day of school {back} of those have come back. "
        f"How many books are in the library on that day?",
        [
            f"The library owns {calc(f'{shelves}*{per_shelf}', total)} books.",
            f"A quarter of them is {calc(f'{total}/4', lent)} books.",
            f"That leaves {calc(f'{total}-{lent}', left)} books.",
            f"With those that came back there are {calc(f'{left}+{back}', left + back)}.",
        ],
    )


def wages(rng: Random) -> Problem:
    name, she, her = rng.choice(PEOPLE)
    rate, hours, over = rng.choice((12, 14, 16, 18, 20)), rng.choice((30, 35, 40)), rng.randint(2, 8)
    higher = rate * 3 // 2
    normal, extra = rate * hours, higher * over
    return (
        f"{name} earns ${rate} an hour for the first {hours} hours of a week and one and a half times as much for "
        f"every hour after that. Last week {she} worked {hours + over} hours. How many dollars was {her} pay?",
        [
            f"The first {hours} hours bring ${calc(f'{rate}*{hours}', normal)}.",
            f"{name} worked {calc(f'{hours + over}-{hours}', over)} hours of overtime.",
            f"An hour of overtime brings ${calc(f'{rate}*3/2', higher)}.",
            f"All overtime brings ${calc(f'{over}*{higher}', extra)}.",
            f"The pay was ${calc(f'{normal}+{extra}', normal + extra)}.",
        ],
    )


def water_tank(rng: Random) -> Problem:
    into, out, minutes = rng.randint(12, 25), rng.randint(3, 9), rng.randint(8, 30)
    net = into - out
    start = rng.randint(20, 90)
    end = start + net * minutes
    return (
        f"A tank holds {start} liters of water. A pump adds {into} liters every minute while a leak loses {out} liters "
        f"every minute. How many liters of water are in the tank after {minutes} minutes?",
        [
            f"Every minute the tank gains {calc(f'{into}-{out}', net)} liters.",
            f"In {minutes} minutes it gains {calc(f'{net}*{minutes}', net * minutes)} liters.",
            f"It then holds {calc(f'{start}+{net * minutes}', end)} liters.",
        ],
    )


def reading(rng: Random) -> Problem:
    name, she, _ = rng.choice(PEOPLE)
    a, days, b, more = rng.randint(12, 25), rng.randint(4, 9), rng.randint(26, 40), rng.randint(3, 7)
    first, second = a * days, b * more
    return (
        f"{name} is reading a novel of {first + second} pages. For the first {days} days {she} reads {a} pages a day; "
        f"from then on {she} reads {b} pages a day. How many days does {name} need for the whole novel?",
        [
            f"In the first {days} days {name} reads {calc(f'{days}*{a}', first)} pages.",
            f"That leaves {calc(f'{first + second}-{first}', second)} pages.",
            f"They take {calc(f'{second}/{b}', more)} more days.",
            f"The whole novel takes {calc(f'{days}+{more}', days + more)} days.",
        ],
    )


def tickets(rng: Random) -> Problem:
    adult, child = rng.randint(9, 16), rng.randint(4, 8)
    adults, children, note = rng.randint(2, 5), rng.randint(3, 9), 200
    paid_adults, paid_children = adult * adults, child * children
    total = paid_adults + paid_children
    return (
        f"Zoo tickets cost ${adult} for adults and ${child} for children. A group of {adults} adults and {children} "
        f"children pays with two $100 bills. How many dollars does the group get back?",
        [
            f"The adults' tickets cost ${calc(f'{adults}*{adult}', paid_adults)}.",
            f"The children's tickets cost ${calc(f'{children}*{child}', paid_children)}.",
            f"Together that is ${calc(f'{paid_adults}+{paid_children}', total)}.",
            f"The group paid ${calc('2*100', note)}.",
            f"It gets back ${calc(f'{note}-{total}', note - total)}.",
        ],
    )


def orchard(rng: Random) -> Problem:
    rows, per_row, crates = rng.randint(5, 12), rng.randint(6, 15), rng.randint(2, 4)
    trees = rows * per_row
    weight, lorry = 20, rng.choice((3, 4, 6))
    harvest = trees * crates
    kilograms = harvest * weight
    return (
        f"An orchard has {rows} rows of {per_row} apple trees. Every tree fills {crates} crates, and a crate weighs "
        f"{weight} kg when it is full. The farmer sells the whole harvest and then buys {lorry} more crates of apples "
        f"for the family. How many kilograms of apples did the farmer sell?",
        [
            f"There are {calc(f'{rows}*{per_row}', trees)} trees.",
            f"They fill {calc(f'{trees}*{crates}', harvest)} crates.",
            f"The crates hold {calc(f'{harvest}*{weight}', kilograms)} kg; what the farmer buys later changes nothing.",
        ],
    )


def temperature(rng: Random) -> Problem:
    noon, drop, hours = rng.randint(2, 9), rng.randint(2, 4), rng.randint(5, 8)
    fall = drop * hours
    return (
        f"At noon it is {noon} degrees Celsius in a mountain village. Then the temperature falls by {drop} degrees an "
        f"hour for {hours} hours. How many degrees Celsius does the thermometer show after that?",
        [
            f"The temperature falls by {calc(f'{drop}*{hours}', fall)} degrees.",
            f"The thermometer shows {calc(f'{noon}-{fall}', noon - fall)} degrees.",
        ],
    )


TEMPLATES: tuple[Callable[[Random], Problem], ...] = (
    bakery, bus_ride, savings, rectangle, discount, ages, road_trip, sharing,
    library, wages, water_tank, reading, tickets, orchard, temperature,
)  # fmt: skip

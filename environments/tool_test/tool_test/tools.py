"""The tools: everyday errands that only confirm what they were asked. Owns their signatures, which are what the model
sees. Every argument is required, so that there is one right call."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


class Passengers(TypedDict):
    """Who flies."""

    adults: int
    children: int


async def set_timer(minutes: int, label: str) -> str:
    """Start a timer.

    Args:
        minutes: After how many minutes it rings.
        label: What it is for.
    """
    return f"The timer {label!r} rings in {minutes} minutes."


async def convert_currency(amount: float, source: Literal["EUR", "GBP", "JPY", "USD"], target: str) -> str:
    """Exchange money.

    Args:
        amount: How much of the source currency.
        source: The currency that there is.
        target: The currency that is wanted.
    """
    return f"{amount} {source} will be exchanged for {target}."


async def book_table(restaurant: str, guests: int, outdoors: bool) -> str:
    """Book a table for tonight.

    Args:
        restaurant: Its name.
        guests: How many come.
        outdoors: Whether to sit outside.
    """
    return f"A table for {guests} is booked at {restaurant}, {'outdoors' if outdoors else 'indoors'}."


async def send_message(recipients: list[str], text: str) -> str:
    """Send one message to several people.

    Args:
        recipients: Their first names, in order.
        text: What it says, word for word.
    """
    return f"The message went to {', '.join(recipients)}."


async def get_weather(city: str, unit: Literal["celsius", "fahrenheit"]) -> str:
    """Ask for tomorrow's weather.

    Args:
        city: Where.
        unit: Of the temperature.
    """
    return f"The forecast for {city} will be sent in degrees {unit}."


async def search_flights(origin: str, destination: str, passengers: Passengers) -> str:
    """Look for flights.

    Args:
        origin: The city to leave from.
        destination: The city to fly to.
        passengers: How many fly.
    """
    return f"Looking for flights from {origin} to {destination} for {passengers['adults']} adults."


TOOLS = (set_timer, convert_currency, book_table, send_message, get_weather, search_flights)

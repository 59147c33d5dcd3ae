"""The MCP server: three tools that look into a stockroom. Owns what a model sees of it; `serve` makes it a program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mcp_demo.stockroom import SHELVES, make_stockroom

if TYPE_CHECKING:
    from fastmcp import FastMCP


def make_server(seed: int) -> FastMCP[Any]:
    """A server for the stockroom of a seed."""
    from fastmcp import FastMCP

    stockroom = make_stockroom(seed)
    server: FastMCP[Any] = FastMCP("stockroom")

    async def find_item(name: str) -> str:
        """Find items by name, or by a part of it. Returns a JSON list of their names and numbers."""
        words = name.strip().lower()
        found = [{"name": item, "number": number} for item, number in stockroom.numbers.items() if words in item]
        return json.dumps(found)

    async def stock_of(number: str, shelf: str) -> int:
        """How many pieces of an item are on a shelf.

        Args:
            number: The item's number, as find_item tells it.
            shelf: The shelf's name.
        """
        _check_number(number)
        if shelf.capitalize() not in SHELVES:
            raise ValueError(f"there is no shelf {shelf!r}; the shelves are {', '.join(SHELVES)}")
        return stockroom.stock[number, shelf.capitalize()]

    async def price_of(number: str) -> int:
        """What one piece of an item costs, in coins.

        Args:
            number: The item's number, as find_item tells it.
        """
        _check_number(number)
        return stockroom.prices[number]

    def _check_number(number: str) -> None:
        if number not in stockroom.prices:
            raise ValueError(f"there is no item number {number!r}; find_item tells numbers")

    for tool in (find_item, stock_of, price_of):
        server.tool(tool)
    return server

"""The same two tools as an MCP server: what `bench eval --mcp tools` evaluates."""

from fastmcp import FastMCP

mcp = FastMCP("calculator")


@mcp.tool()
def add(a: int, b: int) -> int:
    """a + b"""
    return a + b


@mcp.tool()
def multiply(a: int, b: int) -> int:
    """a · b"""
    return a * b

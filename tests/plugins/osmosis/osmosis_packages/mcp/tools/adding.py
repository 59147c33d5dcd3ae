from server import mcp

from .reading import numbers


@mcp.tool()
def calculate(expression: str, style: str = "short") -> int:
    """Add whole numbers.

    Args:
        expression: numbers with + between them
        style: how to say it
    """
    return sum(numbers(expression))

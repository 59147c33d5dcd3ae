def numbers(expression: str) -> list[int]:
    return [int(part) for part in expression.split("+")]

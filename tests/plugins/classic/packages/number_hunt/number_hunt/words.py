LOW = "Too low."
HIGH = "Too high."
FOUND = "That is it."


def first_number(text: str) -> int | None:
    digits = "".join(c if c.isdigit() else " " for c in text).split()
    return int(digits[0]) if digits else None

def letter(text) -> str | None:
    letters = [c for c in str(text).lower() if c.isalpha()]
    return letters[-1] if letters else None


def hits(word: str, tried: str) -> int:
    return len([c for c in word if c in tried])

"""Text from files, as people may see it: what a terminal would obey is written out."""

__all__ = ["printable", "printable_cell"]


def printable(text: str) -> str:
    r"""The text with what cannot be printed escaped: `\x1b` for an escape, `\u202e` for a turn of the direction."""
    return _escaped(text, "\n\t")


def printable_cell(text: str) -> str:
    """As `printable`, and in one line."""
    return _escaped(text, "")


def _escaped(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else one.encode("unicode_escape").decode() for one in text)

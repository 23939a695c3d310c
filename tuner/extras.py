"""What to install where something is missing: kt's extras, in the words of a person in a checkout."""

__all__ = ["OLDEST_CUDA", "install"]

OLDEST_CUDA, _NEWEST = 12, 13  # that kt has extras for


def install(cuda: int = 0, *, libraries: bool = False) -> str:
    """The command that installs what kt needs of a CUDA version.

    Args:
        cuda: its major version; 0 if only the driver could tell.
        libraries: also cuBLAS and cuBLASLt.
    """
    command = _command(min(max(cuda, OLDEST_CUDA), _NEWEST) if cuda else _NEWEST, libraries)
    other = "" if cuda else f"; with a driver older than 580, {_names(OLDEST_CUDA, libraries)}"
    return f"{command} in a checkout of kt{other}"


def _command(cuda: int, libraries: bool) -> str:
    return f'pip install ".{_names(cuda, libraries)}"'


def _names(cuda: int, libraries: bool) -> str:
    return f"[cuda{cuda},baseline{cuda}]" if libraries else f"[cuda{cuda}]"

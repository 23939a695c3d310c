"""Figures as people read them: as many digits as a measurement is good for, the same wherever they are shown."""

__all__ = ["rate_text", "time_text"]


def time_text(microseconds: float) -> str:
    """A time in microseconds: its spread is a percent or so, more digits would be noise."""
    return f"{microseconds:.1f}" if microseconds >= 10 else f"{microseconds:.2f}"


def rate_text(value: float) -> str:
    """TFLOP/s or GB/s in three digits."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"

"""The only place that turns numbers into text for people. Absent (None, or not finite) is `-`."""

from __future__ import annotations

import math

MISSING = "-"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def _absent(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def _joined(text: str, unit: str) -> str:
    return f"{text} {unit}" if unit else text


def format_decimal(value: float | None, digits: int = 2) -> str:
    """`1,234.50`: fixed digits behind the point, thousands apart, never `-0.00`."""
    if value is None or _absent(value):
        return MISSING
    rounded = round(value, digits)
    return f"{rounded + 0.0:,.{digits}f}"  # + 0.0 turns -0.0 into 0.0


def format_significant(value: float | None, unit: str = "") -> str:
    """Three significant digits below 1,000, whole numbers above: `0.0123`, `1.23`, `12.3`, `123`, `1,234`."""
    if value is None or _absent(value):
        return MISSING
    size = abs(value)
    if size == 0:
        return _joined("0", unit)
    digits = min(6, max(0, 2 - math.floor(math.log10(size))))
    if round(size, digits) >= 10.0 ** (3 - digits) and digits > 0:  # 9.999 is 10.0, not 10.00
        digits -= 1
    return _joined(format_decimal(value, digits), unit)


def format_count(value: float | None) -> str:
    """`12,345`: whole things."""
    return format_decimal(value, 0)


def format_ms(seconds: float | None, *, unit: bool = True) -> str:
    """Seconds as milliseconds with three significant digits: `12.3 ms`; `unit=False` for columns that name it."""
    if seconds is None or _absent(seconds):
        return MISSING
    return format_significant(seconds * 1000.0, "ms" if unit else "")


def format_rate(tokens_per_second: float | None, *, unit: bool = True) -> str:
    """Tokens per second with three significant digits: `312 tok/s`, `2,676 tok/s`."""
    return format_significant(tokens_per_second, "tok/s" if unit else "")


def format_percent(fraction: float | None, digits: int = 1) -> str:
    """A fraction as a percentage: 0.123 is `12.3 %`."""
    if fraction is None or _absent(fraction):
        return MISSING
    return f"{format_decimal(fraction * 100.0, digits)} %"


def format_signed_percent(fraction: float | None, digits: int = 1) -> str:
    """A difference as a percentage that shows its sign: 0.031 is `+3.1 %`, what rounds to nothing is `0.0 %`."""
    if fraction is None or _absent(fraction):
        return MISSING
    rounded = round(fraction * 100.0, digits)
    return f"{'+' if rounded > 0 else ''}{format_percent(fraction, digits)}"


def format_spread(fraction: float | None) -> str:
    """A half width relative to its centre: 0.021 is `±2.1 %`."""
    text = format_percent(None if fraction is None else abs(fraction))
    return text if text == MISSING else f"±{text}"


def format_interval(low: float | None, high: float | None, unit: str = "") -> str:
    """`301 to 322 tok/s`."""
    if low is None or high is None or _absent(low) or _absent(high):
        return MISSING
    return f"{format_significant(low)} to {format_significant(high, unit)}"


def format_duration(seconds: float | None) -> str:
    """A time span as coarse as people plan: `350 ms`, `6.5 s`, `42 s`, `6 min 40 s`, `2 h 05 min`, `1 d 03 h`."""
    if seconds is None or _absent(seconds):
        return MISSING
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 0.9995:
        return format_ms(seconds) if seconds else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    return _long_duration(round(seconds))


def _long_duration(whole: int) -> str:
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        minutes, rest = divmod(whole, _MINUTE)
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    minutes = round(whole / _MINUTE)
    if minutes < 24 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest:02d} min" if rest else f"{hours} h"
    days, rest = divmod(round(whole / _HOUR), 24)
    return f"{days} d {rest:02d} h" if rest else f"{days} d"


def format_bytes(size: float | None) -> str:
    """Bytes in decimal units: `512 B`, `20.5 MB`."""
    if size is None or _absent(size):
        return MISSING
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 999.5:
            return format_significant(size, unit)
        size /= 1000.0
    return format_significant(size, "TB")


def format_plural(count: int, noun: str, plural: str | None = None) -> str:
    """`1 cell`, `60 cells`."""
    return f"{format_count(count)} {noun if count == 1 else plural or noun + 's'}"

"""DuckDB's macros: what stands for functions that mean something else there than in PostgreSQL.

The vector engine makes them once for each connection. An error() with the text
`herdpy:<SQLSTATE>:<message>` becomes our error of that SQLSTATE.
"""

import re
from collections.abc import Iterator
from functools import cache

from herdpy.limits import regex_bytes_max, value_bytes_max, vector_small_bytes
from herdpy.model.reals import MIDDLES, UNEVEN

# What reads as a TIMESTAMPTZ: 1 date, 2 time; of the zone 3 sign, 4 hours, 5 minutes, 6 seconds.
_ZONED = (
    r"(?i)^\s*([0-9]{4}-[0-9]{1,2}-[0-9]{1,2})"
    r"(?:[ T]+([0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)"
    r"\s*(?:Z|UTC|GMT|([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?)?)?\s*$"
)
_NUMBER = r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*"
_AMOUNT = r"([+-]?[0-9]{1,9}(?:\.[0-9]{1,6})?)"
_SPANS: dict[str, tuple[int, str]] = {  # by word: how many of the smaller unit, and which words
    "year": (12, "years?|yrs?|y"), "month": (1, "mon(?:th)?s?"), "week": (7, "weeks?|w"),
    "day": (1, "days?|d"), "hour": (3_600_000_000, "hours?|hrs?|h"),
    "minute": (60_000_000, "minutes?|mins?|m"), "second": (1_000_000, "seconds?|secs?|s"),
    "millisecond": (1_000, "milliseconds?|msecs?|ms"),
    "microsecond": (1, "microseconds?|usecs?|us"),
}  # fmt: skip
_CLOCK = r"([+-]?)([0-9]{1,9}):([0-5]?[0-9])(?::([0-5]?[0-9](?:\.[0-9]{1,6})?))?"


def _interval_pattern() -> str:
    """Return the pattern of what reads as an INTERVAL where the text is computed.

    Units in the order of their size, the greater ones without fractions; intervals.read_interval
    reads more.
    """
    units = {
        word: rf"(?:{_AMOUNT if size > 12 else '([+-]?[0-9]{1,9})'}\s*(?:{words})\b\s*)?"
        for word, (size, words) in _SPANS.items()
    }
    dates = "".join(units[word] for word in ("year", "month", "week", "day"))
    times = "".join(list(units.values())[4:])
    pattern = rf"\s*(?:{dates}(?:{times}|{_CLOCK})\s*(?:ago)?|{_AMOUNT})\s*"
    return "(?i)" + pattern.replace("(", "(?:").replace("(?:?:", "(?:")


# Values below it have whole parts whose squares add up in 128 bits, for 10^10 rows; the rest of a
# value is counted in steps of 2^-52, which it is a multiple of when there is a whole part.
_WHOLE_MAX, _FIXED = 2**46, 2**52
_WORDS = {
    "NUMBER": _NUMBER, "ZONED": _ZONED, "WHOLE_MAX": str(_WHOLE_MAX), "FIXED": str(_FIXED),
    "INTERVAL": _interval_pattern(),
    "VALUE_MAX": str(value_bytes_max), "SMALL": str(vector_small_bytes),
    "REGEX_MAX": str(regex_bytes_max),
    "MIDDLE_MIN": f"{MIDDLES[0]:.0f}::DOUBLE", "MIDDLE_MAX": f"{MIDDLES[1]:.0f}::DOUBLE",
    "UNEVEN": ", ".join(f"'{text}'" for text in UNEVEN.values()),
}  # fmt: skip
"""What {NAME} stands for in the text."""

_TEXT = r"""
-- numbers
h_blanks(): ' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13)
h_sign(x): CASE WHEN isnan(x) THEN 0.0::DOUBLE ELSE CAST(sign(x) AS DOUBLE) END
h_sqrt(x): CASE WHEN x < 0 THEN error('herdpy:2201F:cannot take square root of a negative number')
    ELSE sqrt(x) END
h_exp(x): CASE WHEN isinf(exp(x)) AND NOT isinf(x)
    THEN error('herdpy:22003:value out of range: overflow') WHEN exp(x) = 0 AND NOT isinf(x)
    THEN error('herdpy:22003:value out of range: underflow') ELSE exp(x) END
h_positive(x): CASE WHEN x = 0 THEN error('herdpy:2201E:cannot take logarithm of zero')
    WHEN x < 0 THEN error('herdpy:2201E:cannot take logarithm of a negative number') ELSE x END
h_power(x, y): CASE WHEN isnan(x) OR isnan(y) THEN pow(x, y) WHEN x = 0 AND y < 0
    THEN error('herdpy:2201F:zero raised to a negative power is undefined')
    WHEN x < 0 AND y <> floor(y)
    THEN error('herdpy:2201F:a negative number to a non-integer power is a complex number')
    WHEN isinf(x) OR isinf(y) THEN pow(x, y) WHEN isinf(pow(x, y))
    THEN error('herdpy:22003:value out of range: overflow') WHEN pow(x, y) = 0 AND x <> 0
    THEN error('herdpy:22003:value out of range: underflow') ELSE pow(x, y) END

-- variance: arguments are what duckdb_text.py gathers of the values
h_is_whole(x): coalesce(abs(x) < {WHOLE_MAX}, FALSE)
h_whole(x): CASE WHEN h_is_whole(x) THEN CAST(trunc(x) AS HUGEINT) ELSE 0 END
h_rest(x): CASE WHEN h_is_whole(x) THEN x - trunc(x) END
h_fixed(x): CAST(round_even(coalesce(x, 0) * {FIXED}, 0) AS HUGEINT)
-- Sum of (w + r - mean) squared, w being whole parts and r rests, c the mean of w, rounded.
h_whole_squares(n, w, ww, c): CAST(ww - n * c * c - 2 * c * (w - c * n) AS DOUBLE) - CAST(w
    - c * n AS DOUBLE) * CAST(w - c * n AS DOUBLE) / n
h_mixed_squares(n, w, wr, r, c): 2 * (CAST(wr - c * r AS DOUBLE) - CAST(w - c * n AS DOUBLE) / n
    * r) / {FIXED}
h_exact_squares(n, w, ww, wr, r, rest): greatest(h_whole_squares(n, w, ww, w // n)
    + h_mixed_squares(n, w, wr, r, w // n) + rest * n, 0)
h_squares(n, simple, largest, mean, exact): CASE WHEN simple IS NULL THEN NULL
    WHEN NOT isfinite(largest) THEN 'NaN'::DOUBLE WHEN NOT isfinite(simple * n)
    THEN error('herdpy:22003:value out of range: overflow') WHEN largest < {WHOLE_MAX}
    AND abs(mean) * sqrt(simple) > 1 THEN exact ELSE simple * n END
h_var_pop(q, n): q / nullif(n, 0)
h_var_samp(q, n): q / CASE WHEN n > 1 THEN n - 1 END
h_stddev_pop(q, n): sqrt(h_var_pop(q, n))
h_stddev_samp(q, n): sqrt(h_var_samp(q, n))
h_finite(x, y): CASE WHEN isinf(x) THEN error('herdpy:22003:input is out of range') ELSE y END
h_unit(x, y): CASE WHEN NOT isnan(x) AND (x < -1 OR x > 1)
    THEN error('herdpy:22003:input is out of range') ELSE y END
-- As the C library, and so PostgreSQL; DuckDB has the newer capital ẞ for it.
h_upper(x): CASE WHEN contains(x, 'ß') THEN array_to_string(list_transform(string_split(x, 'ß'),
    lambda part: upper(part)), 'ß') ELSE upper(x) END
h_substr2(x, s): substr(x, CASE WHEN s < 1 THEN 1 WHEN s > 2147483647 THEN 2147483647 ELSE s END)
h_substr3(x, s, n): CASE WHEN x IS NULL OR s IS NULL OR n IS NULL THEN NULL
    WHEN n < 0 THEN error('herdpy:22011:negative substring length not allowed')
    ELSE substr(x, least(greatest(s, 1), 2147483647), CAST(least(greatest(CAST(s AS HUGEINT) + n
    - greatest(s, 1), 0), 2147483647) AS BIGINT)) END
h_width(n): CASE WHEN n > 10485760 THEN error('herdpy:54000:requested length too large')
    ELSE CAST(greatest(n, 0) AS INTEGER) END
-- not small, and too much of it: vector_room (exec/vector/vector_room.py) counts those of a vector
h_room(n): vector_room(n)
h_over(n): n > {SMALL} AND h_room(CAST(least(n, {VALUE_MAX} + 1) AS BIGINT)) > {VALUE_MAX}
-- of all that an expression makes (made_bytes.py); never true: what is too much for one row is not
-- told from what is too much for a vector
h_made(n): n > {SMALL} AND h_room(CAST(least(n, {VALUE_MAX}) AS BIGINT)) > {VALUE_MAX}
-- with x: where n and f are constants DuckDB would compute, and count, one value for all rows
h_padded(x, n, f): CASE WHEN n <= 10485760
    THEN greatest(strlen(x), n * CAST(least(strlen(f), 4) AS BIGINT)) END
h_lpad(x, n, f): CASE WHEN x IS NULL OR n IS NULL OR f IS NULL THEN NULL
    WHEN f = '' THEN left(x, h_width(n)) WHEN h_over(h_padded(x, n, f)) THEN h_too_long()
    ELSE lpad(x, h_width(n), f) END
h_rpad(x, n, f): CASE WHEN x IS NULL OR n IS NULL OR f IS NULL THEN NULL
    WHEN f = '' THEN left(x, h_width(n)) WHEN h_over(h_padded(x, n, f)) THEN h_too_long()
    ELSE rpad(x, h_width(n), f) END
-- DuckDB's own has what belongs together, as e and its accent, in the order that it was in.
h_reverse(x): CASE WHEN strlen(x) = length(x) THEN reverse(x) WHEN strlen(x) > {REGEX_MAX}
    THEN error('herdpy:54000:reverse: a text of other letters than ASCII has at most 1 MiB')
    ELSE array_to_string(list_reverse(regexp_extract_all(x, '(?s).')), '') END
h_too_long(): error('herdpy:54000:requested length too large: a value has at most 64 MiB')
h_too_long_for_like(): error('herdpy:54000:LIKE: the text is too long for a pattern of that length')
h_short(x): CASE WHEN strlen(x) > {REGEX_MAX}
    THEN error('herdpy:54000:a text of more than 1 MiB is not read as a value') ELSE x END
-- DuckDB repeats constants before it looks at the test.
h_repeat(x, n): CASE WHEN h_over(strlen(x) * CAST(n AS HUGEINT)) THEN h_too_long()
    ELSE repeat(x, CASE WHEN strlen(x) * CAST(n AS HUGEINT) > {VALUE_MAX} THEN 0 ELSE n END) END
-- by so many bytes at the most, and by how many; the more costly test is made where it matters
h_grows(x, a, b): strlen(b) > strlen(a) AND strlen(x) // greatest(strlen(a), 1) * CAST(strlen(b)
    AS HUGEINT) > {VALUE_MAX} AND strlen(x) + (strlen(x) - strlen(replace(x, a, '')))
    // greatest(strlen(a), 1) * CAST(strlen(b) - strlen(a) AS HUGEINT) > {VALUE_MAX}
h_replaced(x, a, b): CASE WHEN strlen(b) > strlen(a) AND strlen(x) // greatest(strlen(a), 1)
    * CAST(strlen(b) AS HUGEINT) > {SMALL} THEN strlen(x) + (strlen(x) - strlen(replace(x, a, '')))
    // greatest(strlen(a), 1) * CAST(strlen(b) - strlen(a) AS HUGEINT) ELSE strlen(x) END
h_replace(x, a, b): CASE WHEN h_grows(x, a, b) THEN h_too_long()
    WHEN h_over(h_replaced(x, a, b)) THEN h_too_long()
    ELSE replace(x, a, CASE WHEN h_grows(x, a, b) THEN '' ELSE b END) END
h_split_part(x, d, n): CASE WHEN x IS NULL OR d IS NULL OR n IS NULL THEN NULL
    WHEN n = 0 THEN error('herdpy:22023:field position must not be zero')
    WHEN d = '' THEN CASE WHEN n IN (1, -1) THEN x ELSE '' END ELSE split_part(x, d, n) END
h_chr(n): CASE WHEN n < 0 THEN error('herdpy:22023:character number must be positive')
    WHEN n = 0 THEN error('herdpy:54000:null character not permitted')
    WHEN n > 1114111 OR n BETWEEN 55296 AND 57343
    THEN error('herdpy:54000:requested character not valid for encoding')
    ELSE chr(CAST(n AS INTEGER)) END
h_encode(x, f): CASE WHEN lower(f) <> 'hex' THEN error('herdpy:22023:the one encoding is hex')
    ELSE lower(hex(x)) END
h_decode(x, f): CASE WHEN lower(f) <> 'hex' THEN error('herdpy:22023:the one encoding is hex')
    WHEN NOT regexp_full_match(x, '([0-9a-fA-F]{2}|\s)*')
    THEN error('herdpy:22023:invalid hexadecimal data')
    ELSE unhex(regexp_replace(x, '\s', '', 'g')) END
h_date(d): CASE WHEN d < DATE '0001-01-01' OR d > DATE '9999-12-31'
    THEN error('herdpy:22008:date out of range') ELSE d END
h_timestamp(t): CASE WHEN t < TIMESTAMP '0001-01-01' OR t >= TIMESTAMP '10000-01-01'
    THEN error('herdpy:22008:timestamp out of range') ELSE t END
h_days(n): CASE WHEN n NOT BETWEEN -4000000 AND 4000000
    THEN error('herdpy:22008:date out of range') ELSE CAST(n AS INTEGER) END
h_make_date(y, m, d): CASE WHEN y IS NULL OR m IS NULL OR d IS NULL THEN NULL
    WHEN y NOT BETWEEN 1 AND 9999 OR m NOT BETWEEN 1 AND 12 OR d < 1
    OR d > day(last_day(make_date(CASE WHEN y BETWEEN 1 AND 9999 THEN y
    ELSE 1 END, CASE WHEN m BETWEEN 1 AND 12 THEN m ELSE 1 END, 1)))
    THEN error('herdpy:22008:date field value out of range') ELSE make_date(y, m, d) END
h_make_timestamp(y, m, d, h, i, s): CASE WHEN h IS NULL OR i IS NULL OR s IS NULL THEN NULL
    WHEN h NOT BETWEEN 0 AND 23 OR i NOT BETWEEN 0 AND 59 OR NOT (s >= 0 AND s < 60)
    THEN error('herdpy:22008:time field value out of range')
    ELSE h_make_date(y, m, d) + to_microseconds(CAST((h * 60 + i) * 60000000::BIGINT
    + round_even(s * 1000000, 0) AS BIGINT)) END

-- intervals
h_months(i): extract(year FROM i) * 12 + extract(month FROM i)
h_days_of(i): extract(day FROM i)
h_micros(i): extract(hour FROM i) * 3600000000 + extract(minute FROM i) * 60000000
    + extract(microsecond FROM i)
-- of whole numbers of any type; a NaN is greater than all of them
h_interval(m, d, u): CASE WHEN NOT (m BETWEEN -2147483648 AND 2147483647
    AND d BETWEEN -2147483648 AND 2147483647
    AND u BETWEEN -9223372036854774784 AND 9223372036854774784)
    THEN error('herdpy:22008:interval out of range') ELSE to_months(CAST(m AS INTEGER))
    + to_days(CAST(d AS INTEGER)) + to_microseconds(CAST(u AS BIGINT)) END
-- PostgreSQL's interval_mul: a fraction of months goes on in days, of days in time.
h_fraction(x): x - trunc(x)
h_sixth(x): round_even(x * 1000000, 0) / 1000000
h_rest_days(m): h_sixth(h_fraction(m) * 30)
h_rest_s(m, d): h_sixth((h_fraction(d) + h_fraction(h_rest_days(m))) * 86400)
h_spread(m, d, u): h_interval(trunc(m), trunc(d) + trunc(h_rest_s(m, d) / 86400)
    + trunc(h_rest_days(m)), round_even(u + (h_rest_s(m, d) - trunc(h_rest_s(m,
    d) / 86400) * 86400) * 1000000, 0))
h_interval_times(i, f): h_spread(h_months(i) * f, h_days_of(i) * f, h_micros(i) * f)
h_interval_over(i, f): CASE WHEN f = 0 AND i IS NOT NULL
    THEN error('herdpy:22012:division by zero') ELSE h_spread(h_months(i) / nullif(f, 0),
    h_days_of(i) / nullif(f, 0), h_micros(i) / nullif(f, 0)) END
h_total(d, u): CAST(d AS HUGEINT) * 86400000000 + u
h_justify_hours(i): h_interval(h_months(i), h_total(h_days_of(i), h_micros(i)) // 86400000000,
    h_total(h_days_of(i), h_micros(i)) % 86400000000)
h_justify_days(i): h_interval((h_months(i) * 30 + h_days_of(i)) // 30, (h_months(i) * 30
    + h_days_of(i)) % 30, h_micros(i))
h_duration_us(i): h_total(h_months(i) * 30 + h_days_of(i), h_micros(i))
h_justify_interval(i): h_interval(h_duration_us(i) // 2592000000000,
    h_duration_us(i) % 2592000000000 // 86400000000, h_duration_us(i) % 86400000000)
h_epoch(i): CAST(h_months(i) // 12 * 31557600000000::HUGEINT + h_total(h_months(i) % 12 * 30
    + h_days_of(i), h_micros(i)) AS DECIMAL(38,0)) * 0.000001
h_duration(i): CASE WHEN abs(h_duration_us(i)) > 9223372036854775807
    THEN error('herdpy:22008:interval out of range: a result has at most 292,000 years')
    ELSE CAST(h_duration_us(i) AS BIGINT) END
h_unit_text(n, is_after, unit): CASE WHEN n = 0 THEN NULL ELSE CASE WHEN is_after AND n > 0
    THEN '+' ELSE '' END || n || unit || CASE WHEN n = 1 THEN '' ELSE 's' END END
h_clock_text(u): printf('%02d:%02d:%02d', u // 3600000000, u // 60000000 % 60, u // 1000000 % 60)
    || CASE WHEN u % 1000000 = 0 THEN '' ELSE rtrim(printf('.%06d', u % 1000000), '0') END
h_show_interval(i): CASE WHEN i IS NULL THEN NULL
    ELSE concat_ws(' ', h_unit_text(h_months(i) // 12, FALSE, ' year'),
    h_unit_text(h_months(i) % 12, FALSE, ' mon'), h_unit_text(h_days_of(i), h_months(i) < 0,
    ' day'), CASE WHEN h_micros(i) <> 0 OR (h_months(i) = 0 AND h_days_of(i) = 0)
    THEN CASE WHEN h_micros(i) < 0 THEN '-' WHEN h_days_of(i) < 0 OR (h_days_of(i) = 0
    AND h_months(i) < 0) THEN '+' ELSE '' END || h_clock_text(abs(h_micros(i))) END) END
h_read_interval(x): CASE WHEN x IS NULL THEN NULL WHEN NOT regexp_full_match(x, '{INTERVAL}')
    OR NOT regexp_matches(x, '[0-9]')
    THEN error('herdpy:22007:invalid input syntax for type interval: "' || x || '"')
    ELSE h_in_range(CASE WHEN regexp_matches(x, '(?i)ago\s*$') THEN -1 ELSE 1 END
    * TRY_CAST(regexp_replace(x, '(?i)\+|\s*(ago)?\s*$', '', 'g') AS INTERVAL)) END
h_in_range(i): coalesce(i, error('herdpy:22008:interval out of range'))

-- casts to text
h_text_double(x): CASE WHEN isnan(x) THEN 'NaN' WHEN isinf(x) THEN CASE WHEN x > 0 THEN 'Infinity'
    ELSE '-Infinity' END WHEN abs(x) >= 1e15 AND abs(x) < 1e16 THEN regexp_replace(CASE WHEN x < 0
    THEN '-' ELSE '' END || regexp_replace(rtrim(replace(regexp_replace(CAST(abs(x) AS VARCHAR),
    '\.0$', ''), '.', ''), '0'), '^(.)', '\1.') || 'e+15', '\.e', 'e')
    ELSE regexp_replace(CAST(x AS VARCHAR), '\.0$', '') END
-- as model/reals.py has it; r is x as a DOUBLE
h_is_middle(y): coalesce(TRY_CAST(y AS FLOAT) = y, FALSE)
h_reads_as(t, x, r): coalesce(TRY_CAST(t AS FLOAT) = x, FALSE) AND (CAST(t AS DOUBLE) = r
    OR abs(r) < {MIDDLE_MIN} OR abs(r) >= {MIDDLE_MAX}
    OR NOT h_is_middle(2 * CAST(t AS DOUBLE) - r))
h_real_texts(x, r): list_filter(CASE WHEN abs(x) IN ({UNEVEN}) THEN [CASE WHEN x < 0 THEN '-'
    ELSE '' END || [{UNEVEN}][list_position([{UNEVEN}]::FLOAT[], abs(x))]]
    WHEN abs(r) < 1.1754943508222875e-38 THEN [printf('%.0e', r), printf('%.1e', r),
    printf('%.2e', r), printf('%.3e', r), printf('%.4e', r), printf('%.5e', r), printf('%.6e', r),
    printf('%.7e', r)] ELSE [printf('%.5e', r), printf('%.6e', r), printf('%.7e', r)] END,
    lambda t: h_reads_as(t, x, r))
h_real_written(t): CASE WHEN CAST(regexp_extract(t, 'e(.*)$', 1) AS INTEGER) BETWEEN -4 AND 5
    THEN regexp_replace(CAST(CAST(t AS DOUBLE) AS VARCHAR), '\.0$', '')
    ELSE regexp_replace(t, '\.?0*e', 'e') END
h_text_real(x): CASE WHEN isnan(x) THEN 'NaN' WHEN isinf(x) THEN CASE WHEN x > 0 THEN 'Infinity'
    ELSE '-Infinity' END ELSE list_transform([coalesce(h_real_texts(x, CAST(x AS DOUBLE))[1],
    printf('%.8e', CAST(x AS DOUBLE)))], lambda t: h_real_written(t))[1] END
h_text_bytes(x): '\x' || lower(hex(x))

-- casts from text
h_smallint(x): CASE WHEN x IS NULL THEN NULL
    WHEN NOT regexp_full_match(x, '\s*[+-]?[0-9]{1,400}\s*')
    THEN error('herdpy:22P02:invalid input syntax for type smallint: "' || x || '"')
    WHEN TRY_CAST(ltrim(trim(x, h_blanks()), '+') AS SMALLINT) IS NULL
    THEN error('herdpy:22003:value out of range for type smallint: "' || x || '"')
    ELSE TRY_CAST(ltrim(trim(x, h_blanks()), '+') AS SMALLINT) END
h_integer(x): CASE WHEN x IS NULL THEN NULL
    WHEN NOT regexp_full_match(x, '\s*[+-]?[0-9]{1,400}\s*')
    THEN error('herdpy:22P02:invalid input syntax for type integer: "' || x || '"')
    WHEN TRY_CAST(ltrim(trim(x, h_blanks()), '+') AS INTEGER) IS NULL
    THEN error('herdpy:22003:value out of range for type integer: "' || x || '"')
    ELSE TRY_CAST(ltrim(trim(x, h_blanks()), '+') AS INTEGER) END
h_bigint(x): CASE WHEN x IS NULL THEN NULL
    WHEN NOT regexp_full_match(x, '\s*[+-]?[0-9]{1,400}\s*')
    THEN error('herdpy:22P02:invalid input syntax for type bigint: "' || x || '"')
    WHEN TRY_CAST(ltrim(trim(x, h_blanks()), '+') AS BIGINT) IS NULL
    THEN error('herdpy:22003:value out of range for type bigint: "' || x || '"')
    ELSE TRY_CAST(ltrim(trim(x, h_blanks()), '+') AS BIGINT) END
h_double(x): CASE WHEN x IS NULL THEN NULL
    WHEN regexp_full_match(x, '(?i)\s*[+-]?(nan|inf|infinity)\s*')
    THEN CAST(ltrim(trim(x, h_blanks()), '+') AS DOUBLE) WHEN NOT regexp_full_match(x, '{NUMBER}')
    THEN error('herdpy:22P02:invalid input syntax for type double: "' || x || '"')
    WHEN isinf(CAST(ltrim(trim(x, h_blanks()), '+') AS DOUBLE))
    OR (CAST(ltrim(trim(x, h_blanks()), '+') AS DOUBLE) = 0 AND regexp_matches(regexp_replace(x,
    '[eE].*', ''), '[1-9]')) THEN error('herdpy:22003:value out of range for type double: "' || x
    || '"') ELSE CAST(ltrim(trim(x, h_blanks()), '+') AS DOUBLE) END
h_real(x): CASE WHEN x IS NULL THEN NULL
    WHEN regexp_full_match(x, '(?i)\s*[+-]?(nan|inf|infinity)\s*')
    THEN CAST(ltrim(trim(x, h_blanks()), '+') AS FLOAT) WHEN NOT regexp_full_match(x, '{NUMBER}')
    THEN error('herdpy:22P02:invalid input syntax for type real: "' || x || '"')
    WHEN isinf(CAST(ltrim(trim(x, h_blanks()), '+') AS FLOAT))
    OR (CAST(ltrim(trim(x, h_blanks()), '+') AS FLOAT) = 0 AND regexp_matches(regexp_replace(x,
    '[eE].*', ''), '[1-9]')) THEN error('herdpy:22003:value out of range for type real: "' || x
    || '"') ELSE CAST(ltrim(trim(x, h_blanks()), '+') AS FLOAT) END
-- of a DOUBLE, as conversions.to_real has it; DuckDB itself finds what is too great
h_to_real(x): CASE WHEN x <> 0 AND CAST(x AS FLOAT) = 0
    THEN error('herdpy:22003:value out of range: underflow') ELSE CAST(x AS FLOAT) END
h_real_over(a, b): CASE WHEN b <> 0 OR a IS NULL OR b IS NULL
    THEN h_to_real(CAST(a AS DOUBLE) / nullif(CAST(b AS DOUBLE), 0)) WHEN isnan(a) THEN a
    ELSE error('herdpy:22012:division by zero') END
-- A number's text without exponent: of those DuckDB makes DECIMALs of too many digits, or none.
h_mantissa(x): regexp_replace(regexp_replace(x, '[eE].*', ''), '[^0-9]', '', 'g')
-- how many of its digits are before the point; NULL without exponent
h_point(x): strlen(regexp_extract(x, '^[+-]?([0-9]*)', 1)) + TRY_CAST(regexp_extract(x,
    '[eE]([+-]?[0-9]{1,4})$', 1) AS BIGINT)
h_plain(x): CASE WHEN h_point(x) IS NULL THEN x ELSE CASE WHEN starts_with(x, '-') THEN '-'
    ELSE '' END || CASE WHEN h_point(x) <= 0 THEN '0.' || repeat('0', -h_point(x))
    || h_mantissa(x) ELSE rpad(h_mantissa(x), CAST(h_point(x) AS INTEGER), '0') || '.'
    || substr(h_mantissa(x), h_point(x) + 1) END END
-- What no type tells from 0; DuckDB refuses such exponents.
h_number(x): CASE WHEN x IS NULL THEN NULL WHEN regexp_full_match(x, '{NUMBER}')
    THEN regexp_replace(ltrim(trim(x, h_blanks()), '+'),
    '^(-?[0.]*[eE].*|[^eE]*[eE]-0*[0-9]{4,})$', '0')
    ELSE error('herdpy:22P02:invalid input syntax for type decimal: "' || x || '"') END
h_fits(y, x): CASE WHEN y IS NULL AND x IS NOT NULL
    THEN error('herdpy:22003:value out of range for type decimal: "' || x || '"') ELSE y END
h_boolean(x): CASE WHEN x IS NULL THEN NULL WHEN lower(trim(x, h_blanks())) IN ('t', 'tr', 'tru',
    'true', 'y', 'ye', 'yes', 'on', '1') THEN TRUE WHEN lower(trim(x, h_blanks())) IN ('f', 'fa',
    'fal', 'fals', 'false', 'n', 'no', 'of', 'off', '0') THEN FALSE
    ELSE error('herdpy:22P02:invalid input syntax for type boolean: "' || x || '"') END
h_octal(p): CAST(substr(p, 2, 1) AS INTEGER) * 64 + CAST(substr(p, 3, 1) AS INTEGER) * 8
    + CAST(substr(p, 4, 1) AS INTEGER)
h_unescaped(x): unhex(array_to_string(list_transform(regexp_extract_all(x,
    '(?s)\\\\|\\[0-3][0-7]{2}|[^\\]'), lambda p: CASE WHEN p = '\\' THEN '5C'
    WHEN starts_with(p, '\') THEN printf('%02X', h_octal(p)) ELSE hex(p) END), ''))
h_bytea(x): CASE WHEN x IS NULL THEN NULL WHEN regexp_full_match(x, '\\x([0-9a-fA-F]{2})*')
    THEN unhex(substr(x, 3)) WHEN NOT contains(x, '\') THEN encode(x) WHEN starts_with(x, '\x')
    THEN error('herdpy:22023:invalid hexadecimal data: "' || x || '"')
    WHEN regexp_full_match(x, '(?s)(\\\\|\\[0-3][0-7]{2}|[^\\])*') THEN h_unescaped(x)
    ELSE error('herdpy:22P02:invalid input syntax for type bytea: "' || x || '"') END
h_text_date(x): h_date(CASE WHEN x IS NULL THEN NULL
    WHEN NOT regexp_full_match(x, '\s*[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}\s*')
    THEN error('herdpy:22007:invalid input syntax for type date: "' || x || '"')
    WHEN TRY_CAST(trim(x, h_blanks()) AS DATE) IS NULL
    THEN error('herdpy:22008:date/time field value out of range: "' || x || '"')
    ELSE TRY_CAST(trim(x, h_blanks()) AS DATE) END)
h_text_timestamp(x): h_timestamp(CASE WHEN x IS NULL THEN NULL
    WHEN NOT regexp_full_match(x,
    '\s*[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([ T]+[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?\s*')
    THEN error('herdpy:22007:invalid input syntax for type timestamp: "' || x || '"')
    WHEN TRY_CAST(trim(x, h_blanks()) AS TIMESTAMP) IS NULL
    THEN error('herdpy:22008:date/time field value out of range: "' || x || '"')
    ELSE TRY_CAST(trim(x, h_blanks()) AS TIMESTAMP) END)
-- p has the parts of a text that is of the form
h_zone(p): CASE WHEN p['s'] = '' THEN 0 WHEN CAST(p['h'] AS BIGINT) > 15 OR (p['m'] <> ''
    AND CAST(p['m'] AS BIGINT) > 59) OR (p['z'] <> '' AND CAST(p['z'] AS BIGINT) > 59)
    THEN error('herdpy:22009:time zone displacement out of range') ELSE CASE WHEN p['s'] = '-'
    THEN -1000000 ELSE 1000000 END * (CAST(p['h'] AS BIGINT) * 3600 + CASE WHEN p['m'] = ''
    THEN 0 ELSE CAST(p['m'] AS BIGINT) * 60 END + CASE WHEN p['z'] = '' THEN 0
    ELSE CAST(p['z'] AS BIGINT) END) END
h_zoned(p): TRY_CAST(trim(p['d'] || ' ' || p['t']) AS TIMESTAMP) - to_microseconds(h_zone(p))
h_text_timestamptz(x): CASE WHEN x IS NULL THEN NULL WHEN NOT regexp_full_match(x, '{ZONED}')
    THEN error('herdpy:22007:invalid input syntax for type timestamptz: "' || x || '"')
    ELSE coalesce(h_timestamp(list_transform([regexp_extract(x, '{ZONED}',
    ['d', 't', 's', 'h', 'm', 'z'])], lambda p: h_zoned(p))[1]),
    error('herdpy:22008:date/time field value out of range: "' || x || '"')) END
-- the value of a scalar subquery, of which s has the number of rows and the first value
h_one_row(s): CASE WHEN s.n > 1
    THEN error('herdpy:21000:more than one row returned by a subquery used as an expression')
    ELSE s.v END

-- exact quotients: n and d are HUGEINT, the result is n * m / d, half away from zero
h_unscaled(x): CAST(replace(CAST(x AS VARCHAR), '.', '') AS HUGEINT)
h_half(n, d, r): CASE WHEN 2 * abs(r) >= abs(d) THEN CASE WHEN (n < 0) = (d < 0) THEN 1
    ELSE -1 END ELSE 0 END
-- of counts d > 0: half a step is added before the division cuts
h_mean(n, d, m): (n // d) * m + (2 * (n % d) * m + sign(n) * d) // (2 * d)
h_steps1(n, d, m): (n // d) * m + ((n % d) * m) // d + h_half(n, d, ((n % d) * m) % d)
h_steps2(n, d, m, k): ((n // d) * m + ((n % d) * m) // d) * k + ((((n % d) * m) % d) * k) // d
    + h_half(n, d, ((((n % d) * m) % d) * k) % d)
h_steps3(n, d, m, k, l): (((n // d) * m + ((n % d) * m) // d) * k
    + ((((n % d) * m) % d) * k) // d) * l + ((((((n % d) * m) % d) * k) % d) * l) // d + h_half(n,
    d, ((((((n % d) * m) % d) * k) % d) * l) % d)
-- nullif, as DuckDB may compute parts that are common to several places before the CASE.
h_quotient1(n, d, m): CASE WHEN d = 0 AND n IS NOT NULL
    THEN error('herdpy:22012:division by zero') ELSE h_steps1(n, nullif(d, 0), m) END
h_quotient2(n, d, m, k): CASE WHEN d = 0 AND n IS NOT NULL
    THEN error('herdpy:22012:division by zero') ELSE h_steps2(n, nullif(d, 0), m, k) END
h_quotient3(n, d, m, k, l): CASE WHEN d = 0 AND n IS NOT NULL
    THEN error('herdpy:22012:division by zero') ELSE h_steps3(n, nullif(d, 0), m, k, l) END
"""


def _macros() -> Iterator[tuple[str, str]]:
    for head, body in re.findall(r"^(\w+\(.*?\)): (.*(?:\n    .*)*)", _TEXT, re.MULTILINE):
        words = re.sub(r"\{([A-Z_]+)\}", lambda found: _WORDS[found[1]], body)
        yield head, words.replace("\n    ", " ")


MACROS = {head.partition("(")[0]: (head, body) for head, body in _macros()}
"""By name: name and parameters, body; in the order of their making.

DuckDB puts the text of an argument wherever its parameter stands: see needs_names().
"""

_MACRO_CALL = re.compile(r"\bh_\w+")


def macros_of(text: str) -> frozenset[str]:
    """Return the names of the macros that a text takes, those that they call included."""
    if "h_" not in text:
        return frozenset()
    return frozenset().union(*map(_taken_by, MACROS.keys() & _MACRO_CALL.findall(text)))


@cache
def _taken_by(name: str) -> frozenset[str]:
    """Return a macro's name, and those of all that it calls, by others as well."""
    called = MACROS.keys() & _MACRO_CALL.findall(MACROS[name][1])
    return frozenset((name,)).union(*map(_taken_by, called))


def _uses_once(head: str, body: str) -> bool:
    """Tell whether a macro's text has each parameter once at the most, and no other macro."""
    _, _, parameters = head.rstrip(")").partition("(")
    names = [name.strip() for name in parameters.split(",")]
    counts = [len(re.findall(rf"\b{name}\b", body)) for name in names if name]
    return max(counts, default=0) <= 1 and not _MACRO_CALL.search(body)


_PLAIN_MACROS = frozenset(
    head.partition("(")[0] for head, body in MACROS.values() if _uses_once(head, body)
)


def needs_names(text: str, argument: str) -> bool:
    """Tell whether DuckDB would read the argument several times, its macros put into the text."""
    return text.count(argument) > 1 or not _PLAIN_MACROS.issuperset(_MACRO_CALL.findall(text))

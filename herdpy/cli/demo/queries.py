"""What the demo asks: a dozen questions, from one row by key to windows over a year of delays."""

import datetime
from typing import Any, NamedTuple


class Question(NamedTuple):
    """A title, a statement, and its parameters."""

    title: str
    sql: str
    parameters: tuple[Any, ...] = ()


_MORNING = datetime.datetime(2013, 1, 1, 11)

QUESTIONS = (
    Question(
        "One flight, by its key",
        """\
SELECT carrier, flight, tailnum, origin, dest, dep_delay, arr_delay
FROM flights
WHERE time_hour = ? AND carrier = ? AND flight = ?""",
        (datetime.datetime(2013, 1, 1, 10), "UA", 1545),
    ),
    Question(
        "What left in the first hour of New Year's morning: a range of the key, in its order",
        """\
SELECT time_hour, carrier, flight, origin, dest, dep_delay
FROM flights
WHERE time_hour = ?
ORDER BY carrier, flight
LIMIT 6""",
        (_MORNING,),
    ),
    Question(
        "Long delays of that day, found in key order, latest first",
        """\
SELECT time_hour, carrier, flight, dest, dep_delay
FROM flights
WHERE time_hour >= ? AND time_hour < ? AND dep_delay > 180
ORDER BY time_hour DESC, carrier DESC, flight DESC
LIMIT 5""",
        (_MORNING, _MORNING + datetime.timedelta(days=1)),
    ),
    Question(
        "The busiest routes",
        """\
SELECT origin, dest, count(*) AS flights, min(distance) AS miles
FROM flights
GROUP BY origin, dest
ORDER BY flights DESC, origin, dest
LIMIT 5""",
    ),
    Question(
        "Who arrives late? Airlines by mean delay",
        """\
SELECT a.name, count(*) AS flights, round(avg(f.arr_delay), 1) AS mean_delay,
       round(100.0 * sum(CASE WHEN f.arr_delay > 30 THEN 1 ELSE 0 END) / count(*), 1) AS late
FROM flights f
JOIN airlines a ON a.carrier = f.carrier
WHERE f.arr_delay IS NOT NULL
GROUP BY a.name
ORDER BY mean_delay DESC
LIMIT 6""",
    ),
    Question(
        "A week in July: zone maps leave out the pages of the other 51",
        """\
SELECT day, count(*) AS flights, count(*) - count(dep_time) AS cancelled
FROM flights
WHERE time_hour >= TIMESTAMP '2013-07-01 04:00:00' AND time_hour < TIMESTAMP '2013-07-08 04:00:00'
GROUP BY month, day
ORDER BY month, day""",
    ),
    Question(
        "Who built what flies: three tables",
        """\
SELECT p.manufacturer, count(DISTINCT p.tailnum) AS planes, count(*) AS flights,
       count(DISTINCT a.name) AS airlines
FROM flights f
JOIN planes p ON p.tailnum = f.tailnum
JOIN airlines a ON a.carrier = f.carrier
GROUP BY p.manufacturer
HAVING count(*) > 5000
ORDER BY flights DESC""",
    ),
    Question(
        "Destinations that the table of airports does not know",
        """\
SELECT f.dest, count(*) AS flights
FROM flights f
LEFT JOIN airports a ON a.faa = f.dest
WHERE a.faa IS NULL
GROUP BY f.dest
ORDER BY flights DESC""",
    ),
    Question(
        "Does fog delay? Departures by visibility in that hour",
        """\
SELECT CASE WHEN w.visib < 2 THEN 'under 2 miles'
            WHEN w.visib < 10 THEN '2 to 10 miles'
            ELSE 'clear' END AS visibility,
       count(*) AS flights, round(avg(f.dep_delay), 1) AS mean_delay
FROM flights f
JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
GROUP BY 1
ORDER BY mean_delay DESC""",
    ),
    Question(
        "Planes that saw the most airports, by a common table expression",
        """\
WITH visits AS (
    SELECT tailnum, count(DISTINCT dest) AS airports, sum(distance) AS miles
    FROM flights
    WHERE tailnum IS NOT NULL
    GROUP BY tailnum
)
SELECT v.tailnum, p.manufacturer, p.model, v.airports, v.miles
FROM visits v
JOIN planes p ON p.tailnum = v.tailnum
ORDER BY v.airports DESC, v.miles DESC
LIMIT 5""",
    ),
    Question(
        "The worst day of each month: a window over delays",
        """\
SELECT month, day, mean_delay, flights
FROM (
    SELECT month, day, round(avg(dep_delay), 1) AS mean_delay, count(*) AS flights,
           rank() OVER (PARTITION BY month ORDER BY avg(dep_delay) DESC) AS place
    FROM flights
    GROUP BY month, day
) AS days
WHERE place = 1
ORDER BY month""",
    ),
    Question(
        "Delays of Christmas week, and the mean of the seven days before each",
        """\
WITH days AS (
    SELECT month, day, avg(dep_delay) AS delay
    FROM flights
    GROUP BY month, day
), smooth AS (
    SELECT month, day, delay,
           avg(delay) OVER (ORDER BY month, day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS week
    FROM days
)
SELECT month, day, round(delay, 1) AS mean_delay, round(week, 1) AS mean_of_7_days
FROM smooth
WHERE month = 12 AND day BETWEEN 20 AND 26
ORDER BY day""",
    ),
)

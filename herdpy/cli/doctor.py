"""`herdpy doctor`: what is wrong with a directory, on paper."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from herdpy.cli.backup import progress_bar
from herdpy.driver.doctor import examine


def run_doctor(directory: Path, console: Console) -> int:
    """Print a report and return the exit code; herdpy.Error."""
    with progress_bar(console, "doctor") as tick:
        report = examine(directory, tick)
    for damage in report.damages:
        line = Text("damage: ", style="bold red")
        line.append(damage, style="default")
        console.print(line)
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    console.print(
        f"{directory}: {report.table_count:,} tables, {report.page_count:,} pages with "
        f"{report.row_count:,} rows in {report.segment_count:,} segments of "
        f"{report.byte_count:,} bytes, {report.log_record_count:,} log records behind them",
        highlight=False,
    )
    if report.damages:
        console.print(
            f"{len(report.damages):,} damages: restore a backup; what can still be read can be "
            "saved before by `herdpy dump`",
            highlight=False,
        )
        return 1
    console.print("no damage", highlight=False)
    return 0

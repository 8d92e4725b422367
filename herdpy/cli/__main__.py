"""python -m herdpy.cli is the herdpy command."""

from herdpy.cli.commands import main

main()

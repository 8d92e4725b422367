"""python -m herdpy.cli.demo [DIRECTORY] runs the demo, in ./demo-data by default."""

import sys

from herdpy.cli.demo.tour import run_demo

sys.exit(run_demo(*(sys.argv[1:2] or ["./demo-data"])))

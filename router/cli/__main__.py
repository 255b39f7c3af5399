"""`python -m router.cli` is `pointsman`."""

from router.cli.main import main

main()

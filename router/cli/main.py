"""`pointsman`: every command, and how each ends.

Exit codes: 0 done, 1 the work failed or part of the input was refused, 2 usage or settings, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from router.cli import (
    ask,
    bench,
    check_queries,
    classify,
    collection,
    config,
    demo,
    doctor,
    evaluate,
    ingest,
    keys,
    label,
    migrate,
    reembed,
    replay,
    rollout,
    scan,
    serve,
    trace,
    train,
)
from router.settings import BadSettings
from router.telemetry.logs import quiet_logs
from standard.domain.errors import PointsmanError

_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""The base of everything that is wrong with a command's words; typer carries its own copy of click and exports only
the leaves."""


def build_app() -> typer.Typer:
    """The command tree."""
    app = typer.Typer(
        name="pointsman",
        help="A query-router gateway in front of RAG.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for module in (
        demo,
        serve,
        ingest,
        collection,
        ask,
        classify,
        trace,
        keys,
        label,
        train,
        scan,
        check_queries,
        evaluate,
        bench,
        doctor,
        migrate,
        reembed,
        rollout,
        replay,
        config,
    ):
        module.register(app)
    return app


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        quiet_logs()
        code = build_app()(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except _USAGE_ERROR as error:
        error.show()
        sys.exit(2)
    except BadSettings as error:
        for problem in error.problems:
            print(f"pointsman: {problem}", file=sys.stderr)
        sys.exit(2)
    except PointsmanError as error:
        print(f"pointsman: {error.message}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output left; what is buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk, a folder that is not ours
        print(f"pointsman: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)

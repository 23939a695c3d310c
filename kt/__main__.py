"""The `kt` command, also as `python -m kt`: what may fail before the command line itself is there.

Only what `listen` needs is loaded before it. Ctrl-C while Python itself starts (its `site`, the entry script), in the
first 20 ms or so, is dealt with by Python, as in any program: a traceback or the end by the signal.
"""

import sys

from kt.interrupts import ended_by, exit_code, leave, listen

PACKAGES = ("jinja2", "numpy", "platformdirs", "pydantic", "rich", "typer", "yaml")


def main() -> None:
    """Entry point of the `kt` script. The imports belong to the command: Ctrl-C may come during them too."""
    try:
        listen()
        from kt.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        print(f"kt: {ended_by()}", file=sys.stderr)
        sys.exit(exit_code())
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        print(f"kt: error: the Python package {error.name} is missing", file=sys.stderr)
        print("hint: `pip install '.[cuda13]'` in the checkout installs kt with all that it needs", file=sys.stderr)
        sys.exit(1)
    finally:
        _end_by_exit_code()


def _end_by_exit_code() -> None:
    """From here on all is done, and no signal must take the place of the exit code.

    Python ends by SIGINT of its own accord if Ctrl-C came while a text was being executed, as `dataclasses` and others
    do with theirs, whoever has dealt with it; the next text makes it forget that.
    """
    leave()
    exec("")


if __name__ == "__main__":
    main()

"""The `kt` command, also as `python -m kt`: what may fail before the command line itself is there."""

import sys

PACKAGES = ("jinja2", "numpy", "platformdirs", "pydantic", "rich", "typer", "yaml")
INTERRUPTED = 130


def main() -> None:
    """Entry point of the `kt` script. The imports belong to the command: Ctrl-C may come during them too."""
    try:
        from kt.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("kt: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        print(f"kt: error: the Python package {error.name} is missing", file=sys.stderr)
        print("hint: `pip install .` in the checkout installs kt with all that it needs", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()

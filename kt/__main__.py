"""`python -m kt` is the `kt` command."""

from kt.cli.main import main

if __name__ == "__main__":
    main()

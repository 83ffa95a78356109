"""`python -m sandpool` is the `sandpool` command."""

from sandpool.cli.main import main

if __name__ == "__main__":
    main()

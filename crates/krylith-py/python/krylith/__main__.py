"""`python -m krylith` is the `krylith` command."""

from krylith._command import main

if __name__ == "__main__":
    main()

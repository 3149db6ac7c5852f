"""The `krylith` command."""

import sys

from krylith import _native


def main() -> None:
    """Run the command line of this process and end it with the command's exit code."""
    sys.exit(_native.main(sys.argv))

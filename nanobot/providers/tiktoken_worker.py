"""A process that counts the tokens of its standard input and exits: `… FILE MODEL`."""

from __future__ import annotations

import sys


def main() -> int:
    """Print the count. Fail if the encoding can be neither read nor fetched."""
    import tiktoken

    try:
        encoding = tiktoken.encoding_for_model(sys.argv[1])
    except KeyError:
        encoding = tiktoken.get_encoding("o200k_base")
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    print(len(encoding.encode_ordinary(text)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line of contract 2: the same calls as the pages, without a browser."""

"""The `feed` command's work: a file or standard input into the stream, with its report."""

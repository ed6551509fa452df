"""What labels teach the learners, maps and forms of the library, beside other people's methods: the tables of
docs/results.md, made by `python -m tests.results` (`make results`)."""

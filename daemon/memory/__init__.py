"""Memory: how much there is, what each role needs, what to choose instead, and a word before it runs out."""

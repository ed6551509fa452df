"""The five topics of a stream: what they should be, what they are, and creating them."""

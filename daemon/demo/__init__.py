"""A demonstration on real photos: simulated users, the loop, a report."""

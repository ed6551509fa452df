"""People's ratings of what two rankings find: the study, how it is mixed, where it is kept, what it says."""

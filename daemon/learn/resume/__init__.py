"""Where a learner starts: options, inputs, checks against the past, the sample for the maps."""

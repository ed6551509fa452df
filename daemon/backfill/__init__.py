"""Learning from history: months of clicks in files or in a log, by several learners whose states are merged
again and again, to a version that the live learner goes on from."""

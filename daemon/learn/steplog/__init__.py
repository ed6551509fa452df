"""The step log: what each applied batch changed, written for those who follow the learner."""

"""The step log: applied steps, published so that a replica follows a learner between its versions."""

"""The validate role: judges versions on the holdout stream and says which one is best and when to stop."""

"""The roles as child processes: started, watched, started again, and never outliving their parent."""

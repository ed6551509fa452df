"""What clicks teach, drawn over their number: real sets, simulated users, many settings, rivals on the same
clicks. Rows, rules and steps are those of the product; the loop is made for speed, without logs or processes.
"""

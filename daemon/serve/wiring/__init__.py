"""What joins the parts of serve: each file fills the ports of one part from the others."""

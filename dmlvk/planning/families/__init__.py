"""What plans of operators of a kind share."""

"""What the package shares and no user calls: checks of arguments, files, text for a terminal, locks."""

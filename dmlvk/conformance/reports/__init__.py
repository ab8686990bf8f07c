"""What a run looks like: in the terminal, as JUnit XML, as a page of HTML."""

"""Reports of a run: in the terminal, as JUnit XML, as a page of HTML."""

"""What the documentation is made of besides the text in docs/: pages from the sources, and the build."""

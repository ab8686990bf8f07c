"""How QUANTIZED_LINEAR_CONVOLUTION runs: kernel paths, and the choice between them."""

"""A small convolutional network that reads handwritten digits: its training, its quantization, and its use."""

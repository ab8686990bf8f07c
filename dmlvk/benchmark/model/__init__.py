"""A whole ONNX model: measured in its parts, as a record, as tables and as a picture."""

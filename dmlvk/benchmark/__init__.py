"""The benchmark harness behind `dmlvk bench` and `dmlvk tune`.

cases/         the measured cases, as workloads of the same kind as the conformance suite's
marks.py       the best rates that the device reaches: copy, fill, multiply-adds from registers
measurement.py one operator on a device: its times, and a check of its result
peers/         other libraries on the same work, one module each
harness.py     a whole run, as one record that can be written as JSON
tables.py      prints the record as tables; picture.py draws it
model/         an ONNX model as a whole, in its parts
networks/      well-known networks as data
records.py     what all records have; kinds.py tells how each kind is shown; sections.py prints tables of text
device_rates.py measures the rates by which the planner estimates and chooses paths
"""

"""The benchmark harness behind `dmlvk bench` and `dmlvk tune`.

cases/         what is measured, as the workloads that the conformance suite uses
marks.py       what the device reaches at best: copy, fill, multiply-adds from registers
measurement.py one operator on a device: times, and its result checked
peers/         other libraries on the same work, one module each
harness.py     all of it, as one record that can be written as JSON
tables.py      the record as tables; roofline.py as a picture
tuner.py       which kernel path is the fastest, remembered for the device
"""

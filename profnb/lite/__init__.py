"""Models for a phone or a board: converted to LiteRT (TensorFlow Lite), run, judged and compared.

entry                    ``profnb.lite``, and the results that a user holds: report, files, two compared
measuring                what was given, to findings: converted, timed, judged, looked into
lite_data                a user's data, and what an int8 conversion is calibrated with
conversion               a Keras model or SavedModel to ``.tflite`` files; the Keras model run beside them
process/                 what runs in processes of its own: the converter, the interpreters
op_study                 each model's ops: the layers they are from, errors and times
findings                 what is known of each model, op and layer: the values that are saved, and the tables
advice                   what to change
section                  the verdict, the sections
"""

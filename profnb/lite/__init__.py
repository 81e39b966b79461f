"""Models for a phone or a board: converted to LiteRT (TensorFlow Lite), run, judged and compared.

entry                    ``profnb.lite``, and the result that a user holds: report, files
measuring                what was given, to findings: converted, timed, judged, looked into
lite_data                a user's data, and what an int8 conversion is calibrated with
keras_model              the Keras model beside its conversions: run, and saved as the converter would
conversion               a Keras model or SavedModel to ``.tflite`` files
process/                 what runs in processes of its own: the converter, the interpreters
op_layers, op_study      ops to the layers they are from; each model's ops: their layers, errors and times
findings                 what is known of each model, op and layer: the values that are saved
lite_tables              the tables, declared
advice                   what to change
section                  the verdict, the sections
lite_comparison          two results, kind by kind
"""

"""Models for a phone or a board: converted to LiteRT (TensorFlow Lite), run, judged and compared.

entry            ``profnb.lite``
gathering        what was given, to a result
given            a user's data, and what an int8 conversion is calibrated with
conversion       a Keras model or SavedModel to ``.tflite`` files
process/         what runs in processes of its own: the converter, the interpreters
saved_model      a Keras model to a SavedModel, as the converter would
input_order      which array goes to which input
measured/        files to findings: timed, judged, looked into op by op
judging          outputs to accuracy, agreement and their intervals
findings         what is known of each model, op and layer: the values that are saved
lite_tables      the tables, declared
advice           what to change
shown/           the verdict, the sections
result           what a user holds: report, files, comparison
"""

"""Models for a phone or a board: converted to LiteRT (TensorFlow Lite), run, judged and compared.

entry            ``profnb.lite``
gathering        what was given, to a result
given            a user's data, and what an int8 conversion is calibrated with
conversion       a Keras model or SavedModel to ``.tflite`` files
process/         what runs in processes of its own: the converter, the interpreters
keras_side       the Keras model itself, in this process
op_layers        ops of a model to Keras layers, and ops of the delegate to ops of the model
judging          outputs to accuracy, agreement and their intervals
findings         what is known of each model, op and layer: the values that are saved
measuring        models to findings
lite_tables      the tables, declared
advice           what to change
shown/           the verdict, the sections
result           what a user holds: report, files, comparison
"""

"""Advice as edits of the user's source: what changes, as text that stays as it was typed all around.

source_text        one source, parsed: where its nodes stand, and text put in its place
program_text       all sources together: what their names mean, which datasets and models they use
dataset_edits      stages of a tf.data pipeline: cached, prefetched, run in parallel
call_edits         keywords of calls, statements that set something, functions and models compiled
editing            which edits each rule's advice has; an edit, all that advice has, and several in one
"""

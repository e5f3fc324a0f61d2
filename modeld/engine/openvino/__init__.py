"""The OpenVINO engine: continuous batching stepped by us, one request at a time.

`convert` turns a GGUF file into IR once, `vocabulary` is the text side, `blocks` (pure) keeps the
books of the pipeline's prefix cache, `pipeline` steps requests, `engine` is the contract's face.
"""

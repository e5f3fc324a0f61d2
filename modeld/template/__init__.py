"""A model's own chat template: sandboxed rendering, and what its text tells about the model.

`render.Template` is the face. Used only in workers: a template is untrusted input, the sandbox
limits what it can reach and how much it can write, the worker's owner limits its time and memory.
`detect` makes the output format of the marks that `shared.catalog.template_detection` finds in the text alone.
"""

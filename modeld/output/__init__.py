"""What a model wrote, as typed events: text, reasoning and tool calls, incrementally and without I/O. Pure.

`parser.OutputParser` is the face. Bytes go through `utf8` (whole characters), `stops` (stop strings)
and one grammar: `tagged` (think tags and marked tool calls) or `harmony` (channels). A grammar is a
generator over a `reader.Reader`; it pauses where more text is needed, so every split of the same
output gives the same events joined, and each character is looked at a bounded number of times.
"""

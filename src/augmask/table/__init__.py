"""An incomplete frame becomes arrays, and back.

`frames` reads, `infer` decides what each column is, `schema` records it, `scale` and
`encode` turn a frame into the `Table` of `carrier`, and decode turns codes into a
complete frame again.
"""

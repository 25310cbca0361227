"""From an incomplete frame to arrays, and back.

`frames` reads a table, `infer` infers the `schema` of its columns, and the `codec`
turns a frame into a `Table` of scaled numbers, codes and a mask, and samples into a
frame.
"""

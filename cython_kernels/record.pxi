# Fills the struct that a kernel reads, so that an argument is named there and where it is passed, and nowhere between.
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

cdef int fill(void *task, size_t size, tuple fields) except -1:
    # In the order of the struct, 8 bytes each: numbers, addresses of tensors, NULL for None; those left out are 0.
    cdef int64_t field
    cdef Py_ssize_t k
    if len(fields) * sizeof(field) > size:
        raise TypeError(f"{len(fields)} fields for a struct of {size // sizeof(field)}")
    memset(task, 0, size)
    for k in range(len(fields)):
        value = fields[k]
        field = 0 if value is None else value if isinstance(value, int) else value.data_ptr()
        memcpy(<char *>task + k * sizeof(field), &field, sizeof(field))
    return 0

# Fills the structs that kernels read, every field by name; setup.py writes a `fill_*` for each struct of a header, which
# checks type, length, contiguity and device of tensors as the comments there say.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

import torch

cdef extern from "Python.h":
    void *PyCapsule_GetPointer(object capsule, const char *name) except NULL

cdef enum:
    ANY = 0  # type of an element; lengths are then in bytes
    REAL = 1  # float32 or float64, the same for all such fields of a struct
    INT = 0  # and these as DLPack has them, 256 times the code of a type plus its bits
    UNSIGNED = 256
    FLOAT = 512

# A tensor and the functions that read it, as DLPack 1 lays them out: without a call of Python, since torch 2.10.
cdef struct DLTensor:
    void *data
    int32_t device_type, device_id, ndim
    uint8_t code, bits
    uint16_t lanes
    int64_t *shape
    int64_t *strides
    uint64_t byte_offset

cdef struct Exchange:
    uint32_t major, minor
    void *unread[4]
    int (*read)(void *tensor, DLTensor *out) noexcept
    void *stream

cdef struct View:
    char *data
    int type, bytes, ndim
    int64_t first, count  # elements along the first dimension, and of all
    bint fits  # whether it is contiguous, in main memory and as it seems to be, with memory, and no sign to be changed

cdef struct Filling:
    int real  # type of the REAL fields, 0 before the first
    Py_ssize_t taken  # how many of the given fields were read

cdef Exchange *exchange = NULL
_capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
if _capsule is not None:
    exchange = <Exchange *>PyCapsule_GetPointer(_capsule, "dlpack_exchange_api")
    if exchange.major != 1 or exchange.read == NULL:
        exchange = NULL

_TYPES = {
    torch.float32: FLOAT + 32, torch.float64: FLOAT + 64, torch.int32: INT + 32, torch.int64: INT + 64,
    torch.uint16: UNSIGNED + 16,
}


cdef int look(object value, View *v) except -1:
    cdef DLTensor t
    cdef int64_t step = 1
    cdef int d
    v.fits = not value.is_neg()
    if exchange == NULL:
        v.data, v.type, v.ndim = <char *><size_t>value.data_ptr(), _TYPES.get(value.dtype, -1), value.dim()
        v.count, v.bytes, v.first = value.numel(), value.element_size(), value.size(0) if v.ndim else 1
        v.fits = v.fits and value.is_contiguous() and value.is_cpu and (v.data != NULL or v.count == 0)
        return 0
    if exchange.read(<void *>value, &t):  # which says why
        return -1
    for d in range(t.ndim - 1, -1, -1):
        v.fits = v.fits and (t.shape[d] == 1 or t.strides[d] == step)
        step *= t.shape[d]
    v.fits = step == 0 or v.fits
    v.data, v.type, v.bytes = <char *>t.data + t.byte_offset, 256 * t.code + t.bits, t.bits // 8
    v.ndim, v.first, v.count = t.ndim, t.shape[0] if t.ndim else 1, step
    v.fits = v.fits and t.device_type == 1 and t.lanes == 1 and (t.data != NULL or step == 0)
    return 0


cdef void *tensor(str task, str name, dict fields, Filling *f, int type, bint optional, int ndim, int64_t first,
                  int64_t count) except? NULL:
    """Where the elements of a tensor begin, which has `count`, and `first` along the first of several dimensions."""
    cdef View v
    value = fields.get(name)
    if value is None:
        f.taken += name in fields
        if not optional:
            raise TypeError(f"{task}: {name} is missing")
        return NULL
    f.taken += 1
    try:
        look(value, &v)
    except Exception as error:
        raise TypeError(f"{task}: {name} is no tensor in main memory: {error}") from error
    if type == REAL and f.real == 0 and v.type in (FLOAT + 32, FLOAT + 64):
        f.real = v.type
    if (
        not v.fits
        or v.type != (f.real if type == REAL else type or v.type)
        or v.count * (1 if type else v.bytes) != count
        or (ndim > 1 and type and (v.ndim == 0 or v.first != first))
    ):
        refuse(task, name, fields, f.real if type == REAL else type, first if ndim > 1 else -1, count, type == REAL)
    return v.data


cdef refuse(str task, str name, dict fields, int type, int64_t first, int64_t count, bint is_real):
    value = fields[name]
    names = {number: str(each) for each, number in _TYPES.items()}
    unit = names.get(type, "bytes of any type" if type == ANY else "floating point")
    rows = "" if first < 0 else f" in {first} rows"
    others = [other for other, each in fields.items() if is_real and str(getattr(each, "dtype", "")) == unit]
    alike = f", as {', '.join(others)}" if others and str(value.dtype) != unit else ""
    raise ValueError(
        f"{task}: {name} is {value.dtype} of shape {list(value.shape)} and strides {list(value.stride())} on "
        f"{value.device}{', to be negated' if value.is_neg() else ''}, but must be contiguous in main memory, "
        f"{count} {unit}{rows}{alike}"
    )


cdef object number(str task, str name, dict fields, Filling *f, bint is_size):
    value = fields.get(name)
    if value is None:
        return 0
    f.taken += 1
    if is_size and value < 0:
        raise ValueError(f"{task}: {name} is {value}, but must be at least 0")
    return value


cdef int all_taken(str task, dict fields, Filling *f, tuple names) except -1:
    if f.taken != len(fields):
        raise TypeError(f"{task} has no field {', '.join(sorted(set(fields) - set(names)))}")
    return f.real == FLOAT + 64


cdef inline int need(str task, dict fields, tuple names) except -1:
    """Refuse a task without fields that only some kernels of its struct read."""
    for name in names:
        if fields.get(name) is None:
            raise TypeError(f"{task}: {name} is missing")
    return 0

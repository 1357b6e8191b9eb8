# cython: language_level=3, boundscheck=False, wraparound=False
"""State of a module of torch: everything in it that code may look at to decide how to run it."""

from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from libc.stdlib cimport free, realloc

cdef extern from "Python.h":
    int PyObject_GC_IsTracked(object value)


cdef class State:
    """A module's state at one moment, and what is found at `places` outside: classes or dictionaries, and names in them.

    The state is that of all modules below, too: their classes, names, plain values, shapes and types of tensors, and
    which other objects there are. These are not kept alive, so that a model can be freed.
    """

    cdef void **seen
    cdef Py_ssize_t count
    cdef list held  # what is too short-lived to be told by its address
    cdef list places
    cdef bint recording

    def __init__(self, module, list places):
        self.held, self.places, self.recording = [], places, True
        cdef Py_ssize_t at = 0
        self.meet_module(module, &at)
        self.meet_places(&at)
        self.recording = False

    def __dealloc__(self):
        free(self.seen)

    def holds(self, module) -> bool:
        """Return whether a module is in this state."""
        cdef Py_ssize_t at = 0  # of this thread
        return self.meet_module(module, &at) and self.meet_places(&at) and at == self.count

    cdef bint meet(self, void *thing, Py_ssize_t *at) except -1:
        if self.recording:
            if self.count % 64 == 0:
                self.seen = <void **>realloc(self.seen, (self.count + 64) * sizeof(void *))
                if not self.seen:
                    raise MemoryError("no memory for the state of a module")
            self.seen[self.count] = thing
            self.count += 1
            return True
        at[0] += 1
        return at[0] <= self.count and self.seen[at[0] - 1] == thing

    cdef bint meet_lasting(self, thing, Py_ssize_t *at) except -1:
        if self.recording:
            self.held.append(thing)
        return self.meet(<void *>thing, at)

    cdef bint meet_module(self, module, Py_ssize_t *at) except -1:
        cdef dict own = module.__dict__
        modules, parameters, buffers = own["_modules"], own["_parameters"], own["_buffers"]
        cdef PyObject *name
        cdef PyObject *value
        cdef Py_ssize_t place = 0
        cdef bint are_tensors
        kind = type(module)
        if not (self.meet_lasting(kind, at) and self.meet_lasting(kind.forward, at)):
            return False
        while PyDict_Next(own, &place, &name, &value):
            if not self.meet_lasting(<object>name, at):
                return False
            if isinstance(<object>value, dict):
                are_tensors = <void *>value == <void *>parameters or <void *>value == <void *>buffers
                if not self.meet_dict(<object>value, <void *>value == <void *>modules, are_tensors, at):
                    return False
            elif not self.meet_value(<object>value, at):
                return False
        return True

    cdef bint meet_places(self, Py_ssize_t *at) except -1:
        cdef tuple names
        for holder, names in self.places:
            for name in names:
                value = (<dict>holder).get(name) if isinstance(holder, dict) else getattr(holder, name, None)
                if not self.meet_lasting(value, at):
                    return False
        return True

    cdef bint meet_dict(self, values, bint are_modules, bint are_tensors, Py_ssize_t *at) except -1:
        cdef PyObject *name
        cdef PyObject *value
        cdef Py_ssize_t place = 0
        cdef Py_ssize_t length = len(values)
        if not self.meet(<void *>length, at):
            return False
        if not length:  # as dictionaries of hooks are, which are ordered
            return True
        cdef dict plain = values if type(values) is dict else dict(values)  # as one that is ordered would have it
        while PyDict_Next(plain, &place, &name, &value):
            if not self.meet_lasting(<object>name, at):
                return False
            if are_modules and <object>value is not None:
                if not self.meet_module(<object>value, at):
                    return False
            elif are_tensors and <object>value is not None:
                if not self.meet_tensor(<object>value, at):
                    return False
            elif not self.meet_value(<object>value, at):
                return False
        return True

    cdef bint meet_value(self, value, Py_ssize_t *at) except -1:
        if not PyObject_GC_IsTracked(value):  # such as numbers, which refer to nothing
            return self.meet_lasting(value, at)
        return self.meet_lasting(type(value), at) and self.meet(<void *>value, at)

    cdef bint meet_tensor(self, tensor, Py_ssize_t *at) except -1:
        cdef Py_ssize_t size
        if not self.meet_lasting(type(tensor), at):
            return False
        for size in tensor.shape:
            if not self.meet(<void *>size, at):
                return False
        return True

// Python's C interface, as far as the recorder uses it. The plugin does not link Python; what it
// needs it looks up in the process.
#ifndef NCCLSCOPE_PYTHON_API_H
#define NCCLSCOPE_PYTHON_API_H

#include <stdbool.h>
#include <sys/types.h>

#include "callback_state.h"

#define FILE_INPUT 257  // Py_file_input
#define FAST_CALL 0x80  // METH_FASTCALL: self, arguments, their number

typedef void object;  // of Python's; a reference is one of these

// PyMethodDef.
struct method {
    const char *name;
    void *function;
    int flags;
    const char *documentation;
};

// F(result, name, arguments): exported by every CPython from 3.8 on.
#define PYTHON_FUNCTIONS(F)                                               \
    F(const char *, PyUnicode_AsUTF8AndSize, (object *, ssize_t *))       \
    F(int, Py_IsInitialized, (void))                                      \
    F(void *, PyInterpreterState_Main, (void))                            \
    F(int, Py_AddPendingCall, (int (*)(void *), void *))                  \
    F(object *, Py_CompileString, (const char *, const char *, int))      \
    F(object *, PyEval_EvalCode, (object *, object *, object *))          \
    F(object *, PyEval_GetBuiltins, (void))                               \
    F(object *, PyImport_AddModule, (const char *))                       \
    F(object *, PyModule_GetDict, (object *))                             \
    F(object *, PyDict_New, (void))                                       \
    F(int, PyDict_SetItemString, (object *, const char *, object *))      \
    F(object *, PyCFunction_NewEx, (struct method *, object *, object *)) \
    F(object *, PyUnicode_FromString, (const char *))                     \
    F(int, PyBytes_AsStringAndSize, (object *, char **, ssize_t *))       \
    F(unsigned long long, PyLong_AsUnsignedLongLongMask, (object *))      \
    F(object *, PyLong_FromUnsignedLong, (unsigned long))                 \
    F(object *, PyBool_FromLong, (long))                                  \
    F(double, PyFloat_AsDouble, (object *))                               \
    F(object *, PyObject_Type, (object *))                                \
    F(object *, PyObject_GetAttrString, (object *, const char *))         \
    F(object *, PyObject_Str, (object *))                                 \
    F(object *, PyObject_CallObject, (object *, object *))                \
    F(int, PyCallable_Check, (object *))                                  \
    F(void, PyErr_Fetch, (object **, object **, object **))               \
    F(void, PyErr_NormalizeException, (object **, object **, object **))  \
    F(int, PyErr_GivenExceptionMatches, (object *, object *))             \
    F(void, PyErr_SetInterrupt, (void))                                   \
    F(void, PyErr_Clear, (void))                                          \
    F(void, Py_IncRef, (object *))                                        \
    F(void, Py_DecRef, (object *))
// O(name): objects that it exports.
#define PYTHON_OBJECTS(O) \
    O(PyUnicode_Type) O(PyLong_Type) O(PyFloat_Type) O(PyBytes_Type) O(_Py_NoneStruct)

// What every range of Python's uses comes first, in one cache line.
struct python_api {
#define AS_POINTER(result, name, arguments) result(*name) arguments;
#define AS_OBJECT(name) object *name;
    _Alignas(64) size_t type_offset;  // from an object to its type; 0: only Python knows
    bool none_is_immortal;            // nobody counts references to it: Python 3.12 and later
    PYTHON_OBJECTS(AS_OBJECT) PYTHON_FUNCTIONS(AS_POINTER) object **PyExc_KeyboardInterrupt;
    void *(*current_interpreter)(void);  // NULL: this Python does not say
};
extern HIDDEN struct python_api py;

// Fills `py`. False: there is no Python in this process, or one that lacks something.
bool python_api_find(void);

// All that follows needs Python's lock. Finds out where this Python's objects have their types.
void python_learn_layout(void);
// Whether the calling thread runs the main interpreter; our objects belong to that one.
bool python_is_main_interpreter(void);
COLD bool python_says_type(object *value, const object *type);
// Whether a value is of exactly this type. Python's own function for it, and the one that gives its
// reference back, are used by nobody else: between two ranges the caches lose them.
static inline bool python_has_type(object *value, const object *type) {
    return py.type_offset ? *(object **)((char *)value + py.type_offset) == type
                          : python_says_type(value, type);
}
// A new reference to None.
static inline object *python_none(void) {
    if (!py.none_is_immortal) py.Py_IncRef(py._Py_NoneStruct);
    return py._Py_NoneStruct;
}

#endif

// Looks up Python's functions and objects.
#define _GNU_SOURCE
#include "python_api.h"

#include <dlfcn.h>
#include <pthread.h>

struct python_api py;
static bool is_complete;

static void look_up(void) {
    bool complete = true;
#define FIND(result, name, arguments) FIND_OBJECT(name)
#define FIND_OBJECT(name)                            \
    *(void **)&py.name = dlsym(RTLD_DEFAULT, #name); \
    complete &= py.name != NULL;
    PYTHON_FUNCTIONS(FIND)
    PYTHON_OBJECTS(FIND_OBJECT)
    FIND_OBJECT(PyExc_KeyboardInterrupt)
    *(void **)&py.current_interpreter = dlsym(RTLD_DEFAULT, "PyInterpreterState_Get");
    if (!py.current_interpreter)  // before 3.9
        *(void **)&py.current_interpreter = dlsym(RTLD_DEFAULT, "_PyInterpreterState_Get");
    is_complete = complete;
}

bool python_api_find(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look_up);
    return is_complete;
}

bool python_is_main_interpreter(void) {
    return !py.current_interpreter || py.current_interpreter() == py.PyInterpreterState_Main();
}

bool python_has_type(object *value, const object *type) {
    object *its = py.PyObject_Type(value);
    py.Py_DecRef(its);  // the type lives on, as long as its object
    return its == type;
}

object *python_none(void) {
    py.Py_IncRef(py._Py_NoneStruct);
    return py._Py_NoneStruct;
}

// Looks up Python's functions and objects.
#define _GNU_SOURCE
#include "python_api.h"

#include <dlfcn.h>
#include <pthread.h>

#define PYTHON_3_12 0x030C0000ul

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
    const unsigned long *version = dlsym(RTLD_DEFAULT, "Py_Version");  // from 3.11 on
    py.none_is_immortal = version && *version >= PYTHON_3_12;
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

bool python_says_type(object *value, const object *type) {
    object *its = py.PyObject_Type(value);
    py.Py_DecRef(its);  // the type lives on, as long as its object
    return its == type;
}

// An object has its type behind its count of references: at the second word, or at the fourth in a
// Python without the GIL. A text and a number that agree show which.
void python_learn_layout(void) {
    const size_t words[] = {1, 3};
    object *text = py.PyUnicode_FromString("ncclscope"), *number = py.PyLong_FromUnsignedLong(1);
    for (size_t i = 0; text && number && i < sizeof words / sizeof *words; i++)
        if (((object **)text)[words[i]] == py.PyUnicode_Type &&
            ((object **)number)[words[i]] == py.PyLong_Type) {
            py.type_offset = words[i] * sizeof(object *);
            break;
        }
    if (text) py.Py_DecRef(text);
    if (number) py.Py_DecRef(number);
}

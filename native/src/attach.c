// Python's side of the recorder: a module of functions, and a file that Python runs.
//
// Nothing here takes Python's lock (the GIL): whoever holds it may be waiting for NCCL's init, in
// which we are. The init leaves a pending call, and Python makes it in its main thread, with the
// lock, between two instructions. The file lies beside the plugin, so it needs no path of the job's
// Python.
//
// Functions of the module never raise: a wrong argument is as good as none.
#define _GNU_SOURCE
#include "attach.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "config.h"
#include "context.h"
#include "log.h"
#include "plugin.h"
#include "python_api.h"
#include "range.h"

#define MODULE_NAME "_ncclscope_recorder"
#define FILE_NAME "ncclscope_attach.py"
#define MAX_SOURCE_BYTES (1u << 20)

static enum { NOT_ASKED, ASKED, ATTACHED, FAILED } state;
static object *module;       // its functions are there
static object *new_comm_fn;  // called after each further communicator; NULL: nobody asked
static object *kernels_fn;   // called when somebody wants kernels; NULL: nobody listens
static u64 kernel_steps, kernels_after_ns;
static const char *process_folder = "";
static char attach_path[PATH_MAX];

// ---- arguments ----
// What an argument says a range is: a number from `text`, or the text itself.
static bool set_text(struct range *range, object *text) {
    bool is_text = python_has_type(text, py.PyUnicode_Type);
    if (!is_text && python_has_type(text, py.PyLong_Type)) {
        u64 number = py.PyLong_AsUnsignedLongLongMask(text);
        range->text = number < RANGE_TEXTS ? (u32)number : 0;
        return true;
    }
    ssize_t bytes;
    const char *utf8 = is_text ? py.PyUnicode_AsUTF8AndSize(text, &bytes) : NULL;
    if (!utf8) {
        py.PyErr_Clear();  // a lone surrogate
        return false;
    }
    range->text = range_text(utf8, (size_t)bytes);
    if (!range->text) {
        range->unplaced = utf8;
        range->unplaced_bytes = (size_t)bytes;
    }
    return true;
}

static void set_payload(struct range *range, object *value, u64 *payload) {
    if (python_has_type(value, py.PyLong_Type)) {
        *payload = py.PyLong_AsUnsignedLongLongMask(value);
        range->payload_type = PAYLOAD_I64;
    } else if (python_has_type(value, py.PyFloat_Type)) {
        double number = py.PyFloat_AsDouble(value);
        memcpy(payload, &number, sizeof number);
        range->payload_type = PAYLOAD_DOUBLE;
    } else return;
    range->payload = payload;
    range->payload_bytes = sizeof *payload;
}

// (text, source, payload), of which the last two may be missing. False: there is no text.
static bool set_range(struct range *range, object *const *arguments, ssize_t count, u64 *payload) {
    *range = (struct range){.source = RANGE_API};
    if (count < 1 || !set_text(range, arguments[0])) return false;
    if (count > 1 && python_has_type(arguments[1], py.PyLong_Type))
        range->source = (u8)py.PyLong_AsUnsignedLongLongMask(arguments[1]);
    if (count > 2) set_payload(range, arguments[2], payload);
    return true;
}

// ---- functions of the module ----
static object *range_push_fn(object *self, object *const *arguments, ssize_t count) {
    (void)self;
    struct range range;
    u64 payload;
    set_range(&range, arguments, count, &payload);  // without a text, its pop still finds a push
    range_push(&range, PYTHON_STACK);
    return python_none();
}

// Called for every range of PyTorch's own: without the source that it always has.
static object *push_record_function_fn(object *self, object *const *arguments, ssize_t count) {
    (void)self;
    struct range range = {.source = RANGE_RECORD_FUNCTION};
    if (count) set_text(&range, arguments[0]);
    range_push(&range, PYTHON_STACK);
    return python_none();
}

static object *range_pop_fn(object *self, object *const *arguments, ssize_t count) {
    (void)self, (void)arguments, (void)count;
    range_pop(PYTHON_STACK, NULL);
    return python_none();
}

static object *mark_fn(object *self, object *const *arguments, ssize_t count) {
    (void)self;
    struct range range;
    u64 payload;
    if (set_range(&range, arguments, count, &payload)) range_mark(&range);
    return python_none();
}

static object *text_fn(object *self, object *const *arguments, ssize_t count) {
    (void)self;
    struct range range = {0};
    if (count == 1 && python_has_type(arguments[0], py.PyUnicode_Type))
        set_text(&range, arguments[0]);
    return py.PyLong_FromUnsignedLong(range.text);
}

static object *context_line_fn(object *self, object *const *arguments, ssize_t count) {
    (void)self;
    char *bytes = NULL;
    ssize_t length = 0;
    bool kept = count == 1 && python_has_type(arguments[0], py.PyBytes_Type) &&
                py.PyBytes_AsStringAndSize(arguments[0], &bytes, &length) == 0 &&
                context_append(bytes, (size_t)length);
    return py.PyBool_FromLong(kept);
}

static object *keep_function(object **kept, object *const *arguments, ssize_t count) {
    object *before = *kept;
    *kept = count == 1 && py.PyCallable_Check(arguments[0]) ? arguments[0] : NULL;
    if (*kept) py.Py_IncRef(*kept);
    if (before) py.Py_DecRef(before);
    return python_none();
}

static object *on_communicator_fn(object *self, object *const *arguments, ssize_t count) {
    (void)self;
    return keep_function(&new_comm_fn, arguments, count);
}

static object *on_kernels_fn(object *self, object *const *arguments, ssize_t count) {
    (void)self;
    return keep_function(&kernels_fn, arguments, count);
}

static object *is_recording_fn(object *self, object *const *arguments, ssize_t count) {
    (void)self, (void)arguments, (void)count;
    return py.PyBool_FromLong(callback_state.ranges == RANGES_RECORDED);
}

static struct method methods[] = {
    {"range_push", range_push_fn, FAST_CALL, "range_push(text, source=5, payload=None)"},
    {"push_record_function", push_record_function_fn, FAST_CALL, "push_record_function(text)"},
    {"range_pop", range_pop_fn, FAST_CALL, "range_pop(): ends the innermost range_push."},
    {"mark", mark_fn, FAST_CALL, "mark(text, source=5, payload=None)"},
    {"text", text_fn, FAST_CALL, "text(str) -> int: a number for range_push; 0: no room."},
    {"context_line", context_line_fn, FAST_CALL, "context_line(bytes) -> bool: a line of JSON."},
    {"on_communicator", on_communicator_fn, FAST_CALL, "on_communicator(function or None)"},
    {"on_kernels", on_kernels_fn, FAST_CALL, "on_kernels(function or None)"},
    {"is_recording", is_recording_fn, FAST_CALL, "is_recording() -> bool: False after fork."},
};

// ---- errors: the job sees none of them, the capture has them ----
// The text of an object that is a str, or "".
static const char *text_of(object *text) {
    ssize_t bytes;
    const char *utf8 = text ? py.PyUnicode_AsUTF8AndSize(text, &bytes) : NULL;
    return utf8 ? utf8 : "";
}

static void drop_reference(object *value) {
    if (value) py.Py_DecRef(value);
}

static void note_error(const char *what) {
    object *type = NULL, *value = NULL, *trace = NULL;
    py.PyErr_Fetch(&type, &value, &trace);
    py.PyErr_NormalizeException(&type, &value, &trace);
    bool interrupted = type && py.PyErr_GivenExceptionMatches(type, *py.PyExc_KeyboardInterrupt);
    object *name = type ? py.PyObject_GetAttrString(type, "__name__") : NULL;
    object *text = value ? py.PyObject_Str(value) : NULL;
    log_note("%s: %.60s: %.200s", what, text_of(name), text_of(text));
    drop_reference(name);
    drop_reference(text);
    drop_reference(type);
    drop_reference(value);
    drop_reference(trace);
    py.PyErr_Clear();
    // Ctrl-C came while our code ran; it is the job's. Last: what Python does here would take it.
    if (interrupted) py.PyErr_SetInterrupt();
}

// ---- the module, and the file that uses it ----
static bool set_item(object *dict, const char *name, object *value) {
    if (!value) return false;
    bool set = py.PyDict_SetItemString(dict, name, value) == 0;
    py.Py_DecRef(value);
    return set;
}

static bool make_module(void) {
    if (module) return true;
    object *made = py.PyImport_AddModule(MODULE_NAME);  // owned by sys.modules
    object *dict = made ? py.PyModule_GetDict(made) : NULL;
    if (!dict) return false;
    python_learn_layout();
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!set_item(dict, methods[i].name, py.PyCFunction_NewEx(&methods[i], NULL, NULL)))
            return false;
    py.Py_IncRef(made);
    module = made;
    return true;
}

// The file's text; NULL: it cannot be read. To be freed.
static char *read_source(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 ? malloc(MAX_SOURCE_BYTES) : NULL;
    ssize_t used = 0, more = 1;
    while (text && more > 0 && used < (ssize_t)MAX_SOURCE_BYTES - 1) {
        more = read(fd, text + used, MAX_SOURCE_BYTES - 1 - (size_t)used);
        if (more > 0) used += more;
    }
    if (fd >= 0) close(fd);
    if (text) text[used] = 0;
    return text;
}

// `level` of the module: how much the user wants of PyTorch; `folder`: where files may go.
static bool set_level(void) {
    const char *level = config.torch == TORCH_MODULES ? "modules" : "steps";
    char folder[2 * PATH_MAX];
    snprintf(folder, sizeof folder, "%s/%s", config.capture_dir, process_folder);
    object *dict = py.PyModule_GetDict(module);
    return set_item(dict, "level", py.PyUnicode_FromString(level)) &&
           set_item(dict, "folder", py.PyUnicode_FromString(folder));
}

static bool run_file(const char *source) {
    object *globals = py.PyDict_New();
    object *code = globals ? py.Py_CompileString(source, attach_path, FILE_INPUT) : NULL;
    object *builtins = py.PyEval_GetBuiltins();
    if (builtins) py.Py_IncRef(builtins);
    bool ready = code && set_item(globals, "__builtins__", builtins) &&
                 set_item(globals, "__name__", py.PyUnicode_FromString("_ncclscope_attach")) &&
                 set_item(globals, "__file__", py.PyUnicode_FromString(attach_path));
    object *result = ready ? py.PyEval_EvalCode(code, globals, globals) : NULL;
    bool ran = result != NULL;
    if (result) py.Py_DecRef(result);
    if (code) py.Py_DecRef(code);
    if (globals) py.Py_DecRef(globals);
    return ran;
}

// Pending calls, in Python's main thread. They return 0: there is no error that the job should see.
static int attach_now(void *unused) {
    (void)unused;
    if (!__atomic_load_n(&callback_state.recording, __ATOMIC_ACQUIRE)) return 0;  // a fork child
    // A subinterpreter made the communicator. It may end before the job; our objects must not.
    if (!python_is_main_interpreter()) {
        static bool noted;
        if (!noted) log_note("a subinterpreter uses NCCL: what its Python does is not recorded");
        noted = true;
        __atomic_store_n(&state, NOT_ASKED, __ATOMIC_RELEASE);  // the main one may follow
        return 0;
    }
    char *source = read_source(attach_path);
    bool attached = source && make_module() && set_level() && run_file(source);
    if (!source) log_note("cannot attach to Python: %.300s cannot be read", attach_path);
    else if (!attached) note_error("cannot attach to Python");
    free(source);
    __atomic_store_n(&state, attached ? ATTACHED : FAILED, __ATOMIC_RELEASE);
    return 0;
}

static void call_function(object *function, const char *failure) {
    if (!function || !__atomic_load_n(&callback_state.recording, __ATOMIC_ACQUIRE)) return;
    if (!python_is_main_interpreter()) return;
    object *result = py.PyObject_CallObject(function, NULL);
    if (result) py.Py_DecRef(result);
    else note_error(failure);
}

static int tell_of_communicator(void *unused) {
    (void)unused;
    call_function(new_comm_fn, "a look at the new communicator failed");
    return 0;
}

static int ask_for_kernels(void *unused) {
    (void)unused;
    if (!python_is_main_interpreter()) return 0;
    object *dict = py.PyModule_GetDict(module);
    u64 steps = __atomic_load_n(&kernel_steps, __ATOMIC_RELAXED);
    u64 after_ns = __atomic_load_n(&kernels_after_ns, __ATOMIC_RELAXED);
    if (set_item(dict, "kernel_steps", py.PyLong_FromUnsignedLong(steps)) &&
        set_item(dict, "kernels_after_ns", py.PyLong_FromUnsignedLong(after_ns)))
        call_function(kernels_fn, "kernels cannot be taken");
    py.PyErr_Clear();
    return 0;
}

// ---- when ----
static int is_torch(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    return info->dlpi_name && strstr(info->dlpi_name, "libtorch_python") != NULL;
}

// The file beside the plugin, where the plugin really is: it may be loaded through a link.
static bool find_file(void) {
    Dl_info info;
    char real[PATH_MAX];
    if (!dladdr((void *)&state, &info) || !info.dli_fname || !realpath(info.dli_fname, real))
        return false;
    char *slash = strrchr(real, '/');
    if (!slash) return false;
    *slash = 0;
    return (size_t)snprintf(attach_path, sizeof attach_path, "%s/" FILE_NAME, real) <
               sizeof attach_path &&
           access(attach_path, R_OK) == 0;
}

void attach_request(void) {
    if (config.torch == TORCH_OFF || !config.ranges) return;
    if (config.torch == TORCH_AUTO && !dl_iterate_phdr(is_torch, NULL)) return;
    if (!python_api_find() || !py.Py_IsInitialized()) return;
    int now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    if (now == ATTACHED) py.Py_AddPendingCall(tell_of_communicator, NULL);
    if (now != NOT_ASKED) return;
    int expected = NOT_ASKED;
    if (!__atomic_compare_exchange_n((int *)&state, &expected, ASKED, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    if (!find_file()) {
        if (config.torch != TORCH_AUTO) log_note("cannot attach to Python: no " FILE_NAME);
        __atomic_store_n(&state, FAILED, __ATOMIC_RELEASE);
    } else if (py.Py_AddPendingCall(attach_now, NULL) != 0)
        __atomic_store_n(&state, NOT_ASKED, __ATOMIC_RELEASE);  // the next communicator tries again
}

void attach_take_kernels(u64 steps, u64 after_ns) {
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != ATTACHED || !py.Py_IsInitialized()) return;
    __atomic_store_n(&kernel_steps, steps, __ATOMIC_RELAXED);
    __atomic_store_n(&kernels_after_ns, after_ns, __ATOMIC_RELAXED);
    py.Py_AddPendingCall(ask_for_kernels, NULL);
}

void attach_use_folder(const char *folder) { process_folder = folder; }

// For ncclscope.torch, with Python's lock (ctypes.PyDLL), before or after the first communicator:
// makes the module. 0: it is there.
PLUGIN_EXPORT int ncclscope_python_module(void);
int ncclscope_python_module(void) {
    if (!python_api_find() || !python_is_main_interpreter()) return 1;
    range_expect();
    if (make_module()) return 0;
    py.PyErr_Clear();
    return 1;
}

// Runs one test: `run LIBRARY NAME`. The recorder's parts must be in a library that is loaded late,
// as the plugin is: its thread-local storage is found otherwise in a program.
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **values) {
    if (count != 3) return fprintf(stderr, "usage: run LIBRARY NAME\n"), 2;
    void *library = dlopen(values[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
    char symbol[128];
    snprintf(symbol, sizeof symbol, "test_%s", values[2]);
    void (*test)(void) = NULL;
    *(void **)&test = dlsym(library, symbol);
    if (!test) return fprintf(stderr, "no test is called %s\n", values[2]), 2;
    test();
    return 0;
}

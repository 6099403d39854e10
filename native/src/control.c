// Reads the control file. It is replaced as a whole, and each version has a serial number:
//
//   serial 7
//   copy-out
#define _GNU_SOURCE
#include "control.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

#define LARGEST 4096

bool control_poll(struct control_request *request) {
    static unsigned long done;
    static bool first = true;
    char path[PATH_MAX + 16], text[LARGEST + 1];
    memset(request, 0, sizeof *request);
    snprintf(path, sizeof path, "%s/control", config.capture_dir);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    ssize_t length = fd < 0 ? -1 : read(fd, text, LARGEST);
    if (fd >= 0) close(fd);
    unsigned long serial = 0;
    if (length > 0) {
        text[length] = 0;
        if (strncmp(text, "serial ", 7) == 0) serial = strtoul(text + 7, NULL, 10);
    }
    // What was asked before this process existed is not meant for it.
    bool fresh = !first && serial > done;
    if (first || serial > done) done = serial;
    first = false;
    if (!fresh) return false;
    char *rest = strchr(text, '\n');
    for (char *line = rest ? strtok_r(rest, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest))
        if (strcmp(line, "copy-out") == 0) request->copy_out = true;
    return true;
}

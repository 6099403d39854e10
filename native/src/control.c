// Reads the control file. It is replaced as a whole, and each version has a serial number:
//
//   serial 7
//   process host.4711.123456
//   mode full
//   seconds 30
#define _GNU_SOURCE
#include "control.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "log.h"

#define LARGEST 65536

static char text[LARGEST + 1];

// Whoever owns the capture may give orders, and so may root and this user; a capture may lie where
// others can write, too.
static bool may_order(int fd) {
    static bool noted;
    struct stat info, above;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    if (info.st_uid == 0 || info.st_uid == geteuid()) return true;
    if (stat(config.capture_dir, &above) == 0 && info.st_uid == above.st_uid) return true;
    if (!noted)
        log_note("%.300s/control is ignored: it belongs to user %u", config.capture_dir,
                 (unsigned)info.st_uid);
    noted = true;
    return false;
}

static size_t read_file(void) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/control", config.capture_dir);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    ssize_t length = fd >= 0 && may_order(fd) ? read(fd, text, LARGEST) : -1;
    if (fd >= 0) close(fd);
    text[length > 0 ? length : 0] = 0;
    return length > 0 ? (size_t)length : 0;
}

// Whether a line is `name VALUE`; its value.
static const char *value_of(const char *line, const char *name) {
    size_t length = strlen(name);
    return strncmp(line, name, length) == 0 && line[length] == ' ' ? line + length + 1 : NULL;
}

static void read_line(const char *line, struct control_request *request) {
    const char *value;
    if (strcmp(line, "copy-out") == 0) request->copy_out = true;
    else if (strcmp(line, "reset") == 0) request->reset = true;
    else if ((value = value_of(line, "mode"))) request->mode = config_mode_by_name(value);
    else if ((value = value_of(line, "events"))) request->events = (u32)strtoul(value, NULL, 0);
    else if ((value = value_of(line, "gpu-timing")))
        request->gpu_timing = config_timing_by_name(value);
    else if ((value = value_of(line, "seconds"))) request->seconds = strtoull(value, NULL, 10);
    else if ((value = value_of(line, "calls"))) request->calls = strtoull(value, NULL, 10);
    else if ((value = value_of(line, "kernels"))) {
        char *rest;
        request->kernel_steps = strtoull(value, &rest, 10);
        request->kernels_after_ns = strtoull(rest, NULL, 10);
    }
}

bool control_poll(struct control_request *request, const char *process_folder) {
    static unsigned long done;
    static bool first = true;
    memset(request, 0, sizeof *request);
    unsigned long serial = 0;
    if (read_file() && strncmp(text, "serial ", 7) == 0) serial = strtoul(text + 7, NULL, 10);
    // A request from before this process existed is not for it.
    bool fresh = !first && serial > done;
    if (first || serial > done) done = serial;
    first = false;
    if (!fresh) return false;
    bool names_some = false, names_this = false;
    char *rest = strchr(text, '\n');
    for (char *line = rest ? strtok_r(rest, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *folder = value_of(line, "process");
        names_some |= folder != NULL;
        names_this |= folder && strcmp(folder, process_folder) == 0;
        read_line(line, request);
    }
    return names_this || !names_some;
}

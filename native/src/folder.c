#define _GNU_SOURCE
#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool make_directories(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool failed = mkdir(path, 0700) != 0 && errno != EEXIST;
        *slash = '/';
        if (failed) return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

int folder_open(const char *path) {
    char copy[PATH_MAX];
    if ((size_t)snprintf(copy, sizeof copy, "%s", path) >= sizeof copy) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (!make_directories(copy)) return -1;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    if (folder < 0 && errno == ENOTDIR && lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        errno = ELOOP;
    return folder;
}

// A folder is this user's if what we create in it belongs to the same owner. Our user id does not
// tell: a file system may map ids, as NFS does with root.
int folder_create_file(int folder, const char *name) {
    struct stat above, info;
    if (fstat(folder, &above) != 0) return -1;
    if (above.st_uid == geteuid()) unlinkat(folder, name, 0);
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        if (errno == EEXIST) errno = EPERM;
        return -1;
    }
    bool known = fstat(fd, &info) == 0;
    if (known && above.st_uid == info.st_uid) return fd;
    int error = known ? EPERM : errno;
    close(fd);
    unlinkat(folder, name, 0);
    errno = error;
    return -1;
}

const char *folder_problem(int error) {
    if (error == ELOOP) return "it is a symbolic link";
    if (error == EPERM) return "it belongs to another user";
    return strerror(error);
}

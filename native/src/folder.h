// Folders of this user's, and files in them. A capture may lie where others can write, too: nothing
// that they put in our way is followed, opened or replaced.
#ifndef NCCLSCOPE_FOLDER_H
#define NCCLSCOPE_FOLDER_H

// A descriptor of the folder, which is made with all folders above it where it does not exist. -1
// with errno; ELOOP: it is a link.
int folder_open(const char *path);
// A new file for writing, in the place of what has that name. -1 with errno; EPERM: the folder is
// another user's.
int folder_create_file(int folder, const char *name);
// What an errno of these two means.
const char *folder_problem(int error);

#endif

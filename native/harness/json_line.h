// Reads one line of a transcript: a flat JSON object of numbers and strings.
#ifndef NCCLSCOPE_JSON_LINE_H
#define NCCLSCOPE_JSON_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_MAX_FIELDS = 40 };

struct json_line {
    int count;
    struct {
        const char *key, *text;  // text: a string's content, or a number as written
        bool is_string;
    } fields[JSON_MAX_FIELDS];
};

// Cuts `line` into pieces in place. False: not such an object.
bool json_parse(char *line, struct json_line *out);
const char *json_text(const struct json_line *line, const char *key);  // NULL: no such key
int64_t json_number(const struct json_line *line, const char *key, int64_t otherwise);
uint64_t json_hex(const struct json_line *line,
                  const char *key);  // a string of hex digits, 0 without the key

#endif

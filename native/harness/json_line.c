// A flat JSON object, cut up in place.
#include "json_line.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static char *skip(char *at, const char *characters) {
    while (*at && strchr(characters, *at)) at++;
    return at;
}

// The character of an escape whose first letter is at *at; *at is left on its last.
static char unescape(char **at) {
    switch (**at) {
        case 'n': return '\n';
        case 'r': return '\r';
        case 't': return '\t';
        case 'u': {
            char digits[5] = "";
            memcpy(digits, *at + 1, strnlen(*at + 1, 4));
            *at += strlen(digits);
            return (char)strtol(digits, NULL, 16);  // names here are ASCII
        }
        default: return **at;
    }
}

// From the opening quote; puts a NUL over the closing one. NULL: no closing quote.
static char *cut_string(char *at, const char **content) {
    char *to = ++at;
    *content = to;
    for (; *at && *at != '"'; at++) {
        bool escaped = *at == '\\' && at[1];
        if (escaped) at++;
        *to++ = escaped ? unescape(&at) : *at;
    }
    if (!*at) return NULL;
    *to = 0;
    return at + 1;
}

bool json_parse(char *line, struct json_line *out) {
    out->count = 0;
    char *at = skip(line, " \t");
    if (*at != '{') return false;
    at++;
    for (;;) {
        at = skip(at, " \t,");
        if (*at == '}') return true;
        if (*at != '"' || out->count == JSON_MAX_FIELDS) return false;
        if (!(at = cut_string(at, &out->fields[out->count].key))) return false;
        at = skip(at, " \t:");
        bool is_string = *at == '"';
        out->fields[out->count].is_string = is_string;
        if (is_string) {
            if (!(at = cut_string(at, &out->fields[out->count].text))) return false;
        } else {
            out->fields[out->count].text = at;
            while (*at && (isdigit((unsigned char)*at) || *at == '-')) at++;
            char end = *at;
            if (end != ',' && end != '}') return false;
            *at++ = 0;
            if (end == '}') {
                out->count++;
                return true;
            }
        }
        out->count++;
    }
}

const char *json_text(const struct json_line *line, const char *key) {
    for (int i = 0; i < line->count; i++)
        if (strcmp(line->fields[i].key, key) == 0) return line->fields[i].text;
    return NULL;
}

int64_t json_number(const struct json_line *line, const char *key, int64_t otherwise) {
    const char *text = json_text(line, key);
    if (!text) return otherwise;
    return text[0] == '-' ? strtoll(text, NULL, 10) : (int64_t)strtoull(text, NULL, 10);
}

uint64_t json_hex(const struct json_line *line, const char *key) {
    const char *text = json_text(line, key);
    return text ? strtoull(text, NULL, 16) : 0;
}

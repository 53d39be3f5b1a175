/* Cuts an HTTP/1.1 response into its body: chunked, with a length, or until the connection ends. */
#include "loadgen.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void response_reset(response *r) { *r = (response){.left = 0}; }

static int take_head(response *r, const char *bytes, int length) {
    int room = (int)sizeof r->head - 1 - r->head_length, before = r->head_length;
    int taken = length < room ? length : room;
    memcpy(r->head + before, bytes, taken);
    r->head_length += taken;
    r->head[r->head_length] = 0;
    char *end = strstr(r->head, "\r\n\r\n");
    if (!end) {
        if (r->head_length == (int)sizeof r->head - 1)
            die("a response head of more than %zu bytes", sizeof r->head);
        return taken;
    }
    if (strncmp(r->head, "HTTP/1.1 200", 12))
        die("refused: %.1200s", r->head);
    int used = (int)(end + 4 - r->head) - before;
    end[2] = 0;
    r->in_body = 1;
    r->is_chunked = strcasestr(r->head, "transfer-encoding: chunked") != NULL;
    const char *sized = strcasestr(r->head, "content-length:");
    r->left = sized ? atol(sized + 15) : -1;
    if (!r->is_chunked && r->left == 0)
        r->is_over = 1;
    return used;
}

static int digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int take_chunk_line(response *r, char c) {
    if (c == '\r')
        return 0;
    if (r->chunk_state == 2) {
        if (c != '\n')
            die("a chunk is longer than it said: byte %d", c);
        r->chunk_state = r->is_over = r->left < 0 ? 3 : 0;
        r->left = 0;
        return 0;
    }
    if (c == '\n') {
        r->chunk_state = r->left ? 1 : 2;
        if (!r->left)
            r->left = -1; /* the last chunk: its line end is the end of the body */
        return 0;
    }
    int value = digit(c);
    if (value < 0)
        die("byte %d is no part of a chunk's size", c);
    r->left = r->left * 16 + value;
    return 0;
}

int response_feed(response *r, const char *bytes, int length, uint64_t at, body_sink sink, void *whose) {
    int used = 0;
    while (used < length && !r->is_over) {
        if (!r->in_body) {
            used += take_head(r, bytes + used, length - used);
            continue;
        }
        if (r->is_chunked && r->chunk_state != 1) {
            take_chunk_line(r, bytes[used++]);
            continue;
        }
        int part = length - used;
        if (r->left >= 0 && part > r->left)
            part = (int)r->left;
        sink(whose, bytes + used, part, at);
        used += part;
        if (r->left >= 0 && (r->left -= part) == 0) {
            if (r->is_chunked)
                r->chunk_state = 2;
            else
                r->is_over = 1;
        }
    }
    return used;
}

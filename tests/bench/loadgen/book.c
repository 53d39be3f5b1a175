/* Who was told what: takes in the bytes of event streams, and judges the accounts at the end.
 *
 * Of a server that coalesces, each stream must have heard each topic at least once, at most as often as it was
 * published, and at least once after the last publish. Of any other, exactly as often as it was published.
 */
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER 8192
#define MARK "bench://u/"
#define SHOWN 3

book books;
enum readiness ready_when = READY_ACKNOWLEDGED;

void book_open(const plan *p, long topics_at_least) {
    long most = topics_at_least;
    books.stream_count = p->count;
    books.streams = calloc(p->count, sizeof *books.streams);
    for (long i = 0; i < p->count; i++)
        if (p->items[i].topic + p->items[i].count > most)
            most = p->items[i].topic + p->items[i].count;
    books.topic_count = most;
    books.topics = calloc(most, sizeof *books.topics);
    for (long i = 0; i < p->count; i++) {
        stream *s = &books.streams[i];
        const record *r = &p->items[i];
        s->plan = r;
        s->number = (int)i;
        s->fd = -1;
        s->is_counted = 1;
        s->told = calloc(r->count, sizeof *s->told);
        s->heard = calloc(r->count, sizeof *s->heard);
        s->last = calloc(r->count, sizeof *s->last);
        for (uint32_t k = 0; k < r->count; k++)
            books.topics[r->topic + k].watchers++;
    }
}

void book_published(uint32_t number, uint64_t at) {
    topic *t = &books.topics[number];
    if ((t->published & (t->published - 1)) == 0)
        t->at = realloc(t->at, sizeof *t->at * (t->published ? t->published * 2 : 1));
    t->at[t->published++] = at;
}

void book_forget(stream *s) {
    response_reset(&s->http);
    s->is_connected = s->is_ready = s->filled = s->scanned = 0;
    if (!s->buffer)
        s->buffer = malloc(BUFFER);
}

static void mark_ready(stream *s) {
    if (!s->is_ready) {
        s->is_ready = 1;
        ready_count++;
    }
}

static void complain(const char *what, const stream *s, const char *event, int length) {
    static int shown;
    if (shown++ < SHOWN)
        fprintf(stderr, "%s on stream %d: %.*s\n", what, s->number, length > 400 ? 400 : length, event);
}

static void note_delay(stream *s, uint32_t k, uint64_t at) {
    topic *t = &books.topics[s->plan->topic + k];
    if (s->heard[k] >= t->published)
        return;
    if (books.is_timing) {
        if (books.delay_count == books.delay_room) {
            books.delay_room = books.delay_room ? books.delay_room * 2 : 4096;
            books.delays = realloc(books.delays, sizeof *books.delays * books.delay_room);
        }
        books.delays[books.delay_count++] = (uint32_t)(at - t->at[s->heard[k]]);
    }
    /* A cue of a server that coalesces answers all that was published until now. */
    s->heard[k] = books.coalesces ? t->published : s->heard[k] + 1;
}

static void take_cue(stream *s, const char *event, int length, uint64_t at) {
    const char *named = memmem(event, length, MARK, strlen(MARK));
    char *after = NULL;
    long uri = named ? strtol(named + strlen(MARK), &after, 10) : -1;
    if (uri < s->plan->uri || uri >= (long)s->plan->uri + s->plan->count || *after != '"') {
        books.stray++;
        complain("a stray cue", s, event, length);
        return;
    }
    if (s->plan->id) {
        const char *label = memmem(event, length, "subscriptionId\":", 16);
        if (!label || strtol(label + 16, NULL, 10) != s->plan->id) {
            books.wrong_id++;
            complain("a wrong subscription id", s, event, length);
        }
    }
    uint32_t k = (uint32_t)uri - s->plan->uri;
    note_delay(s, k, at);
    s->told[k]++;
    s->last[k] = books.last_told = at;
    books.told++;
}

static void take_event(stream *s, const char *event, int length, uint64_t at) {
    const char *data = memmem(event, length, "data:", 5);
    if (!data)
        return; /* a comment */
    int rest = length - (int)(data - event);
    if (memmem(data, rest, "resources/updated", 17)) {
        if (s->is_counted)
            take_cue(s, data, rest, at);
        else
            books.warm_told++;
    } else if (memmem(data, rest, "subscriptions/acknowledged", 26)) {
        mark_ready(s);
    } else if (memmem(data, rest, "\"error\"", 7) || memmem(data, rest, "\"result\"", 8)) {
        books.refused_events++;
        complain("an end", s, event, length);
    }
}

/* The length of the first whole event in what is buffered, 0 if there is none. `scanned` is where to go on. */
static int whole_event(stream *s) {
    for (;;) {
        char *line = memchr(s->buffer + s->scanned, '\n', s->filled - s->scanned);
        if (!line) {
            s->scanned = s->filled;
            return 0;
        }
        int next = (int)(line - s->buffer) + 1;
        int left = s->filled - next;
        if (left >= 1 && s->buffer[next] == '\n')
            return next + 1;
        if (left >= 2 && s->buffer[next] == '\r' && s->buffer[next + 1] == '\n')
            return next + 2;
        if (left == 0 || (left == 1 && s->buffer[next] == '\r')) {
            s->scanned = next - 1;
            return 0;
        }
        s->scanned = next;
    }
}

static void take_body(void *whose, const char *bytes, int length, uint64_t at) {
    stream *s = whose;
    if (ready_when == READY_BODY)
        mark_ready(s);
    while (length > 0) {
        int part = BUFFER - s->filled;
        if (part == 0)
            die("an event of more than %d bytes on stream %d", BUFFER, s->number);
        if (part > length)
            part = length;
        memcpy(s->buffer + s->filled, bytes, part);
        s->filled += part;
        bytes += part;
        length -= part;
        int start = 0;
        for (int size; (size = whole_event(s)) > 0;) {
            take_event(s, s->buffer + start, size - start, at);
            start = s->scanned = size;
        }
        memmove(s->buffer, s->buffer + start, s->filled - start);
        s->filled -= start;
        s->scanned -= start;
    }
}

void book_feed(stream *s, const char *bytes, int length, uint64_t at) {
    response_feed(&s->http, bytes, length, at, take_body, s);
    if (s->http.in_body && ready_when == READY_HEAD)
        mark_ready(s);
}

static const char *fault(unsigned told, unsigned published, uint64_t last, uint64_t last_published) {
    if (told > published)
        return "told too often";
    if (!books.coalesces && told < published)
        return "told too seldom";
    if (published && !told)
        return "never told";
    if (published && last < last_published)
        return "not told of the last change";
    return NULL;
}

int book_judge(char *sentence, size_t room) {
    int wrong = 0;
    *sentence = 0;
    for (long i = 0; i < books.stream_count; i++) {
        const stream *s = &books.streams[i];
        for (uint32_t k = 0; k < s->plan->count; k++) {
            const topic *t = &books.topics[s->plan->topic + k];
            uint64_t newest = t->published ? t->at[t->published - 1] : 0;
            const char *found = fault(s->told[k], t->published, s->last[k], newest);
            if (!found)
                continue;
            if (!wrong++)
                snprintf(sentence, room, "stream %ld, URI %u: %s (%u cues, %u publishes)", i,
                         s->plan->uri + k, found, s->told[k], t->published);
            break;
        }
    }
    return wrong;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

void book_print_delays(void) {
    long n = books.delay_count;
    if (!n)
        die("no cue came in the timed phase");
    qsort(books.delays, n, sizeof *books.delays, ascending);
    printf(",\"delays\":%ld,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f,\"max_ms\":%.3f", n,
           books.delays[n / 2] / 1e3, books.delays[(long)(n * .99)] / 1e3,
           books.delays[(long)(n * .999)] / 1e3, books.delays[n - 1] / 1e3);
}

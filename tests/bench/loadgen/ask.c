/* Requests and answers on kept connections: how many a second, and what one costs the servers.
 *
 * Every answer must be 200 and contain the expected text. Each connection asks again at once. The first few
 * answers warm everything up and are not counted.
 */
#include "loadgen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define ANSWER (4 << 20)
#define STALL_SECONDS 20
#define WARM_EACH 5

typedef struct {
    int fd;
    long number;
    uint64_t asked_at;
    response http;
    char *answer;
    int filled;
} line;

typedef struct {
    uint64_t at;
    double servers_us, stores_us, own_us;
} reading;

static struct {
    const plan *requests;
    const char *expected;
    const group *servers, *stores;
    long total, asked, answered, warm;
    uint64_t last;
    uint32_t *delays;
    reading began;
} asking;

static reading read_now(void) {
    return (reading){now_us(), group_cpu_us(asking.servers), group_cpu_us(asking.stores), own_cpu_us()};
}

static void keep(void *whose, const char *bytes, int length, uint64_t at) {
    line *l = whose;
    (void)at;
    if (l->filled + length > ANSWER)
        die("an answer of more than %d bytes", ANSWER);
    memcpy(l->answer + l->filled, bytes, length);
    l->filled += length;
}

static void ask_next(line *l) {
    if (asking.asked == asking.total)
        return;
    l->number = asking.asked++;
    const record *r = &asking.requests->items[l->number % asking.requests->count];
    response_reset(&l->http);
    l->filled = 0;
    l->asked_at = now_us();
    for (uint32_t sent = 0; sent < r->length;) {
        ssize_t n = send(l->fd, r->bytes + sent, r->length - sent, MSG_NOSIGNAL);
        if (n < 0)
            die("a request: %s", strerror(errno));
        sent += n;
    }
}

static void take_answer(line *l) {
    const char *text = asking.expected;
    asking.last = now_us();
    if (*text && !memmem(l->answer, l->filled, text, strlen(text)))
        die("an answer without %s: %.*s", text, l->filled > 600 ? 600 : l->filled, l->answer);
    if (asking.answered >= asking.warm)
        asking.delays[asking.answered - asking.warm] = (uint32_t)(asking.last - l->asked_at);
    if (++asking.answered == asking.warm)
        asking.began = read_now();
    ask_next(l);
}

static void receive(line *l) {
    static char bytes[65536];
    ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        die("a connection ended while its answer was awaited");
    response_feed(&l->http, bytes, (int)n, 0, keep, l);
    if (l->http.is_over)
        take_answer(l);
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void print_found(void) {
    reading end = read_now(), began = asking.began;
    long counted = asking.answered - asking.warm;
    uint32_t *delays = asking.delays;
    qsort(delays, counted, sizeof *delays, ascending);
    printf("{\"answers\":%ld,\"answers_s\":%.1f,\"cpu_us\":%.2f,\"store_cpu_us\":%.2f,\"client_cpu_us\":%.2f", counted,
           counted / ((asking.last - began.at) / 1e6), (end.servers_us - began.servers_us) / counted,
           (end.stores_us - began.stores_us) / counted, (end.own_us - began.own_us) / counted);
    printf(",\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,\"exact\":true}\n", delays[counted / 2] / 1e3,
           delays[(long)(counted * .99)] / 1e3, delays[counted - 1] / 1e3);
}

void ask(const plan *requests, int connections, long total, const char *expected, const group *servers,
         const group *stores) {
    struct epoll_event events[64];
    line *lines = calloc(connections, sizeof *lines);
    int loop = epoll_create1(0);
    asking.requests = requests;
    asking.expected = expected;
    asking.servers = servers;
    asking.stores = stores;
    asking.total = total;
    asking.warm = connections * WARM_EACH < total / 2 ? connections * WARM_EACH : total / 2;
    asking.delays = malloc(total * sizeof *asking.delays);
    asking.last = now_us();
    for (int i = 0; i < connections && i < total; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &lines[i]};
        lines[i].fd = door_connect(i, 1);
        lines[i].answer = malloc(ANSWER);
        epoll_ctl(loop, EPOLL_CTL_ADD, lines[i].fd, &event);
        ask_next(&lines[i]);
    }
    while (asking.answered < asking.asked) {
        int count = epoll_wait(loop, events, 64, 100);
        if (count == 0 && now_us() - asking.last > STALL_SECONDS * 1000000ull)
            die("no answer for %d s, after %ld", STALL_SECONDS, asking.answered);
        for (int i = 0; i < count; i++)
            receive(events[i].data.ptr);
    }
    print_found();
}

/* Requests and answers on kept connections: how many a second, and what one costs the servers.
 *
 * Every answer must be 200 and contain the expected text. With a rate of 0 each connection asks again at once.
 */
#include "loadgen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER (4 << 20)
#define STALL_SECONDS 20

typedef struct {
    int fd;
    long asked;
    uint64_t at;
    response http;
    char *answer;
    int filled;
} line;

static void keep(void *whose, const char *bytes, int length, uint64_t at) {
    line *l = whose;
    (void)at;
    if (l->filled + length > ANSWER)
        die("an answer of more than %d bytes", ANSWER);
    memcpy(l->answer + l->filled, bytes, length);
    l->filled += length;
}

static void send_next(line *l, const plan *requests) {
    const record *r = &requests->items[l->asked % requests->count];
    response_reset(&l->http);
    l->filled = 0;
    l->at = now_us();
    for (uint32_t sent = 0; sent < r->length;) {
        ssize_t n = send(l->fd, r->bytes + sent, r->length - sent, MSG_NOSIGNAL);
        if (n < 0)
            die("a request: %s", strerror(errno));
        sent += n;
    }
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

void ask(const plan *requests, int connections, long total, const char *expected, const group *servers,
         const group *stores, double rate) {
    static char bytes[65536];
    line *lines = calloc(connections, sizeof *lines);
    uint32_t *delays = malloc(total * sizeof *delays);
    int loop = epoll_create1(0);
    long asked = 0, answered = 0, warm = connections * 5L, before = 0;
    double cpu = 0, store_cpu = 0, client = 0;
    uint64_t began = 0, last = now_us();
    if (warm > total / 2)
        warm = total / 2;
    for (int i = 0; i < connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &lines[i]};
        lines[i].fd = door_connect(i);
        lines[i].answer = malloc(ANSWER);
        struct epoll_event ready;
        int waiting = epoll_create1(0);
        event.events = EPOLLOUT;
        epoll_ctl(waiting, EPOLL_CTL_ADD, lines[i].fd, &event);
        if (epoll_wait(waiting, &ready, 1, 2000) != 1)
            die("connection %d did not open", i);
        close(waiting);
        event.events = EPOLLIN;
        epoll_ctl(loop, EPOLL_CTL_ADD, lines[i].fd, &event);
        lines[i].asked = asked++;
        send_next(&lines[i], requests);
    }
    while (answered < asked) {
        struct epoll_event events[64];
        int count = epoll_wait(loop, events, 64, 100);
        if (count == 0 && now_us() - last > STALL_SECONDS * 1000000ull)
            die("no answer for %d s, after %ld", STALL_SECONDS, answered);
        for (int i = 0; i < count; i++) {
            line *l = events[i].data.ptr;
            ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
            if (n <= 0) {
                if (n < 0 && errno == EAGAIN)
                    continue;
                die("a connection ended while its answer was awaited");
            }
            response_feed(&l->http, bytes, (int)n, 0, keep, l);
            if (!l->http.is_over)
                continue;
            last = now_us();
            if (*expected && !memmem(l->answer, l->filled, expected, strlen(expected)))
                die("an answer without %s: %.*s", expected, l->filled > 600 ? 600 : l->filled, l->answer);
            if (began)
                delays[answered - before] = (uint32_t)(last - l->at);
            if (++answered == warm) {
                began = last;
                before = answered;
                cpu = group_cpu_us(servers);
                store_cpu = group_cpu_us(stores);
                client = own_cpu_us();
            }
            if (asked < total) {
                if (rate > 0) {
                    uint64_t due = began ? began + (uint64_t)((asked - before) * 1e6 / rate) : 0;
                    if (due > last)
                        rest_us((long)(due - last));
                }
                l->asked = asked++;
                send_next(l, requests);
            }
        }
    }
    long counted = answered - before;
    double seconds = (last - began) / 1e6;
    qsort(delays, counted, sizeof *delays, ascending);
    printf("{\"answers\":%ld,\"answers_s\":%.1f,\"cpu_us\":%.2f,\"store_cpu_us\":%.2f,\"client_cpu_us\":%.2f,"
           "\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,\"exact\":true}\n",
           counted, counted / seconds, (group_cpu_us(servers) - cpu) / counted,
           (group_cpu_us(stores) - store_cpu) / counted, (own_cpu_us() - client) / counted,
           delays[counted / 2] / 1e3, delays[(long)(counted * .99)] / 1e3, delays[counted - 1] / 1e3);
}

/* Sockets: the streams' and the publisher's, in one epoll set. */
#include "loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPEN_SECONDS 120

int receive_buffer;
int is_paused;
long ready_count;

static struct sockaddr_in doors[32];
static int door_count;
static int epoll = -1;
static int publisher = -1;
static char *queue;
static size_t queued, queue_room;
static long replies;
static uint64_t replied_at;

static struct sockaddr_in address(char *text) {
    struct sockaddr_in found = {.sin_family = AF_INET};
    char *colon = strrchr(text, ':');
    if (!colon)
        die("%s is not HOST:PORT", text);
    *colon = 0;
    found.sin_port = htons(atoi(colon + 1));
    inet_pton(AF_INET, text, &found.sin_addr);
    if ((ntohl(found.sin_addr.s_addr) >> 24) != 127)
        die("%s is not a loopback address; load goes nowhere else", text);
    return found;
}

void doors_add(char *list) {
    for (char *word = strtok(list, ","), copy[64]; word; word = strtok(NULL, ",")) {
        if (door_count == (int)(sizeof doors / sizeof *doors))
            die("too many addresses");
        snprintf(copy, sizeof copy, "%s", word);
        doors[door_count++] = address(copy);
    }
}

static void watch(int fd, uint32_t events, void *whose, int how) {
    struct epoll_event event = {.events = events, .data.ptr = whose};
    if (epoll < 0)
        epoll = epoll_create1(0);
    if (epoll_ctl(epoll, how, fd, &event) < 0)
        die("epoll: %s", strerror(errno));
}

int door_connect(long number, int waits) {
    int fd = socket(AF_INET, SOCK_STREAM | (waits ? 0 : SOCK_NONBLOCK), 0);
    if (fd < 0)
        die("a socket: %s (ulimit -n?)", strerror(errno));
    if (receive_buffer)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const struct sockaddr_in *to = &doors[number % door_count];
    if (connect(fd, (const struct sockaddr *)to, sizeof *to) < 0 && errno != EINPROGRESS)
        die("connecting: %s", strerror(errno));
    return fd;
}

/* -- the publisher ------------------------------------------------------------------------------------------ */

void publisher_connect(char *where) {
    struct sockaddr_in to = address(where);
    int on = 1;
    publisher = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(publisher, (struct sockaddr *)&to, sizeof to) < 0)
        die("the publisher's connection: %s", strerror(errno));
    setsockopt(publisher, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(publisher, EPOLLIN, NULL, EPOLL_CTL_ADD);
}

void publisher_send(const record *r) {
    if (queued + r->length > queue_room)
        queue = realloc(queue, queue_room = (queued + r->length) * 2);
    memcpy(queue + queued, r->bytes, r->length);
    queued += r->length;
}

void publisher_flush(void) {
    size_t sent = 0;
    while (sent < queued) {
        ssize_t n = send(publisher, queue + sent, queued - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0)
            die("publishing: %s", strerror(errno));
        sent += n;
    }
    memmove(queue, queue + sent, queued - sent);
    queued -= sent;
}

long publisher_waiting(void) { return (long)queued; }
long publisher_replies(void) { return replies; }
uint64_t publisher_heard(void) { return replied_at; }

/* Counts answers by their first line (RESP arrays and integers, HTTP status lines), and looks for refusals. */
static void take_reply(const char *bytes, int length) {
    static char line[256];
    static int filled;
    for (int i = 0; i < length; i++) {
        if (bytes[i] != '\n') {
            if (filled < (int)sizeof line - 1)
                line[filled++] = bytes[i];
            continue;
        }
        line[filled] = 0;
        filled = 0;
        if (line[0] == '-' || !strncmp(line, "HTTP/1.1 4", 10) || !strncmp(line, "HTTP/1.1 5", 10) ||
            !strncmp(line, "conflict", 8) || !strncmp(line, "limit", 5) || !strncmp(line, "over", 4))
            die("a publish was refused: %s", line);
        replies += line[0] == '*' || line[0] == ':' || !strncmp(line, "HTTP/1.1 2", 10);
    }
    replied_at = now_us();
}

/* -- the streams --------------------------------------------------------------------------------------------- */

static void stream_connected(stream *s) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error)
        die("connecting stream %d: %s", s->number, strerror(error));
    if (send(s->fd, s->plan->bytes, s->plan->length, MSG_NOSIGNAL) != (ssize_t)s->plan->length)
        die("the request of stream %d: %s", s->number, strerror(errno));
    s->is_connected = 1;
    watch(s->fd, EPOLLIN, s, EPOLL_CTL_MOD);
}

static void stream_left(stream *s) {
    epoll_ctl(epoll, EPOLL_CTL_DEL, s->fd, NULL);
    close(s->fd);
    s->fd = -1;
}

void pump(int ms) {
    static char bytes[65536];
    struct epoll_event events[512];
    int count = epoll_wait(epoll, events, 512, ms);
    for (int i = 0; i < count; i++) {
        stream *s = events[i].data.ptr;
        if (!s) {
            ssize_t n = recv(publisher, bytes, sizeof bytes, MSG_DONTWAIT);
            if (n == 0)
                die("the publisher's connection was closed");
            if (n > 0)
                take_reply(bytes, (int)n);
            continue;
        }
        if (!s->is_connected) {
            if (events[i].events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
                stream_connected(s);
            continue;
        }
        if (is_paused)
            continue;
        ssize_t n = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            continue;
        if (n <= 0) {
            books.ended++;
            stream_left(s);
            continue;
        }
        book_feed(s, bytes, (int)n, now_us());
    }
}

void spin_ms(int ms) {
    for (uint64_t end = now_us() + ms * 1000ull; now_us() < end;)
        pump(5);
}

void streams_open(stream *from, long count, int at_once) {
    uint64_t began = now_us();
    long next = 0, before = ready_count;
    while (ready_count - before < count) {
        while (next < count && next - (ready_count - before) < at_once) {
            stream *s = &from[next++];
            book_forget(s);
            s->fd = door_connect(s->number, 0);
            watch(s->fd, EPOLLIN | EPOLLOUT, s, EPOLL_CTL_ADD);
        }
        pump(20);
        if (books.ended)
            die("%ld streams ended while they were opened", books.ended);
        if (now_us() - began > OPEN_SECONDS * 1000000ull)
            die("only %ld of %ld streams were open after %d s", ready_count - before, count, OPEN_SECONDS);
    }
}

void streams_close(stream *from, long count) {
    for (long i = 0; i < count; i++)
        if (from[i].fd >= 0)
            stream_left(&from[i]);
}

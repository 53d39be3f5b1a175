/* The load generator: many HTTP connections in one epoll loop, and an account of every byte that came.
 *
 * It knows neither MCP nor any server. What it sends is written beforehand by Python, as plans (plan.c); what it
 * is told is judged here (book.c): each stream's count of each URI it watches, strays, wrong subscription ids.
 * Rules: loopback only; every loop has a ceiling; whatever surprises it ends it with a sentence.
 */
#ifndef LOADGEN_H
#define LOADGEN_H

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>

/* -- plan.c: records that Python wrote ------------------------------------------------------------------- */

typedef struct {
    uint32_t topic;  /* of a stream: the first of `count` topics it watches; of a publish: the one */
    uint32_t uri;    /* the number in the URI of that topic; the next topic's is one more */
    uint32_t count;
    uint32_t id;     /* the subscription id that each cue must carry; 0 for none */
    uint32_t length;
    const char *bytes;
} record;

typedef struct {
    record *items;
    long count;
} plan;

plan plan_read(const char *path);

/* -- host.c: clocks, and what processes cost -------------------------------------------------------------- */

typedef struct {
    int pids[256];
    int count;
} group;

uint64_t now_us(void);
void rest_us(long us);
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
group group_parse(char *text);
double group_cpu_us(const group *g);      /* all threads, from the scheduler's ns counters */
double group_user_us(const group *g);     /* the user part, in ticks of 10 ms */
double group_memory_kb(const group *g);   /* proportional set size: shared pages are counted once */
double own_cpu_us(void);

/* -- http.c: one response, cut into its body ---------------------------------------------------------------- */

typedef void (*body_sink)(void *whose, const char *bytes, int length, uint64_t at);

typedef struct {
    char head[4096];
    int head_length;
    int in_body;
    int is_chunked;
    int chunk_state;   /* 0 size line, 1 data, 2 the line end after data */
    long left;         /* of the chunk, or of the whole body if it has a length */
    int is_over;
} response;

void response_reset(response *r);
/* Returns how many bytes belong to this response; the rest is the next one's. */
int response_feed(response *r, const char *bytes, int length, uint64_t at, body_sink sink, void *whose);

/* -- book.c: who was told what ------------------------------------------------------------------------------- */

typedef struct {
    const record *plan;
    int number;
    int fd;
    int is_connected;
    int is_ready;
    int is_counted;    /* whether what it is told goes into the books (not while warming up) */
    response http;
    char *buffer;      /* what is not a whole event yet */
    int filled, scanned;
    unsigned *told;    /* cues by topic, from plan->topic on */
    unsigned *heard;   /* publishes by topic that these cues have answered */
    uint64_t *last;    /* when it was last told, by topic */
} stream;

typedef struct {
    unsigned published;
    long watchers;
    uint64_t *at;      /* when each was published */
} topic;

typedef struct {
    stream *streams;
    long stream_count;
    topic *topics;
    long topic_count;
    int coalesces;
    long told, warm_told, stray, wrong_id, ended, refused_events;
    uint64_t last_told;
    uint32_t *delays;
    long delay_count, delay_room;
    int is_timing;
} book;

enum readiness { READY_ACKNOWLEDGED, READY_HEAD, READY_BODY };

extern book books;
extern enum readiness ready_when;

void book_open(const plan *streams, long topics_at_least);
void book_published(uint32_t number, uint64_t at);
void book_feed(stream *s, const char *bytes, int length, uint64_t at);
void book_forget(stream *s);
int book_judge(char *sentence, size_t room);  /* how many streams' accounts are wrong, and the first of them */
void book_print_delays(void);

/* -- door.c: sockets ------------------------------------------------------------------------------------------- */

extern int receive_buffer;
extern int is_paused;
extern long ready_count;

void doors_add(char *list);
int door_connect(long number, int waits);   /* waits: until it is connected */
void publisher_connect(char *address);
void publisher_send(const record *r);
long publisher_waiting(void);     /* bytes not yet handed to the kernel */
void publisher_flush(void);
long publisher_replies(void);     /* how many publishes were answered; 0 where they never are */
uint64_t publisher_heard(void);   /* when one was answered last */
void pump(int ms);                /* one turn of the loop */
void spin_ms(int ms);
void streams_open(stream *from, long count, int at_once);
void streams_close(stream *from, long count);

/* -- ask.c: requests and answers on kept connections ----------------------------------------------------------- */

void ask(const plan *requests, int connections, long total, const char *expected, const group *servers,
         const group *stores);

#endif

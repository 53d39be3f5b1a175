/* Phases: warm up, open, then what was asked for (idle, a rate, flat out, bursts), settle, judge; one JSON object.
 *
 * CPU is read around each phase and divided by the cues that came in it. With --ask there is one phase, of ask.c.
 */
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static plan streams, warm_streams, publishes;
static long next_publish;
static group servers, stores;
static int at_once = 64;
static int stall_ms = 30000;
static int quiet_ms = 1200; /* a server that coalesces and says nothing for this long has said it all */
static int rest_ms = 400;   /* between phases, for what still comes */

static struct {
    long warm, idle_ms, rate_count, flat_count, window, burst, repeat, gap_us, slow_ms;
    double rate;
} wanted = {.window = 1};

/* Hands the next publish to the publisher's socket; returns how many streams will be told. */
static long publish_next(void) {
    if (next_publish >= publishes.count)
        die("the plan has only %ld publishes", publishes.count);
    const record *r = &publishes.items[next_publish++];
    publisher_send(r);
    if (r->topic >= books.topic_count)
        return 0; /* nobody watches it */
    book_published(r->topic, now_us());
    return books.topics[r->topic].watchers;
}

static int is_stalled(uint64_t since, long limit_ms) { return (int64_t)(now_us() - since) > limit_ms * 1000; }

/* Whether a server that coalesces has said it all. (A machine that stood still for a while is no quiet server.) */
static int is_quiet(uint64_t since) {
    int is_answered = !publisher_replies() || publisher_replies() >= next_publish;
    return books.coalesces && is_answered && !publisher_waiting() && is_stalled(since, quiet_ms);
}

static void wait_for(long expected, uint64_t *since) {
    if (books.last_told > *since)
        *since = books.last_told;
    if (publisher_heard() > *since) /* what is still being published may still be told */
        *since = publisher_heard();
    if (is_stalled(*since, stall_ms))
        die("stalled: %ld of %ld cues came, %ld streams ended", books.told, expected, books.ended);
}

static void warm_up(void) {
    stream *warm = calloc(warm_streams.count, sizeof *warm);
    for (long i = 0; i < warm_streams.count; i++) {
        warm[i].plan = &warm_streams.items[i];
        warm[i].number = (int)i;
        warm[i].fd = -1;
    }
    streams_open(warm, warm_streams.count, at_once);
    spin_ms(rest_ms / 4);
    for (long i = 0; i < wanted.warm; i++) {
        publisher_send(&publishes.items[next_publish++]);
        publisher_flush();
        spin_ms(rest_ms / 8);
    }
    streams_close(warm, warm_streams.count);
    spin_ms(rest_ms);
    books.ended = 0;
}

static double open_all(void) {
    double memory = group_memory_kb(&servers), cpu = group_cpu_us(&servers), store = group_cpu_us(&stores);
    uint64_t began = now_us();
    streams_open(books.streams, books.stream_count, at_once);
    double seconds = (now_us() - began) / 1e6;
    spin_ms(rest_ms);
    cpu = group_cpu_us(&servers) - cpu;
    store = group_cpu_us(&stores) - store;
    double opened = group_memory_kb(&servers);
    long n = books.stream_count;
    printf("\"streams\":%ld,\"open_s\":%.2f,\"open_cpu_us\":%.1f,\"open_store_cpu_us\":%.1f", n, seconds, cpu / n,
           store / n);
    printf(",\"base_kb\":%.0f,\"stream_kb\":%.2f", memory, (opened - memory) / n);
    return opened;
}

static void stay_idle(void) {
    double cpu = group_cpu_us(&servers), store = group_cpu_us(&stores);
    uint64_t began = now_us();
    spin_ms((int)wanted.idle_ms);
    double seconds = (now_us() - began) / 1e6;
    printf(",\"idle_core\":%.5f,\"idle_store_core\":%.5f", (group_cpu_us(&servers) - cpu) / 1e6 / seconds,
           (group_cpu_us(&stores) - store) / 1e6 / seconds);
}

static void publish_at_a_rate(void) {
    long before = books.told, expected = before, sent = 0;
    double cpu = group_cpu_us(&servers), store = group_cpu_us(&stores);
    uint64_t began = now_us(), first = began + 20000, since = began;
    books.is_timing = 1;
    while (sent < wanted.rate_count || books.told < expected || publisher_waiting()) {
        uint64_t due = first + (uint64_t)(sent * 1e6 / wanted.rate);
        int64_t left = (int64_t)(due - now_us());
        if (sent < wanted.rate_count && left <= 0) {
            expected += publish_next();
            publisher_flush();
            sent++;
            continue;
        }
        publisher_flush();
        pump(sent == wanted.rate_count ? 5 : left > 5000 ? 5 : (int)(left / 1000));
        if (sent == wanted.rate_count) {
            wait_for(expected, &since);
            if (is_quiet(since))
                break;
        } else {
            since = now_us();
        }
    }
    books.is_timing = 0;
    uint64_t end = books.last_told > began ? books.last_told : now_us();
    double seconds = (end - began) / 1e6;
    cpu = group_cpu_us(&servers) - cpu;
    store = group_cpu_us(&stores) - store;
    printf(",\"rate_s\":%.2f,\"rate_core\":%.4f,\"rate_store_core\":%.4f,\"rate_cpu_us_per_publish\":%.3f", seconds,
           cpu / 1e6 / seconds, store / 1e6 / seconds, cpu / sent);
    printf(",\"rate_store_cpu_us_per_publish\":%.3f,\"rate_told\":%ld", store / sent, books.told - before);
    book_print_delays();
}

/* At most `window` publishes are on their way: the next one goes when the cues of the oldest have come. */
static void publish_flat_out(void) {
    long count = wanted.flat_count, before = books.told, expected = 0, sent = 0, oldest = 0;
    long *ends = malloc((count + 1) * sizeof *ends);
    spin_ms(rest_ms / 4);
    double cpu = group_cpu_us(&servers), user = group_user_us(&servers), store = group_cpu_us(&stores);
    double client = own_cpu_us();
    uint64_t began = now_us(), since = began;
    while (sent < count || books.told - before < expected || publisher_waiting()) {
        while (oldest < sent && books.told - before >= ends[oldest])
            oldest++;
        while (sent < count && sent - oldest < wanted.window && publisher_waiting() < 60000) {
            expected += publish_next();
            ends[sent++] = expected;
            while (oldest < sent && books.told - before >= ends[oldest])
                oldest++;
        }
        publisher_flush();
        pump(publisher_waiting() ? 1 : 20);
        wait_for(expected, &since);
        if (is_quiet(since)) {
            if (sent == count)
                break;
            oldest = sent; /* these were told of by cues of later ones */
            since = now_us();
        }
    }
    uint64_t end = books.last_told;
    cpu = group_cpu_us(&servers) - cpu;
    user = group_user_us(&servers) - user;
    store = group_cpu_us(&stores) - store;
    client = own_cpu_us() - client;
    if (books.told == before)
        die("no cue came of %ld that were expected", expected);
    double cues = books.told - before, seconds = (end - began) / 1e6;
    printf(",\"flat_publishes\":%ld,\"flat_expected\":%ld,\"flat_told\":%.0f,\"flat_s\":%.3f", count, expected, cues,
           seconds);
    printf(",\"cues_s\":%.0f,\"cpu_us\":%.3f,\"user_us\":%.3f,\"store_cpu_us\":%.3f,\"client_cpu_us\":%.3f",
           cues / seconds, cpu / cues, user / cues, store / cues, client / cues);
    printf(",\"cpu_us_per_publish\":%.3f,\"store_cpu_us_per_publish\":%.3f,\"publishes_s\":%.0f", cpu / count,
           store / count, count / seconds);
}

static void publish_in_bursts(double opened_kb) {
    double peak = opened_kb, cpu = group_cpu_us(&servers), store = group_cpu_us(&stores);
    long before = books.told, expected = 0;
    for (long i = 0; i < wanted.repeat; i++) {
        is_paused = 1;
        for (long k = 0; k < wanted.burst; k++) {
            expected += publish_next();
            publisher_flush();
            if (wanted.gap_us)
                rest_us(wanted.gap_us);
        }
        while (publisher_waiting()) {
            publisher_flush();
            rest_us(1000);
        }
        rest_us(wanted.slow_ms * 1000);
        double now = group_memory_kb(&servers);
        peak = now > peak ? now : peak;
        is_paused = 0;
        uint64_t since = now_us();
        while (books.told - before < expected) {
            pump(10);
            wait_for(expected, &since);
            if (is_quiet(since))
                break;
        }
    }
    cpu = group_cpu_us(&servers) - cpu;
    store = group_cpu_us(&stores) - store;
    printf(",\"burst_expected\":%ld,\"burst_told\":%ld,\"burst_cpu_us\":%.4f,\"burst_store_cpu_us\":%.4f", expected,
           books.told - before, cpu / expected, store / expected);
    printf(",\"burst_growth_kb\":%.2f", (peak - opened_kb) / books.stream_count);
}

static void judge(void) {
    char fault[256];
    spin_ms(rest_ms);
    int wrong = book_judge(fault, sizeof fault);
    long bad = wrong + books.stray + books.wrong_id + books.ended + books.refused_events;
    printf(",\"warm_told\":%ld", books.warm_told);
    printf(",\"told\":%ld,\"wrong_streams\":%d,\"stray\":%ld,\"wrong_id\":%ld,\"ended\":%ld,\"fault\":\"%s\"",
           books.told, wrong, books.stray, books.wrong_id, books.ended, fault);
    printf(",\"exact\":%s}\n", bad ? "false" : "true");
}

int main(int count, char **words) {
    char *publisher = NULL, *expected = "";
    long connections = 8, answers = 0, topics = 0;
    for (int i = 1; i < count; i++) {
        char *value = i + 1 < count ? words[i + 1] : "";
#define OPTION(name) (!strcmp(words[i], name) && ++i)
        if (OPTION("--doors")) doors_add(value);
        else if (OPTION("--publisher")) publisher = value;
        else if (OPTION("--streams")) streams = plan_read(value);
        else if (OPTION("--warm-streams")) warm_streams = plan_read(value);
        else if (OPTION("--publishes")) publishes = plan_read(value);
        else if (OPTION("--warm")) wanted.warm = atol(value);
        else if (OPTION("--topics")) topics = atol(value);
        else if (OPTION("--ready")) ready_when = *value == 'h' ? READY_HEAD : *value == 'b' ? READY_BODY
                                                                             : READY_ACKNOWLEDGED;
        else if (OPTION("--coalesces")) books.coalesces = atoi(value);
        else if (OPTION("--servers")) servers = group_parse(value);
        else if (OPTION("--stores")) stores = group_parse(value);
        else if (OPTION("--idle-ms")) wanted.idle_ms = atol(value);
        else if (OPTION("--rate")) wanted.rate = atof(value);
        else if (OPTION("--rate-count")) wanted.rate_count = atol(value);
        else if (OPTION("--flat-count")) wanted.flat_count = atol(value);
        else if (OPTION("--window")) wanted.window = atol(value);
        else if (OPTION("--burst")) wanted.burst = atol(value);
        else if (OPTION("--repeat")) wanted.repeat = atol(value);
        else if (OPTION("--gap-us")) wanted.gap_us = atol(value);
        else if (OPTION("--slow-ms")) wanted.slow_ms = atol(value);
        else if (OPTION("--receive-buffer")) receive_buffer = atoi(value);
        else if (OPTION("--at-once")) at_once = atoi(value);
        else if (OPTION("--stall-ms")) stall_ms = atoi(value);
        else if (OPTION("--quiet-ms")) quiet_ms = atoi(value);
        else if (OPTION("--rest-ms")) rest_ms = atoi(value);
        else if (OPTION("--ask")) answers = atol(value);
        else if (OPTION("--connections")) connections = atol(value);
        else if (OPTION("--expect")) expected = value;
        else die("unknown option %s", words[i]);
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (answers) {
        ask(&streams, (int)connections, answers, expected, &servers, &stores);
        return 0;
    }
    if ((long)files.rlim_cur < streams.count + 100)
        die("%ld streams need a limit of %ld open files; it is %ld", streams.count, streams.count + 100,
            (long)files.rlim_cur);
    book_open(&streams, topics);
    if (publisher)
        publisher_connect(publisher);
    warm_up();
    printf("{");
    double opened = open_all();
    if (books.told)
        die("%ld cues came before anything was published", books.told);
    if (wanted.idle_ms) stay_idle();
    if (wanted.rate_count) publish_at_a_rate();
    if (wanted.flat_count) publish_flat_out();
    if (wanted.burst) publish_in_bursts(opened);
    judge();
    return 0;
}

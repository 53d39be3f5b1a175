/* Clocks, and what processes cost, from /proc. */
#include "loadgen.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

void rest_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "loadgen: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

group group_parse(char *text) {
    group g = {.count = 0};
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        if (g.count == (int)(sizeof g.pids / sizeof *g.pids))
            die("too many processes to watch");
        g.pids[g.count++] = atoi(word);
    }
    return g;
}

static double process_cpu_us(int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    double total = 0;
    if (!tasks)
        die("process %d, whose CPU is counted, has ended", pid);
    for (struct dirent *task; (task = readdir(tasks));) {
        char file[340];
        unsigned long long ns = 0;
        if (task->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s/schedstat", path, task->d_name);
        FILE *f = fopen(file, "r");
        if (!f)
            continue; /* the thread has ended meanwhile */
        if (fscanf(f, "%llu", &ns) == 1)
            total += ns / 1e3;
        fclose(f);
    }
    closedir(tasks);
    return total;
}

static double process_user_us(int pid) {
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    unsigned long ticks = 0;
    char *after_name = strrchr(text, ')');
    if (after_name)
        sscanf(after_name + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu", &ticks);
    return ticks * 1e6 / sysconf(_SC_CLK_TCK);
}

static double process_memory_kb(int pid) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *f = fopen(path, "r");
    double kb = 0;
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "Pss:", 4)) {
            kb = atof(line + 4);
            break;
        }
    fclose(f);
    return kb;
}

static double sum(double (*of)(int), const group *g) {
    double total = 0;
    for (int i = 0; i < g->count; i++)
        total += of(g->pids[i]);
    return total;
}

double group_cpu_us(const group *g) { return sum(process_cpu_us, g); }
double group_user_us(const group *g) { return sum(process_user_us, g); }
double group_memory_kb(const group *g) { return sum(process_memory_kb, g); }

double own_cpu_us(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}

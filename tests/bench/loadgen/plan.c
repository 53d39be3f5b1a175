/* Reads a plan: records of five little-endian 32-bit numbers (topic, uri, count, id, length) and their bytes. */
#include "loadgen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD 20

plan plan_read(const char *path) {
    int fd = open(path, O_RDONLY);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) < 0)
        die("cannot read the plan %s: %s", path, strerror(errno));
    plan p = {NULL, 0};
    if (about.st_size == 0)
        return p;
    const char *data = mmap(NULL, about.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (data == MAP_FAILED)
        die("cannot map the plan %s: %s", path, strerror(errno));
    long room = 0;
    for (off_t at = 0; at + HEAD <= about.st_size;) {
        uint32_t head[5];
        memcpy(head, data + at, HEAD);
        if (at + HEAD + head[4] > about.st_size)
            die("the plan %s is cut off", path);
        if (p.count == room) {
            room = room ? room * 2 : 1024;
            p.items = realloc(p.items, room * sizeof *p.items);
        }
        p.items[p.count++] = (record){head[0], head[1], head[2], head[3], head[4], data + at + HEAD};
        at += HEAD + head[4];
    }
    close(fd);
    return p;
}

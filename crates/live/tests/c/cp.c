/* An endpoint of application 7 in C. The argument is a port of the aggregation points, beyond which the
 * data are sent back. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tidegate_cp.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s: errno %s\n", __LINE__, #what, strerror(errno));          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

_Static_assert(sizeof(tg_cp_path) == 56, "the layout is that of the library");

/* Ends a test that hangs. No result depends on it. */
enum { GUARD_MS = 300000, INTERVAL_MS = 2 };

static int udp(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    return fd;
}

static void refusals(int fd) {
    tg_cp_path path;
    int pair[2];
    CHECK(tg_cp_open(-1, 7, 1, 1) == NULL && errno == EBADF);
    CHECK(tg_cp_open(fd, 7, 1, 0) == NULL && errno == EINVAL);
    CHECK(tg_cp_open(fd, 7, 1, 65) == NULL && errno == EINVAL);
    /* Not connected. */
    CHECK(tg_cp_open(fd, 7, 1, 1) == NULL && errno == ENOTCONN);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(tg_cp_open(pair[0], 7, 1, 1) == NULL && errno == EPROTOTYPE);
    CHECK(tg_cp_get_path(NULL, &path) == -1 && errno == EINVAL);
    CHECK(tg_cp_send(NULL, "x", 1) == -1 && tg_cp_receive(NULL, NULL, 0, 0) == -1);
    CHECK(tg_cp_set_shares(NULL, 1) == -1 && tg_cp_refused(NULL) == 0);
    tg_cp_close(NULL);
}

int main(int count, char **words) {
    CHECK(count == 2);
    struct sockaddr_in points = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    points.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = udp();
    refusals(fd);
    CHECK(connect(fd, (struct sockaddr *)&points, sizeof points) == 0);
    tg_cp *cp = tg_cp_open(fd, 7, 3, 2);
    CHECK(cp != NULL && close(fd) == 0);

    tg_cp_path path;
    CHECK(tg_cp_get_path(cp, NULL) == -1 && errno == EINVAL);
    CHECK(tg_cp_get_path(cp, &path) == 0 && path.state == TG_CP_UNKNOWN);
    CHECK(path.rtt_ns == 0 && path.available_bps == 0 && path.loss < 0 && path.shares == 0);
    CHECK(tg_cp_set_shares(cp, 65) == -1 && tg_cp_set_shares(cp, 4) == 0);
    CHECK(tg_cp_send(cp, NULL, 1) == -1 && errno == EINVAL);
    CHECK(tg_cp_receive(cp, NULL, 1, 0) == -1 && errno == EINVAL);

    /* The data come back: cut, whole, and none. */
    char data[5];
    unsigned echoed = 0;
    do {
        CHECK(tg_cp_send(cp, "endpoint", 8) == 0);
        ssize_t length = tg_cp_receive(cp, data, sizeof data, INTERVAL_MS);
        /* 0: a notification of an aggregation point. */
        CHECK(length == 8 || length == 0 || errno == EAGAIN || errno == EINTR);
        if (length == 8) {
            CHECK(memcmp(data, "endpo", 5) == 0);
            echoed++;
        }
        CHECK(tg_cp_get_path(cp, &path) == 0);
    } while (echoed < 20 || path.available_bps == 0);
    CHECK(path.rtt_ns >= 10000000 && path.rtt_ns < 1000000000);
    CHECK(path.deviation_ns < 1000000000 && path.loss >= 0 && path.loss < 1);
    CHECK(path.shares == 4 && path.flows == 1 && path.packet_size > 0 && path.sending_bps > 0);
    CHECK(tg_cp_refused(cp) == 0);

    /* Nothing is sent and so nothing comes back: the wait ends with the estimates. */
    do {
        ssize_t length = tg_cp_receive(cp, data, sizeof data, GUARD_MS);
        CHECK(length >= 0 || errno == EAGAIN);
        CHECK(tg_cp_get_path(cp, &path) == 0);
    } while (path.state == TG_CP_CURRENT);
    CHECK(path.state == TG_CP_SILENT && path.available_bps > 0);
    tg_cp_close(cp);
    return 0;
}

/* Shared by the tests in C. */
#ifndef CHECK_H
#define CHECK_H

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tidegate_events.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, tg_events_error());              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Ends a test that hangs: milliseconds, and tries that wait for one each. No result depends on it. */
#define GUARD_MS 300000

/* A connection over the loopback. */
static inline int connected(int *peer) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), ours = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener, (struct sockaddr *)&address, size) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(connect(ours, (struct sockaddr *)&address, size) == 0);
    *peer = accept(listener, NULL, NULL);
    CHECK(*peer >= 0);
    close(listener);
    return ours;
}

#endif

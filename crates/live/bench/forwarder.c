/*
 * A plain forwarder between two TUN devices, as a yardstick for the emulator: what one reads goes
 * to the other after a fixed delay, and nothing else happens to it.
 *
 * Usage: forwarder MICROSECONDS <>DEVICE >&DEVICE
 *
 * The devices are the standard input and the standard output, open, attached and not blocking.
 * It runs until SIGTERM, and then says on the standard error what it did.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* 20 ms of 800,000 packets per second. A power of two. */
#define SLOTS 16384u
/* Packets that are read in one go: after them, others may be due. */
#define BATCH 64
/* The same as that of the emulator. */
#define PRIORITY 40

struct slot {
    uint64_t due;
    size_t length;
    unsigned char bytes[1504];
};

/* From one device to the other. Both counters only grow. */
struct way {
    int from, to;
    uint32_t written, read;
    struct slot *slots;
};

static volatile sig_atomic_t stopped;

static void on_term(int signal)
{
    (void)signal;
    stopped = 1;
}

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void read_some(struct way *way, uint64_t delay)
{
    uint64_t due = now() + delay;
    for (int i = 0; i < BATCH && way->read - way->written < SLOTS; i++) {
        struct slot *slot = &way->slots[way->read % SLOTS];
        ssize_t length = read(way->from, slot->bytes, sizeof slot->bytes);
        if (length <= 0)
            break;
        slot->due = due;
        slot->length = (size_t)length;
        way->read++;
    }
}

/* Returns when the next packet of this way is due, UINT64_MAX if there is none. */
static uint64_t write_due(struct way *way, uint64_t *refused)
{
    uint64_t moment = now();
    while (way->written != way->read) {
        struct slot *slot = &way->slots[way->written % SLOTS];
        if (slot->due > moment)
            return slot->due;
        if (write(way->to, slot->bytes, slot->length) < 0)
            ++*refused;
        way->written++;
    }
    return UINT64_MAX;
}

static void watch(int queue, int fd, uint32_t token)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = token};
    must(epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: forwarder MICROSECONDS <>DEVICE >&DEVICE\n", stderr);
        return 2;
    }
    uint64_t delay = strtoull(argv[1], NULL, 10) * 1000u;
    struct way ways[2] = {{.from = 0, .to = 1}, {.from = 1, .to = 0}};
    struct sched_param priority = {.sched_priority = PRIORITY};
    int realtime = sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
    signal(SIGTERM, on_term);
    /* Nobody is left to stop it when who started it is gone. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int queue = epoll_create1(0);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    must(queue >= 0 && timer >= 0, "epoll_create1, timerfd_create");
    for (uint32_t i = 0; i < 2; i++) {
        ways[i].slots = malloc(SLOTS * sizeof *ways[i].slots);
        must(ways[i].slots != NULL, "malloc");
        memset(ways[i].slots, 0, SLOTS * sizeof *ways[i].slots);
        watch(queue, ways[i].from, i);
    }
    watch(queue, timer, 2);

    uint64_t armed = 0, refused = 0;
    while (!stopped) {
        struct epoll_event events[3];
        /* A signal just before this call would go unnoticed for ever. */
        int count = epoll_wait(queue, events, 3, 100);
        must(count >= 0 || errno == EINTR, "epoll_wait");
        for (int i = 0; i < count; i++) {
            uint64_t expirations;
            if (events[i].data.u32 < 2)
                read_some(&ways[events[i].data.u32], delay);
            else if (read(timer, &expirations, sizeof expirations) < 0)
                must(errno == EAGAIN, "timer");
        }
        uint64_t forth = write_due(&ways[0], &refused), back = write_due(&ways[1], &refused);
        uint64_t next = forth < back ? forth : back;
        if (next != UINT64_MAX && next != armed) {
            struct itimerspec at = {.it_value = {.tv_sec = (time_t)(next / 1000000000u),
                                                 .tv_nsec = (long)(next % 1000000000u)}};
            must(timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL) == 0, "timerfd_settime");
            armed = next;
        }
    }
    fprintf(stderr, "forwarder: %u and %u packets, %llu refused, %s\n", ways[0].written,
            ways[1].written, (unsigned long long)refused,
            realtime ? "real-time priority" : "no real-time priority");
    return 0;
}

/* The C interface over the loopback, without privilege: events, probe, callback, signal, errors. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"

static atomic_int calls;

static void on_event(const tg_event *event, void *user) {
    CHECK(user == &calls);
    CHECK(event->kind == TG_ENDED);
    atomic_fetch_add(&calls, 1);
}

/* Callbacks that replace themselves. */
static struct {
    tg_events *events;
    int other;
    atomic_int first, second;
} changes;

static void then_nothing(const tg_event *event, void *user) {
    CHECK(user == &changes);
    CHECK(event->kind == TG_STATE || event->kind == TG_ENDED);
    CHECK(tg_events_call(changes.events, NULL, NULL) == 0);
    atomic_fetch_add(&changes.second, 1);
}

static void then_another(const tg_event *event, void *user) {
    CHECK(user == &changes);
    CHECK(tg_events_call(changes.events, then_nothing, &changes) == 0);
    CHECK(tg_events_cancel(changes.events, event->subscription) == 0);
    CHECK(tg_events_subscribe(changes.events, changes.other, 1u << TG_STATE, 0, NULL) == 0);
    CHECK(shutdown(changes.other, SHUT_WR) == 0);
    CHECK(atomic_load(&changes.second) == 0);
    atomic_fetch_add(&changes.first, 1);
}

static void wait_for(atomic_int *count) {
    for (int tries = 0; atomic_load(count) == 0; tries++) {
        CHECK(tries < GUARD_MS);
        CHECK(poll(NULL, 0, 1) == 0);
    }
}

int main(void) {
    tg_events *events = tg_events_unprivileged();
    tg_event event;
    uint64_t id, known, count, lost, variables[TG_VARIABLES];
    uint32_t kinds;
    int peer, ours = connected(&peer);
    char text[] = "twelve bytes";

    CHECK(events != NULL);
    CHECK(tg_events_from_kernel(events) == 0);
    CHECK(tg_events_allowed(events, &kinds, NULL) == 0 && kinds == TG_ALL_EVENTS);
    CHECK(strcmp(tg_event_name(TG_TIMEOUT), "timeout") == 0);
    CHECK(strcmp(tg_variable_name(TG_V_CWND), "cwnd") == 0);
    CHECK(tg_event_name(99) == NULL);
    CHECK(strstr(tg_events_weaker(events, TG_THIRD_DUPLICATE), "not detected") != NULL);
    CHECK(strstr(tg_events_weaker(events, TG_TIMEOUT), "the next reading") != NULL);
    CHECK(tg_events_weaker(events, 99) == NULL);
    CHECK(tg_events_why_unprivileged(events) == NULL);
    tg_events *found;
    CHECK(setenv("TIDEGATE_EVENTS_SOCKET", "/nonexistent/socket", 1) == 0);
    CHECK((found = tg_events_open()) != NULL);
    CHECK(strstr(tg_events_why_unprivileged(found), "/nonexistent/socket") != NULL);
    tg_events_close(found);
    CHECK(tg_events_busy_poll(events, 100) == 0);
    CHECK(tg_events_busy_poll(NULL, 100) == -1);

    CHECK(tg_events_subscribe(events, STDERR_FILENO, 0, 0, NULL) == -1);
    CHECK(strstr(tg_events_error(), "socket") != NULL);
    CHECK(tg_events_connect("/nonexistent/socket") == NULL);
    CHECK(strstr(tg_events_error(), "tidegate events serve") != NULL);

    CHECK(tg_events_subscribe(events, ours, 1u << TG_STATE, TG_ALL_VARIABLES, &id) == 0);
    CHECK(tg_events_write(events, ours, text, sizeof text) == sizeof text);
    CHECK(read(peer, text, sizeof text) == sizeof text);
    CHECK(tg_events_probe(events, ours, &known, variables) == 0);
    CHECK(known >> TG_V_BYTES_SENT & 1);
    CHECK(variables[TG_V_BYTES_SENT] == sizeof text);
    CHECK(tg_events_next(events, &event, 0) == 0);

    /* The end: a change of state, then the close of the socket. */
    CHECK(shutdown(ours, SHUT_WR) == 0);
    struct pollfd readable = {.fd = tg_events_fd(events), .events = POLLIN};
    CHECK(poll(&readable, 1, GUARD_MS) == 1);
    CHECK(tg_events_next(events, &event, GUARD_MS) == 1);
    CHECK(event.kind == TG_STATE && event.subscription == id && event.number == 1);
    CHECK(tg_events_tally(events, id, &count, &lost) == 0 && count >= 1 && lost == 0);
    CHECK(tg_events_change(events, id, 0, 0) == 0);
    CHECK(tg_events_cancel(events, id) == 0);
    CHECK(tg_events_cancel(events, id) == -1);
    close(peer);
    close(ours);

    /* Signals as in the papers. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    ours = connected(&peer);
    CHECK(tg_events_subscribe(events, ours, 0, 0, &id) == 0);
    CHECK(tg_events_rearm(events) == -1 && strstr(tg_events_error(), "tg_events_signal") != NULL);
    CHECK(tg_events_signal(events, SIGIO) == 0);
    struct timespec limit = {.tv_sec = 5};
    for (int times = 0; times < 2; times++) {
        close(ours);
        CHECK(sigtimedwait(&set, NULL, &limit) == SIGIO);
        CHECK(tg_events_next(events, &event, 0) == 1);
        CHECK(event.kind == TG_ENDED);
        CHECK(tg_events_rearm(events) == 0);
        close(peer);
        ours = connected(&peer);
        CHECK(tg_events_subscribe(events, ours, 0, 0, &id) == 0);
    }
    CHECK(tg_events_cancel(events, id) == 0);
    close(ours);
    CHECK(tg_events_signal(events, 0) == 0);
    close(peer);

    /* A callback. */
    ours = connected(&peer);
    CHECK(tg_events_subscribe(events, ours, 0, 0, &id) == 0);
    CHECK(tg_events_call(events, on_event, &calls) == 0);
    close(ours);
    wait_for(&calls);
    close(peer);

    /* Callbacks that replace themselves: one by another, and that by none. */
    int other_peer;
    ours = connected(&peer);
    changes.events = events;
    changes.other = connected(&other_peer);
    CHECK(tg_events_call(events, then_another, &changes) == 0);
    CHECK(tg_events_subscribe(events, ours, 1u << TG_STATE, 0, &id) == 0);
    CHECK(shutdown(ours, SHUT_WR) == 0);
    wait_for(&changes.second);
    CHECK(atomic_load(&changes.first) == 1 && atomic_load(&changes.second) == 1);
    CHECK(tg_events_call(events, NULL, NULL) == 0);
    close(changes.other);
    CHECK(tg_events_next(events, &event, GUARD_MS) == 1);
    CHECK(tg_events_is_serving(events) == 1);
    CHECK(tg_events_is_serving(NULL) == -1);
    tg_events_close(events);
    CHECK(atomic_load(&calls) == 1);
    puts("the C interface works");
    return 0;
}

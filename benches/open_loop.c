/*
 * Load generator of the benchmarks of sections, groups and transparent relays: opens sessions on a fixed schedule that
 * does not depend on earlier sessions (an open loop).
 *
 *   open_loop IP PORT RATE SECONDS PATH BODY_BYTES
 *
 * One thread, one epoll, edge-triggered. Session number i is opened i / RATE seconds after the start, requests PATH
 * by HTTP/1.0 and reads to the end of the stream, so that the server closes first and no connection is reset. Anything
 * but a complete response (200, BODY_BYTES, end of stream) is a failure. Prints one line of JSON, times in
 * microseconds: quantiles of the time from connect() to the first byte of the response, the median and p99 of connect()
 * alone, and the lateness of opening, which is a delay of this program or of the machine and not of the measured relay.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common.h"

#define EVENTS 256
#define ROOM 1024 /* maximum bytes of a response, head and body */
#define PATIENCE (5 * SECOND) /* wait for the last responses */

struct session {
    int fd;
    int asked;
    size_t got;
    int64_t began; /* time of the call of connect */
    char answer[ROOM];
};

static int epoll_fd;
static struct sockaddr_in target;
static char request[256];
static size_t body;
static long total, ended, failed, answered, connected;
static int64_t *latencies, *lateness, *connects;
static char why[64]; /* of the first failure */

static void end(struct session *s, const char *trouble)
{
    if (trouble && !failed++)
        snprintf(why, sizeof why, "%s", trouble);
    close(s->fd);
    s->fd = -1;
    ended++;
}

static int is_whole(const struct session *s)
{
    static const char ok[] = "HTTP/1.1 200 ";
    const char *blank = memmem(s->answer, s->got, "\r\n\r\n", 4);

    return blank && !memcmp(s->answer, ok, sizeof ok - 1) && s->answer + s->got == blank + 4 + body;
}

static void begin(struct session *s)
{
    struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = s };
    int on = 1;

    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (s->fd < 0)
        die("socket");
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    s->began = now();
    if (connect(s->fd, (struct sockaddr *)&target, sizeof target) && errno != EINPROGRESS)
        end(s, strerror(errno));
    else if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, s->fd, &e))
        die("epoll_ctl");
}

/* Sends the request. Returns 0 if the session has failed. */
static int ask(struct session *s)
{
    ssize_t length = strlen(request);
    int64_t connecting = now() - s->began;

    if (send(s->fd, request, length, MSG_NOSIGNAL) != length) {
        end(s, strerror(errno));
        return 0;
    }
    connects[connected++] = connecting;
    s->asked = 1;
    return 1;
}

static void hear(struct session *s)
{
    for (;;) {
        ssize_t count = recv(s->fd, s->answer + s->got, ROOM - s->got, 0);

        if (count < 0 && errno == EAGAIN)
            return;
        if (count <= 0) {
            end(s, count < 0 ? strerror(errno) : is_whole(s) ? NULL : "not a whole answer");
            return;
        }
        if (!s->got)
            latencies[answered++] = now() - s->began;
        s->got += count;
    }
}

static void proceed(struct session *s, uint32_t events)
{
    if (s->fd < 0 || (!s->asked && !(events & (EPOLLOUT | EPOLLERR | EPOLLHUP))))
        return;
    if (s->asked || ask(s))
        hear(s);
}

static int ticking(int64_t start, int64_t interval)
{
    struct itimerspec every = { { interval / SECOND, interval % SECOND }, { start / SECOND, start % SECOND } };
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = NULL };
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);

    prctl(PR_SET_TIMERSLACK, 1);
    if (timer < 0 || timerfd_settime(timer, TFD_TIMER_ABSTIME, &every, NULL))
        die("timerfd");
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer, &e))
        die("epoll_ctl");
    return timer;
}

/* Opens each session when it is due. Returns when all have ended, or PATIENCE after the last was due. */
static void run(struct session *sessions, int64_t interval)
{
    int64_t start = now() + interval, last = start + total * interval;
    struct epoll_event events[EVENTS];
    int timer = ticking(start, interval);
    long opened = 0;

    while (ended < total && now() < last + PATIENCE) {
        int count = epoll_wait(epoll_fd, events, EVENTS, 100);
        uint64_t ticks;

        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr)
                proceed(events[i].data.ptr, events[i].events);
            else if (read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN)
                die("timerfd");
        }
        for (int64_t due; opened < total && (due = start + opened * interval) <= now(); opened++) {
            lateness[opened] = now() - due;
            begin(&sessions[opened]);
        }
    }
    for (long i = 0; i < opened; i++)
        if (sessions[i].fd >= 0)
            end(&sessions[i], "no end of the answer in time");
}

static void print_quantiles(const int64_t *sorted, long count)
{
    static const struct { const char *name; double q; } wanted[] = {
        { "p50", 0.5 }, { "p90", 0.9 }, { "p99", 0.99 }, { "p999", 0.999 }, { "most", 1 },
    };

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        printf("%s\"%s\": %.1f", i ? ", " : "", wanted[i].name, quantile(sorted, count, wanted[i].q));
}

int main(int argc, char **argv)
{
    struct session *sessions;
    double rate;

    if (argc != 7) {
        fprintf(stderr, "usage: open_loop IP PORT RATE SECONDS PATH BODY_BYTES\n");
        return 2;
    }
    rate = atof(argv[3]);
    total = rate * atof(argv[4]);
    body = atol(argv[6]);
    target.sin_family = AF_INET;
    target.sin_port = htons(atoi(argv[2]));
    if (inet_pton(AF_INET, argv[1], &target.sin_addr) != 1 || rate <= 0 || total <= 0) {
        fprintf(stderr, "open_loop: not an address, a rate and a time\n");
        return 2;
    }
    snprintf(request, sizeof request, "GET /%s HTTP/1.0\r\n\r\n", argv[5]);
    sessions = calloc(total, sizeof *sessions);
    latencies = calloc(total, sizeof *latencies);
    lateness = calloc(total, sizeof *lateness);
    connects = calloc(total, sizeof *connects);
    if (!sessions || !latencies || !lateness || !connects || (epoll_fd = epoll_create1(0)) < 0)
        die("start");
    run(sessions, SECOND / rate);
    qsort(latencies, answered, sizeof *latencies, ascending);
    qsort(connects, connected, sizeof *connects, ascending);
    qsort(lateness, total, sizeof *lateness, ascending);
    printf("{\"sessions\": %ld, \"failed\": %ld, \"why\": \"%s\", ", total, failed, why);
    print_quantiles(latencies, answered);
    printf(", \"connect_p50\": %.1f, \"connect_p99\": %.1f", quantile(connects, connected, 0.5),
           quantile(connects, connected, 0.99));
    printf(", \"late\": %.1f}\n", quantile(lateness, total, 0.99));
    return 0;
}

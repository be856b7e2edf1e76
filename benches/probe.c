/*
 * Background traffic: small datagrams to a server and back, on a fixed schedule that does not depend on earlier ones.
 *
 *   probe answer PORT
 *   probe ask IP PORT INTERVAL_MICROSECONDS SECONDS
 *
 * Datagram number i is due i * INTERVAL after the start. Its round-trip time is measured from this moment, so that a
 * delay before sending counts like a delay on the path. Both sides run with real-time priority (SCHED_FIFO, if
 * permitted), so that the result is the delay of the box between them. Prints one line of JSON, times in microseconds:
 * quantiles of the round-trip time, the number of lost datagrams, and the lateness of sending (99th percentile).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

#define PATIENCE SECOND /* wait for the last answers */
#define PRIORITY 10

struct datagram {
    uint32_t number;
    char filling[60]; /* with `number` as long as a DNS query */
};

static int fd;
static int64_t start, interval;
static int64_t *times, *lateness;
static uint32_t total, answered;

static int64_t due(uint32_t number)
{
    return start + number * interval;
}

static void go_first(void)
{
    struct sched_param priority = { .sched_priority = PRIORITY };

    prctl(PR_SET_TIMERSLACK, 1);
    if (sched_setscheduler(0, SCHED_FIFO, &priority))
        perror("probe: runs like any other program, so others' turns are in its times: sched_setscheduler");
}

static void answer(const struct sockaddr_in *here)
{
    struct datagram d;
    struct sockaddr_in from;

    if (bind(fd, (const struct sockaddr *)here, sizeof *here))
        die("bind");
    for (;;) {
        socklen_t length = sizeof from;

        if (recvfrom(fd, &d, sizeof d, 0, (struct sockaddr *)&from, &length) == sizeof d)
            sendto(fd, &d, sizeof d, 0, (struct sockaddr *)&from, length);
    }
}

static void hear(void)
{
    struct datagram d;

    while (recv(fd, &d, sizeof d, MSG_DONTWAIT) == sizeof d)
        if (d.number < total && answered < total) /* the path may duplicate datagrams */
            times[answered++] = now() - due(d.number);
}

/* Receives answers until `moment`. */
static void wait_until(int64_t moment)
{
    struct pollfd readable = { .fd = fd, .events = POLLIN };

    for (int64_t left; (left = moment - now()) > 0;) {
        struct timespec most = { left / SECOND, left % SECOND };

        if (ppoll(&readable, 1, &most, NULL) > 0)
            hear();
    }
}

static void ask(void)
{
    struct datagram d = { 0 };

    start = now() + interval;
    for (d.number = 0; d.number < total; d.number++) {
        wait_until(due(d.number));
        lateness[d.number] = now() - due(d.number);
        if (send(fd, &d, sizeof d, 0) != sizeof d)
            die("send");
    }
    for (int64_t end = now() + PATIENCE; answered < total && now() < end;)
        wait_until(now() + SECOND / 100);
}

static void print(void)
{
    qsort(times, answered, sizeof *times, ascending);
    qsort(lateness, total, sizeof *lateness, ascending);
    printf("{\"sent\": %u, \"lost\": %u, \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"late\": %.1f}\n", total,
           total - answered, quantile(times, answered, 0.5), quantile(times, answered, 0.99),
           quantile(times, answered, 0.999), quantile(lateness, total, 0.99));
}

int main(int argc, char **argv)
{
    struct sockaddr_in place = { .sin_family = AF_INET };
    int asks = argc == 6 && !strcmp(argv[1], "ask");

    if (!asks && !(argc == 3 && !strcmp(argv[1], "answer"))) {
        fprintf(stderr, "usage: probe answer PORT | probe ask IP PORT INTERVAL_MICROSECONDS SECONDS\n");
        return 2;
    }
    place.sin_port = htons(atoi(argv[asks ? 3 : 2]));
    if ((fd = socket(AF_INET, SOCK_DGRAM, 0)) < 0)
        die("socket");
    go_first();
    if (!asks)
        answer(&place);
    interval = atoll(argv[4]) * 1000;
    if (interval <= 0 || inet_pton(AF_INET, argv[2], &place.sin_addr) != 1) {
        fprintf(stderr, "probe: not an address and an interval\n");
        return 2;
    }
    total = atof(argv[5]) * SECOND / interval;
    times = calloc(total, sizeof *times);
    lateness = calloc(total, sizeof *lateness);
    if (!times || !lateness || connect(fd, (struct sockaddr *)&place, sizeof place))
        die("start");
    ask();
    print();
    return 0;
}

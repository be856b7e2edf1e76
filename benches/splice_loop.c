/*
 * The baseline of the relay benchmark: a relay that does the minimum of work.
 *
 *   splice_loop PORT TARGET_IP TARGET_PORT
 *
 * One thread, one epoll, edge-triggered; every accepted connection is connected to one fixed target by two
 * 1 MiB pipes and splice(2). End of stream closes that direction only; an error closes both sides. There are no
 * limits, deadlines, logs and counters: the additional cost of a real relay is the cost of its features.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

#define PIPE_BYTES (1 << 20)
#define EVENTS 256
#define SPARE_PIPES 1024 /* empty pipes kept for new connections: to create a 1 MiB pipe takes time */

struct direction {
    int from, to;
    int pipe[2];
    size_t queued; /* bytes in the pipe */
    int eof;       /* end of stream from `from` */
    int shut;      /* end of stream sent to `to` */
};

struct connection {
    struct direction up, down;
    int dead;
    struct connection *next; /* in the list of closed connections, which are freed after the batch of events */
};

static int epoll_fd;
static struct sockaddr_in target;
static struct connection *graveyard;
static int spare[SPARE_PIPES][2];
static int spares;

static int pipe_take(int fds[2])
{
    if (spares) {
        spares--;
        fds[0] = spare[spares][0];
        fds[1] = spare[spares][1];
        return 0;
    }
    if (pipe2(fds, O_NONBLOCK))
        return -1;
    fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES); /* above the user's quota the pipe keeps its default size */
    return 0;
}

static void pipe_give(struct direction *d)
{
    if (d->queued == 0 && spares < SPARE_PIPES) {
        spare[spares][0] = d->pipe[0];
        spare[spares][1] = d->pipe[1];
        spares++;
        return;
    }
    close(d->pipe[0]);
    close(d->pipe[1]);
}

static void bury(struct connection *c)
{
    if (c->dead)
        return;
    c->dead = 1;
    c->next = graveyard;
    graveyard = c;
    close(c->up.from);
    close(c->up.to);
    pipe_give(&c->up);
    pipe_give(&c->down);
}

/* Moves bytes until both sides would block. Returns -1 on an error of the connection. */
static int pump(struct direction *d)
{
    for (;;) {
        ssize_t in = -1, out = -1;

        if (!d->eof && d->queued < PIPE_BYTES) {
            in = splice(d->from, NULL, d->pipe[1], NULL, PIPE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
            if (in > 0)
                d->queued += in;
            else if (in == 0)
                d->eof = 1;
            else if (errno != EAGAIN)
                return -1;
        }
        if (d->queued) {
            out = splice(d->pipe[0], NULL, d->to, NULL, d->queued, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
            if (out > 0)
                d->queued -= out;
            else if (out < 0 && errno != EAGAIN)
                return -1;
        }
        /* Edge-triggered: the kernel reports the next event only after both calls would block. */
        if (in <= 0 && out <= 0)
            break;
    }
    if (d->eof && !d->queued && !d->shut) {
        d->shut = 1;
        shutdown(d->to, SHUT_WR);
    }
    return 0;
}

static void watch(int fd, struct connection *c)
{
    struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c };
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e))
        die("epoll_ctl");
}

static void begin(int client)
{
    struct connection *c = calloc(1, sizeof *c);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    if (!c || server < 0 || pipe_take(c->up.pipe))
        die("session");
    if (pipe_take(c->down.pipe))
        die("session");
    c->up.from = c->down.to = client;
    c->up.to = c->down.from = server;
    if (connect(server, (struct sockaddr *)&target, sizeof target) && errno != EINPROGRESS) {
        bury(c);
        return;
    }
    watch(client, c);
    watch(server, c);
}

static void proceed(struct connection *c)
{
    if (c->dead)
        return;
    if (pump(&c->down) || pump(&c->up) || (c->up.shut && c->down.shut))
        bury(c);
}

static int listen_on(int port)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = NULL };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&here, sizeof here) || listen(fd, 4096))
        die("listen");
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e))
        die("epoll_ctl");
    return fd;
}

static void serve(int listener)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll_fd, events, EVENTS, -1), client;

    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr)
            proceed(events[i].data.ptr);
        else
            while ((client = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
                begin(client);
    }
    while (graveyard) {
        struct connection *c = graveyard;
        graveyard = c->next;
        free(c);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: splice_loop PORT TARGET_IP TARGET_PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    target.sin_family = AF_INET;
    target.sin_port = htons(atoi(argv[3]));
    if (inet_pton(AF_INET, argv[2], &target.sin_addr) != 1)
        die(argv[2]);
    if ((epoll_fd = epoll_create1(0)) < 0)
        die("epoll");
    for (int listener = listen_on(atoi(argv[1]));;)
        serve(listener);
}

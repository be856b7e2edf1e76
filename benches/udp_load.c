// Sends datagrams through a SOCKS5 UDP association (RFC 1928, 7) to a server in this process, with at most WINDOW
// datagrams in flight, and prints the rate of datagrams that the relay forwards and the number of lost datagrams as
// JSON.
//
//     udp_load RELAY-PORT there|back SECONDS BYTES WINDOW
//
// `there` counts the datagrams that arrive at the server. With `back` the server returns them, and each datagram that
// arrives at the client counts twice, because the relay has forwarded it twice. All addresses are 127.0.0.1. If nothing
// arrives for LOST_AFTER seconds, all datagrams in flight count as lost.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

enum { BATCH = 32, HEADER = 10, SIZE = 2048 };
#define LOST_AFTER 0.1

static struct mmsghdr messages[BATCH];
static struct iovec vectors[BATCH];
static struct sockaddr_in sources[BATCH];
static unsigned char buffers[BATCH][SIZE];

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int udp_socket(void) {
    struct sockaddr_in any = loopback(0);
    int bytes = 4 << 20, fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any)) die("udp socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    return fd;
}

static void exchange(int fd, const unsigned char *request, size_t length, unsigned char *reply, size_t expected) {
    if (send(fd, request, length, 0) != (ssize_t)length) die("send");
    if (recv(fd, reply, expected, MSG_WAITALL) != (ssize_t)expected) die("no reply of the relay");
}

// Opens an association on a new TCP connection, which stays open. Returns the relay's port for datagrams.
static int associate(int relay_port) {
    struct sockaddr_in relay = loopback(relay_port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&relay, sizeof relay)) die("connect");
    unsigned char reply[10];
    exchange(fd, (const unsigned char *)"\5\1\0", 3, reply, 2);
    exchange(fd, (const unsigned char *)"\5\3\0\1\0\0\0\0\0\0", 10, reply, 10);
    if (reply[1] != 0) {
        fprintf(stderr, "the relay refuses: %d\n", reply[1]);
        exit(1);
    }
    return reply[8] << 8 | reply[9];
}

// Prepares the first `count` messages for one call, with buffers of `length` bytes.
static void prepare(int count, size_t length) {
    for (int i = 0; i < count; i++) {
        vectors[i] = (struct iovec){buffers[i], length};
        messages[i].msg_hdr = (struct msghdr){&sources[i], sizeof sources[i], &vectors[i], 1, NULL, 0, 0};
    }
}

static int receive(int fd) {
    prepare(BATCH, SIZE);
    int count = recvmmsg(fd, messages, BATCH, MSG_DONTWAIT, NULL);
    return count > 0 ? count : 0;
}

// Sends `count` received datagrams back to their senders.
static void send_back(int fd, int count) {
    for (int i = 0; i < count; i++) vectors[i].iov_len = messages[i].msg_len;
    sendmmsg(fd, messages, (unsigned)count, 0);
}

static int send_new(int fd, struct sockaddr_in relay, struct sockaddr_in server, size_t bytes, int count) {
    if (count > BATCH) count = BATCH;
    prepare(count, HEADER + bytes);
    for (int i = 0; i < count; i++) {
        memcpy(buffers[i], "\0\0\0\1", 4);
        memcpy(buffers[i] + 4, &server.sin_addr, 4);
        memcpy(buffers[i] + 8, &server.sin_port, 2);
        sources[i] = relay;
    }
    int sent = sendmmsg(fd, messages, (unsigned)count, 0);
    return sent > 0 ? sent : 0;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    int relay_port = atoi(argv[1]), is_back = !strcmp(argv[2], "back"), window = atoi(argv[5]);
    double seconds = atof(argv[3]);
    size_t bytes = (size_t)atoi(argv[4]);
    int client = udp_socket(), server = udp_socket();
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    getsockname(server, (struct sockaddr *)&at, &length);
    struct sockaddr_in relay = loopback(associate(relay_port));
    // The first tenth of the time is not counted: the relay checks the target, and caches fill.
    double begun = now() / 1e9, heard = begun, counted_since = 0;
    long arrived = 0, lost = 0;
    int outstanding = 0;
    struct pollfd both[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    for (;;) {
        double time = now() / 1e9;
        if (!counted_since && time - begun > seconds / 10) {
            counted_since = time;
            arrived = lost = 0;
        }
        if (time - begun > seconds) break;
        if (time - heard > LOST_AFTER) {
            lost += outstanding;
            outstanding = 0;
            heard = time;
        }
        int sent = outstanding < window ? send_new(client, relay, at, bytes, window - outstanding) : 0;
        outstanding += sent;
        int there = receive(server);
        if (is_back && there) send_back(server, there);
        int got = is_back ? receive(client) : there;
        if (got) heard = time;
        arrived += got;
        outstanding = got > outstanding ? 0 : outstanding - got;
        if (!sent && !there && !got) poll(both, 2, 10);
    }
    double span = now() / 1e9 - counted_since;
    printf("{\"per_second\": %.0f, \"lost\": %ld}\n", (double)arrived * (is_back ? 2 : 1) / span, lost);
    return 0;
}

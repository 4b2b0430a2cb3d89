/* Kills the process at the Nth write, fsync, rename or send: a library for LD_PRELOAD.
 *
 * Only what reaches the disk, a platform or another process of ours counts: writes and syncs of
 * regular files, renames, and sends on network sockets, on Unix sockets with a name, and on the one
 * socket that `crash_arm` was told about. Mode 0 dies before the call, mode 1 writes half of the
 * bytes first, mode 2 dies after the call. Modes 3 and 4 kill nobody: from the Nth call on all calls
 * fail for half a second, because the disk is full (3) or broken (4). Mode 5 dies after N ms.
 *
 * A program that cannot call `crash_arm` is armed as it starts, by CRASH_AT="N MODE WITH_PARENT";
 * before it dies it makes the file CRASH_MARK, and with WITH_PARENT its parent dies with it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static atomic_long calls, target, refuses_until;
static atomic_int armed, mode, send_fd;
static int with_parent;
static const char *mark;

enum { TORN = 1, AFTER = 2, FULL = 3, BROKEN = 4, MOMENT = 5 };

void crash_arm(long n, int how, int fd) {
    target = n;
    mode = how;
    send_fd = fd;
    calls = 0;
    armed = 1;
}

long crash_count(void) { return calls; }

static void die(void) {
    if (mark) close(open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (with_parent) kill(getppid(), SIGKILL);
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static void *die_later(void *unused) {
    (void)unused;
    struct timespec wait = {target / 1000, target % 1000 * 1000000};
    nanosleep(&wait, NULL);
    die();
    return NULL;
}

__attribute__((constructor)) static void arm_by_environment(void) {
    long n;
    int how;
    const char *at = getenv("CRASH_AT");
    if (!at || sscanf(at, "%ld %d %d", &n, &how, &with_parent) != 3) return;
    mark = getenv("CRASH_MARK");
    if (how != MOMENT) {
        crash_arm(n, how, -1);
        return;
    }
    pthread_t timer;
    target = n;
    pthread_create(&timer, NULL, die_later, NULL);
}

static int is_file(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

static int has_name(int fd, int (*name_of)(int, struct sockaddr *restrict, socklen_t *restrict)) {
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    return name_of(fd, (struct sockaddr *)&name, &size) == 0 &&
           size > offsetof(struct sockaddr_un, sun_path);
}

/* Half a line on the link is none at all, but half a request is what a network makes of one. Unix
 * sockets without a name are pairs within a process. */
static int is_network(int fd) {
    int domain = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return 0;
    if (domain == AF_UNIX) return has_name(fd, getsockname) || has_name(fd, getpeername);
    return domain == AF_INET || domain == AF_INET6;
}

static int is_platform(int fd) { return armed && mode < FULL && (fd == send_fd || is_network(fd)); }

static int counts(int fd) { return armed && (is_file(fd) || is_platform(fd)); }

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Whether this call is the one, or one of those, that something happens to. */
static int hit(void) {
    if (!armed) return 0;
    long now = atomic_fetch_add(&calls, 1) + 1;
    if (now == target) refuses_until = milliseconds() + 500;
    if (mode < FULL || now == target) return now == target;
    return target && now > target && milliseconds() < refuses_until;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define AROUND(now, torn, call)                 \
    int mine = (now) && hit();                  \
    if (mine && mode >= FULL) {                 \
        errno = mode == FULL ? ENOSPC : EIO;    \
        return -1;                              \
    }                                           \
    if (mine && mode == TORN) { torn; }         \
    if (mine && mode != AFTER) die();           \
    __typeof__(call) result = (call);           \
    if (mine) die();                            \
    return result;

ssize_t write(int fd, const void *data, size_t size) {
    AROUND(counts(fd), REAL(write)(fd, data, size / 2), REAL(write)(fd, data, size))
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    AROUND(armed && is_file(fd), REAL(pwrite)(fd, data, size / 2, at), REAL(pwrite)(fd, data, size, at))
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    AROUND(armed && is_file(fd), REAL(pwrite64)(fd, data, size / 2, at),
           REAL(pwrite64)(fd, data, size, at))
}

int fsync(int fd) { AROUND(armed, , REAL(fsync)(fd)) }

int fdatasync(int fd) { AROUND(armed, , REAL(fdatasync)(fd)) }

int rename(const char *from, const char *to) { AROUND(armed, , REAL(rename)(from, to)) }

int renameat(int a, const char *from, int b, const char *to) {
    AROUND(armed, , REAL(renameat)(a, from, b, to))
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    AROUND(armed, , REAL(renameat2)(a, from, b, to, flags))
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
    AROUND(is_platform(fd), if (fd != send_fd) REAL(send)(fd, data, size / 2, flags),
           REAL(send)(fd, data, size, flags))
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to,
               socklen_t length) {
    AROUND(is_platform(fd), REAL(sendto)(fd, data, size / 2, flags, to, length),
           REAL(sendto)(fd, data, size, flags, to, length))
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    AROUND(is_platform(fd), , REAL(sendmsg)(fd, message, flags))
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    AROUND(counts(fd), , REAL(writev)(fd, parts, count))
}

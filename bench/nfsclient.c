/* Makes a process see a folder as an NFS client sees it: a library for LD_PRELOAD.
 *
 * Beneath the folder NFS_MOUNT the attributes of files, and that a file does not exist, are cached
 * for NFS_SECONDS after they were fetched from the server; 0 caches nothing, as `noac` does. The
 * rules are those of nfs(5):
 *
 * - "Attribute caching": stat answers from the cache until it expires. The client keeps its own
 *   changes in the cache, and sees no changes of other clients until then.
 * - "Close-to-open cache consistency": opening a file fetches its attributes.
 * - "Directory entry caching": a name that did not exist is not asked for again (`lookupcache=all`),
 *   even by an open, unless it may create the file.
 *
 * Not modelled: lists of names in folders, and the data of files that stay open, which a real client
 * caches as well. NFS has a cache for each machine; here each process is a machine.
 *
 * /proc/self/mountinfo has the mount, with the options NFS_OPTIONS.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BUCKETS 4096
#define REAL(name, type, ...)                                       \
    static type (*real)(__VA_ARGS__);                               \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

struct entry {
    struct entry *next;
    char *path;
    double at;
    int missing;
    struct stat status[2]; /* of the file itself, and of what a link leads to */
    int known[2];
};

static struct entry *table[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX];
static size_t length;
static double seconds;

__attribute__((constructor)) static void begin(void) {
    const char *mount = getenv("NFS_MOUNT"), *keep = getenv("NFS_SECONDS");
    if (!mount || !realpath(mount, folder)) return;
    length = strlen(folder);
    seconds = keep ? atof(keep) : 0;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* The whole path of `name` in `path` if it is on the mount. */
static int on_mount(int at, const char *name, char *path) {
    if (!length || !name) return 0;
    if (*name == '/') {
        if (strlen(name) >= PATH_MAX) return 0;
        strcpy(path, name);
    } else {
        char link[64];
        snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
        ssize_t size = readlink(link, path, PATH_MAX - 1);
        if (size < 0 || size + strlen(name) + 2 > PATH_MAX) return 0;
        path[size] = 0;
        if (*name) snprintf(path + size, PATH_MAX - size, "/%s", name);
    }
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') path[--end] = 0;
    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

static struct entry **place(const char *path) {
    unsigned hash = 5381;
    for (const char *at = path; *at; at++) hash = hash * 33 + (unsigned char)*at;
    struct entry **found = &table[hash % BUCKETS];
    while (*found && strcmp((*found)->path, path)) found = &(*found)->next;
    return found;
}

static void drop(const char *path) {
    pthread_mutex_lock(&lock);
    struct entry **found = place(path), *old = *found;
    if (old) {
        *found = old->next;
        free(old->path);
        free(old);
    }
    pthread_mutex_unlock(&lock);
}

static void drop_at(int at, const char *name) {
    int before = errno;
    char path[PATH_MAX];
    if (seconds > 0 && on_mount(at, name, path)) drop(path);
    errno = before;
}

static void drop_open(int fd) {
    drop_at(fd, "");
}

/* 1: known to exist, `status` has it; -1: known not to; 0: unknown. */
static int cached(const char *path, int follow, struct stat *status) {
    int answer = 0;
    pthread_mutex_lock(&lock);
    struct entry *found = *place(path);
    if (found && now() - found->at < seconds) {
        if (found->missing) answer = -1;
        else if (found->known[follow]) *status = found->status[follow], answer = 1;
    }
    pthread_mutex_unlock(&lock);
    return answer;
}

static void keep(const char *path, int follow, const struct stat *status) {
    pthread_mutex_lock(&lock);
    struct entry **found = place(path), *one = *found;
    if (!one) {
        one = calloc(1, sizeof *one);
        one->path = strdup(path);
        *found = one;
    }
    if (!status || one->missing || now() - one->at >= seconds) {
        one->known[0] = one->known[1] = 0;
        one->at = now();
    }
    one->missing = !status;
    if (status) one->status[follow] = *status, one->known[follow] = 1;
    pthread_mutex_unlock(&lock);
}

typedef int (*stat_at)(int, const char *, struct stat *, int);

static int look(int at, const char *name, struct stat *status, int flags) {
    static stat_at real;
    if (!real) real = (stat_at)dlsym(RTLD_NEXT, "fstatat");
    char path[PATH_MAX];
    if (seconds <= 0 || !on_mount(at, name, path)) return real(at, name, status, flags);
    int follow = !(flags & AT_SYMLINK_NOFOLLOW), known = cached(path, follow, status);
    if (known) return known > 0 ? 0 : (errno = ENOENT, -1);
    int answer = real(at, name, status, flags);
    if (answer == 0 || errno == ENOENT) {
        int before = errno;
        keep(path, follow, answer == 0 ? status : NULL);
        errno = before;
    }
    return answer;
}

int fstatat(int at, const char *name, struct stat *status, int flags) {
    return look(at, name, status, flags);
}
int fstatat64(int at, const char *name, struct stat64 *status, int flags) {
    return look(at, name, (struct stat *)status, flags);
}
int stat(const char *name, struct stat *status) { return look(AT_FDCWD, name, status, 0); }
int stat64(const char *name, struct stat64 *status) {
    return look(AT_FDCWD, name, (struct stat *)status, 0);
}
int lstat(const char *name, struct stat *status) {
    return look(AT_FDCWD, name, status, AT_SYMLINK_NOFOLLOW);
}
int lstat64(const char *name, struct stat64 *status) {
    return look(AT_FDCWD, name, (struct stat *)status, AT_SYMLINK_NOFOLLOW);
}

/* An open file has the attributes that are cached under its name, if that is still its name. */
int fstat(int fd, struct stat *status) {
    REAL("fstat", int, int, struct stat *);
    int answer = real(fd, status);
    char path[PATH_MAX];
    struct stat old;
    if (answer || seconds <= 0 || !on_mount(fd, "", path)) return answer;
    int known = cached(path, 1, &old);
    if (known > 0 && old.st_ino == status->st_ino) *status = old;
    else if (known == 0) keep(path, 1, status);
    return 0;
}
int fstat64(int fd, struct stat64 *status) { return fstat(fd, (struct stat *)status); }

static int mounts(void) {
    static int (*real)(const char *, int, ...);
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    int given = real("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    int fd = memfd_create("mountinfo", MFD_CLOEXEC);
    char block[4096];
    ssize_t size;
    while ((size = read(given, block, sizeof block)) > 0)
        if (write(fd, block, size) < 0) break;
    close(given);
    const char *options = getenv("NFS_OPTIONS");
    dprintf(fd, "999 1 0:99 / %s rw,relatime - nfs4 files:/nanobot %s\n", folder,
            options ? options : "rw");
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static int open_at(int at, const char *name, int flags, mode_t mode) {
    static int (*real)(int, const char *, int, ...);
    if (!real) real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
    char path[PATH_MAX];
    struct stat unused;
    if (length && name && strcmp(name, "/proc/self/mountinfo") == 0) return mounts();
    int there = seconds > 0 && on_mount(at, name, path);
    if (there && !(flags & O_CREAT) && cached(path, 1, &unused) < 0) return errno = ENOENT, -1;
    int fd = real(at, name, flags, mode), before = errno;
    if (there && (fd >= 0 || before == EEXIST)) drop(path);
    errno = before;
    return fd;
}

static mode_t mode_of(int flags, va_list rest) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name, at, first, ...)                  \
    int name(__VA_ARGS__, int flags, ...) {         \
        va_list rest;                               \
        va_start(rest, flags);                      \
        mode_t mode = mode_of(flags, rest);         \
        va_end(rest);                               \
        return open_at(at, first, flags, mode);     \
    }
OPEN(open, AT_FDCWD, path, const char *path)
OPEN(open64, AT_FDCWD, path, const char *path)
OPEN(openat, fd, path, int fd, const char *path)
OPEN(openat64, fd, path, int fd, const char *path)

/* The client's own changes are in its cache: here they are fetched again when they are asked for. */
#define CHANGES_OPEN(type, name, parameters, arguments, kinds) \
    type name parameters {                                     \
        REAL(#name, type, kinds);                              \
        type answer = real arguments;                          \
        drop_open(fd);                                         \
        return answer;                                         \
    }
#define ARGS(...) __VA_ARGS__
CHANGES_OPEN(ssize_t, write, (int fd, const void *from, size_t size), (fd, from, size),
             ARGS(int, const void *, size_t))
CHANGES_OPEN(ssize_t, writev, (int fd, const struct iovec *from, int count), (fd, from, count),
             ARGS(int, const struct iovec *, int))
CHANGES_OPEN(ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at),
             (fd, from, size, at), ARGS(int, const void *, size_t, off64_t))
CHANGES_OPEN(int, ftruncate64, (int fd, off64_t size), (fd, size), ARGS(int, off64_t))
CHANGES_OPEN(int, fchmod, (int fd, mode_t mode), (fd, mode), ARGS(int, mode_t))

int renameat(int from_at, const char *from, int to_at, const char *to) {
    REAL("renameat", int, int, const char *, int, const char *);
    int answer = real(from_at, from, to_at, to);
    drop_at(from_at, from);
    drop_at(to_at, to);
    return answer;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
int unlinkat(int at, const char *name, int flags) {
    REAL("unlinkat", int, int, const char *, int);
    int answer = real(at, name, flags);
    drop_at(at, name);
    return answer;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int mkdirat(int at, const char *name, mode_t mode) {
    REAL("mkdirat", int, int, const char *, mode_t);
    int answer = real(at, name, mode);
    drop_at(at, name);
    return answer;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

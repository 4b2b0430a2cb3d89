/* Logs each change of a folder, for a model of a power loss: a library for LD_PRELOAD.
 *
 * After `log_writes`, each call that changes a file or a name below the folder is appended to a log,
 * in the order in which the calls took effect: creations, writes with their data, truncations,
 * syncs, renames, links, removals and new folders. A record is a head (see `struct head`) and two
 * byte strings. Syncs are logged and not carried out, because `bench.powerloss` reads the log to
 * find out what a disk would have kept. Writes through mmap are not seen (SQLite's -shm).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct head {
    int64_t kind, inode, at, first, second; /* `first` and `second`: sizes of the byte strings */
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static char home[PATH_MAX];

void log_writes(const char *log, const char *folder) {
    snprintf(home, sizeof home, "%s", folder);
    log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) abort();
}

static int is_ours(const char *path) {
    size_t size = strlen(home);
    return strncmp(path, home, size) == 0 && (path[size] == '/' || path[size] == 0);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
    return size > 0;
}

/* The absolute path of a name; ".." and links in it are left as they are. */
static void place_of(int folder, const char *name, char *path) {
    char base[PATH_MAX] = "";
    if (name[0] != '/') {
        if (folder == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) base[0] = 0;
        } else {
            path_of(folder, base);
        }
    }
    if (snprintf(path, PATH_MAX, "%s%s%s", base, base[0] ? "/" : "", name) >= PATH_MAX) abort();
}

static void note(int kind, int64_t inode, int64_t at, const char *path, const void *more,
                 size_t size) {
    struct head head = {kind, inode, at, (int64_t)strlen(path), (int64_t)size};
    struct iovec parts[] = {
        {&head, sizeof head}, {(void *)path, strlen(path)}, {(void *)more, size}};
    syscall(SYS_writev, log_fd, parts, 3);
}

/* Whether a descriptor is of a regular file (or a folder) of ours, and its path and inode. */
static int is_logged(int fd, char *path, int64_t *inode) {
    struct stat status;
    if (log_fd < 0 || fd == log_fd || fstat(fd, &status) != 0) return 0;
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return 0;
    *inode = (int64_t)status.st_ino;
    return path_of(fd, path) && is_ours(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Calls with a descriptor: `logged` sees `path`, `inode` and `result`. */
#define ON_FILE(fd, call, logged)                          \
    char path[PATH_MAX];                                   \
    int64_t inode;                                         \
    if (!is_logged(fd, path, &inode)) return (call);       \
    pthread_mutex_lock(&turn);                             \
    __typeof__(call) result = (call);                      \
    if (result >= 0) { logged; }                           \
    pthread_mutex_unlock(&turn);                           \
    return result;

#define AT_END(n) (lseek(fd, 0, SEEK_CUR) - (n))

ssize_t write(int fd, const void *data, size_t size) {
    ON_FILE(fd, REAL(write)(fd, data, size),
            note('w', inode, AT_END(result), path, data, (size_t)result))
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    ON_FILE(fd, REAL(pwrite)(fd, data, size, at),
            note('w', inode, at, path, data, (size_t)result))
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    ON_FILE(fd, REAL(pwrite64)(fd, data, size, at),
            note('w', inode, at, path, data, (size_t)result))
}

/* Log bytes that were written without a buffer of ours, read back from the file. */
static void note_copied(int fd, int64_t inode, const char *path, ssize_t size) {
    char link[64], *data = malloc((size_t)size + 1);
    off_t at = lseek(fd, 0, SEEK_CUR) - size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    if (!data || reader < 0 || pread(reader, data, (size_t)size, at) != size) abort();
    syscall(SYS_close, reader);
    note('w', inode, at, path, data, (size_t)size);
    free(data);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    ON_FILE(fd, REAL(writev)(fd, parts, count), note_copied(fd, inode, path, result))
}

ssize_t sendfile(int fd, int from, off_t *at, size_t size) {
    ON_FILE(fd, REAL(sendfile)(fd, from, at, size), note_copied(fd, inode, path, result))
}

ssize_t sendfile64(int fd, int from, off64_t *at, size_t size) {
    ON_FILE(fd, REAL(sendfile64)(fd, from, at, size), note_copied(fd, inode, path, result))
}

int ftruncate(int fd, off_t size) {
    ON_FILE(fd, REAL(ftruncate)(fd, size), note('t', inode, size, path, "", 0))
}

int ftruncate64(int fd, off64_t size) {
    ON_FILE(fd, REAL(ftruncate64)(fd, size), note('t', inode, size, path, "", 0))
}

/* Log the sync of a file or folder of ours. */
static int is_sync_logged(int fd) {
    char path[PATH_MAX];
    int64_t inode;
    if (!is_logged(fd, path, &inode)) return 0;
    pthread_mutex_lock(&turn);
    note('s', inode, 0, path, "", 0);
    pthread_mutex_unlock(&turn);
    return 1;
}

int fsync(int fd) { return is_sync_logged(fd) ? 0 : REAL(fsync)(fd); }

int fdatasync(int fd) { return is_sync_logged(fd) ? 0 : REAL(fdatasync)(fd); }

void sync(void) {
    if (log_fd < 0) {
        REAL(sync)();
        return;
    }
    pthread_mutex_lock(&turn);
    note('a', 0, 0, home, "", 0);
    pthread_mutex_unlock(&turn);
}

/* Calls with names. The second is logged if there is one. */
#define ON_NAMES(kind, folder, name, to_folder, to, call)          \
    char path[PATH_MAX], other[PATH_MAX] = "";                     \
    if (log_fd < 0) return (call);                                 \
    place_of(folder, name, path);                                  \
    if (to[0]) place_of(to_folder, to, other);                     \
    if (!is_ours(path) && !is_ours(other)) return (call);          \
    pthread_mutex_lock(&turn);                                     \
    int result = (call);                                           \
    if (result >= 0) note(kind, 0, 0, path, other, strlen(other)); \
    pthread_mutex_unlock(&turn);                                   \
    return result;

int rename(const char *a, const char *b) {
    ON_NAMES('r', AT_FDCWD, a, AT_FDCWD, b, REAL(rename)(a, b))
}

int renameat(int x, const char *a, int y, const char *b) {
    ON_NAMES('r', x, a, y, b, REAL(renameat)(x, a, y, b))
}

int link(const char *a, const char *b) {
    ON_NAMES('l', AT_FDCWD, a, AT_FDCWD, b, REAL(link)(a, b))
}

int linkat(int x, const char *a, int y, const char *b, int flags) {
    ON_NAMES('l', x, a, y, b, REAL(linkat)(x, a, y, b, flags))
}

int unlink(const char *a) { ON_NAMES('u', AT_FDCWD, a, AT_FDCWD, "", REAL(unlink)(a)) }

int unlinkat(int x, const char *a, int flags) {
    ON_NAMES('u', x, a, AT_FDCWD, "", REAL(unlinkat)(x, a, flags))
}

int rmdir(const char *a) { ON_NAMES('u', AT_FDCWD, a, AT_FDCWD, "", REAL(rmdir)(a)) }

int mkdir(const char *a, mode_t mode) {
    ON_NAMES('m', AT_FDCWD, a, AT_FDCWD, "", REAL(mkdir)(a, mode))
}

int mkdirat(int x, const char *a, mode_t mode) {
    ON_NAMES('m', x, a, AT_FDCWD, "", REAL(mkdirat)(x, a, mode))
}

/* Log the creation or truncation by an opening. */
static int opened(int fd, int flags) {
    char path[PATH_MAX];
    int64_t inode;
    if (fd >= 0 && flags & (O_CREAT | O_TRUNC) && is_logged(fd, path, &inode))
        note(flags & O_TRUNC ? 't' : 'c', inode, 0, path, "", 0);
    return fd;
}

#define OPENING(call)                                            \
    mode_t mode = 0;                                             \
    if (flags & (O_CREAT | __O_TMPFILE)) {                       \
        va_list more;                                            \
        va_start(more, flags);                                   \
        mode = va_arg(more, mode_t);                             \
        va_end(more);                                            \
    }                                                            \
    if (log_fd < 0 || !(flags & (O_CREAT | O_TRUNC))) return (call); \
    pthread_mutex_lock(&turn);                                   \
    int fd = opened((call), flags);                              \
    pthread_mutex_unlock(&turn);                                 \
    return fd;

int open(const char *a, int flags, ...) { OPENING(REAL(open)(a, flags, mode)) }
int open64(const char *a, int flags, ...) { OPENING(REAL(open64)(a, flags, mode)) }
int openat(int x, const char *a, int flags, ...) { OPENING(REAL(openat)(x, a, flags, mode)) }
int openat64(int x, const char *a, int flags, ...) { OPENING(REAL(openat64)(x, a, flags, mode)) }

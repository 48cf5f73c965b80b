/* Records what a process does to files: preloaded into it, see preload.py.
 *
 * Every call that succeeded and changed a file, a name or what is durable appends one record to the file
 * STELAE_RECORD_TO, if it happened below STELAE_RECORD_ROOT or to the file STELAE_RECORD_MARKS. A record
 * names paths as the system knows them at that moment, so its reader needs no table of descriptors. One lock
 * is held around call and record: the order of records is the order of the calls.
 * Descriptors of anything but regular files and directories are left alone, and so is the record itself.
 *
 * Not seen: what the C library does inside itself (stdio, sendfile, direct system calls) and writes through a
 * shared mapping. Mappings are recorded as such; the rest shows when the record is compared with the files.
 *
 * Record, little-endian: magic u32, kind u32, offset i64, flags u32, path length u32, second path length u32,
 * zero u32, data length u64; then both paths and the data.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8, "offsets of files have 64 bits");

#define MAGIC 0x43455253u

enum kind {
    WRITE = 1, RESIZE, SYNC, CREATE, MAKE_DIRECTORY, RENAME, REMOVE, REMOVE_DIRECTORY, LINK, MAPPED, UNKNOWN
};
enum { DSYNC = 1 };

struct record {
    uint32_t magic, kind;
    int64_t offset;
    uint32_t flags, path_bytes, other_bytes, zero;
    uint64_t data_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int sink = -1;
static char sink_path[PATH_MAX];

/* The next definition of a function behind ours. */
#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void fail(const char *what)
{
    dprintf(2, "stelae recorder: %s: %s\n", what, strerror(errno));
    _exit(97);
}

static int real_open(const char *path, int flags)
{
    static int (*real)(const char *, int, ...);
    if (real == NULL) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    return real(path, flags, 0600);
}

static int opened(void)
{
    const char *target = getenv("STELAE_RECORD_TO");
    if (target == NULL) return -1;
    if (sink < 0) {
        if (strlen(target) >= sizeof sink_path) fail("the path of the record is too long");
        strcpy(sink_path, target);
        int fd = real_open(target, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC);
        if (fd < 0) fail("cannot open the record");
        sink = fcntl(fd, F_DUPFD_CLOEXEC, 900); /* away from the numbers that programs count on */
        if (sink < 0) sink = fd; else close(fd);
    }
    return sink;
}

/* Path of an open file or directory; empty if there is none, or if it is not ours to record. */
static void path_of(int fd, char *path)
{
    char link[40];
    struct stat found;
    path[0] = 0;
    if (fd < 0 || fd == sink || fstat(fd, &found) != 0 || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    if (length > 10 && found.st_nlink == 0 && strcmp(path + length - 10, " (deleted)") == 0) path[0] = 0;
    if (path[0] != '/') path[0] = 0;
}

/* A name as a call gave it, made absolute; links in its directories are resolved, its last part is not. */
static void absolute(int directory, const char *name, char *path)
{
    char joined[2 * PATH_MAX], parent[2 * PATH_MAX];
    if (name[0] == '/') {
        snprintf(joined, sizeof joined, "%s", name);
    } else {
        if (directory == AT_FDCWD) {
            if (getcwd(path, PATH_MAX) == NULL) fail("no working directory");
        } else {
            path_of(directory, path);
        }
        snprintf(joined, sizeof joined, "%s/%.*s", path, PATH_MAX - 1, name);
    }
    size_t length = strlen(joined);
    while (length > 1 && joined[length - 1] == '/') joined[--length] = 0;
    char *last = strrchr(joined, '/');
    *last = 0;
    if (realpath(joined[0] ? joined : "/", parent) == NULL) snprintf(parent, sizeof parent, "%s", joined);
    snprintf(path, PATH_MAX, "%.*s/%.255s", PATH_MAX - 300, strcmp(parent, "/") ? parent : "", last + 1);
}

static int recorded(const char *path)
{
    const char *root = getenv("STELAE_RECORD_ROOT"), *marks = getenv("STELAE_RECORD_MARKS");
    size_t length = root ? strlen(root) : 0;
    if (marks && strcmp(path, marks) == 0) return 1;
    return length && strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* Append a record. The lock is held; errno is kept. */
static void put(enum kind kind, const char *path, const char *other, int64_t offset, uint32_t flags,
                const struct iovec *data, int count, size_t data_bytes)
{
    int kept = errno;
    if (opened() < 0 || path[0] == 0 || !(recorded(path) || recorded(other))) {
        errno = kept;
        return;
    }
    struct record head = {
        MAGIC, kind, offset, flags, (uint32_t)strlen(path), (uint32_t)strlen(other), 0, data_bytes
    };
    size_t size = sizeof head + head.path_bytes + head.other_bytes + data_bytes, at = 0;
    char *all = malloc(size);
    if (all == NULL) fail("no memory for a record");
    memcpy(all, &head, sizeof head), at += sizeof head;
    memcpy(all + at, path, head.path_bytes), at += head.path_bytes;
    memcpy(all + at, other, head.other_bytes), at += head.other_bytes;
    for (int i = 0; i < count && at < size; i++) {
        size_t part = data[i].iov_len < size - at ? data[i].iov_len : size - at;
        memcpy(all + at, data[i].iov_base, part), at += part;
    }
    static ssize_t (*real)(int, const void *, size_t);
    if (real == NULL) real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    for (size_t done = 0; done < size;) {
        ssize_t more = real(sink, all + done, size - done);
        if (more < 0) fail("cannot write the record");
        done += (size_t)more;
    }
    free(all);
    errno = kept;
}

#define LOCKED(statement) pthread_mutex_lock(&lock); statement; pthread_mutex_unlock(&lock)

/* ---- contents ---------------------------------------------------------------------------------- */

static void wrote(int fd, off_t offset, int flags, const struct iovec *data, int count, ssize_t done)
{
    char path[PATH_MAX];
    int kept = errno;
    path_of(fd, path);
    if (done > 0 && path[0]) {
        int mode = fcntl(fd, F_GETFL);
        /* A write at the place of the descriptor, or at the end of the file: only now it is known where. */
        if (offset < 0 || (mode & O_APPEND)) offset = lseek(fd, 0, SEEK_CUR) - done;
        put(WRITE, path, "", offset, (mode & O_DSYNC) || flags ? DSYNC : 0, data, count, (size_t)done);
    }
    errno = kept;
}

#define WRITES(call, fd, offset, flags, data, count) \
    ssize_t done; \
    LOCKED(done = call; wrote(fd, offset, flags, data, count, done)); \
    return done

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    struct iovec one = {(void *)data, size};
    WRITES(real(fd, data, size), fd, -1, 0, &one, 1);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    REAL(pwrite);
    struct iovec one = {(void *)data, size};
    WRITES(real(fd, data, size, offset), fd, offset, 0, &one, 1);
}

ssize_t writev(int fd, const struct iovec *data, int count)
{
    REAL(writev);
    WRITES(real(fd, data, count), fd, -1, 0, data, count);
}

ssize_t pwritev(int fd, const struct iovec *data, int count, off_t offset)
{
    REAL(pwritev);
    WRITES(real(fd, data, count, offset), fd, offset, 0, data, count);
}

static void resized(int fd, int done)
{
    char path[PATH_MAX];
    struct stat found;
    int kept = errno;
    path_of(fd, path);
    if (done == 0 && path[0] && fstat(fd, &found) == 0) put(RESIZE, path, "", found.st_size, 0, NULL, 0, 0);
    errno = kept;
}

#define RESIZES(call) \
    int done; \
    LOCKED(done = call; resized(fd, done)); \
    return done

int ftruncate(int fd, off_t size) { REAL(ftruncate); RESIZES(real(fd, size)); }
int posix_fallocate(int fd, off_t offset, off_t size) { REAL(posix_fallocate); RESIZES(real(fd, offset, size)); }

int truncate(const char *name, off_t size)
{
    char path[PATH_MAX];
    int done;
    REAL(truncate);
    absolute(AT_FDCWD, name, path);
    LOCKED(done = real(name, size); if (done == 0) put(RESIZE, path, "", size, 0, NULL, 0, 0));
    return done;
}

/* Reserving behind the end without moving it changes nothing that can be read; other modes are not known. */
static void allocated(int fd, int mode, int done)
{
    char path[PATH_MAX];
    if (mode == 0) resized(fd, done);
    else if (done == 0 && mode != FALLOC_FL_KEEP_SIZE) path_of(fd, path), put(UNKNOWN, path, "", mode, 0, NULL, 0, 0);
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    int done;
    REAL(fallocate);
    LOCKED(done = real(fd, mode, offset, size); allocated(fd, mode, done));
    return done;
}

ssize_t copy_file_range(int in, off_t *in_at, int out, off_t *out_at, size_t size, unsigned flags)
{
    (void)in, (void)in_at, (void)out, (void)out_at, (void)size, (void)flags;
    errno = ENOSYS; /* the caller falls back on reading and writing, which is recorded */
    return -1;
}

/* ---- durability -------------------------------------------------------------------------------- */

static void synced(int fd, int done)
{
    char path[PATH_MAX];
    int kept = errno;
    path_of(fd, path);
    if (done == 0 && path[0]) put(SYNC, path, "", 0, 0, NULL, 0, 0);
    errno = kept;
}

#define SYNCS(call) \
    int done; \
    LOCKED(done = call; synced(fd, done)); \
    return done

int fsync(int fd) { REAL(fsync); SYNCS(real(fd)); }
int fdatasync(int fd) { REAL(fdatasync); SYNCS(real(fd)); }

static void mapped(int fd, int protection, int flags, void *done)
{
    char path[PATH_MAX];
    int kept = errno;
    if (done == MAP_FAILED || fd < 0 || !(flags & MAP_SHARED) || !(protection & PROT_WRITE)) return;
    path_of(fd, path);
    if (path[0]) put(MAPPED, path, "", 0, 0, NULL, 0, 0);
    errno = kept;
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    void *done;
    REAL(mmap);
    LOCKED(done = real(at, size, protection, flags, fd, offset); mapped(fd, protection, flags, done));
    return done;
}

/* ---- names ------------------------------------------------------------------------------------- */

/* A name was opened: say that it was made, or emptied. */
static void made(int flags, int existed, int fd)
{
    char path[PATH_MAX];
    int kept = errno;
    path_of(fd, path);
    if (path[0] && !existed && (flags & O_CREAT)) put(CREATE, path, "", 0, 0, NULL, 0, 0);
    if (path[0] && existed && (flags & O_TRUNC)) put(RESIZE, path, "", 0, 0, NULL, 0, 0);
    errno = kept;
}

static int there(int directory, const char *name)
{
    int kept = errno, found = faccessat(directory, name, F_OK, 0) == 0;
    errno = kept;
    return found;
}

#define OPENS(call, directory, name) \
    int fd, mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, int); \
        va_end(more); \
    } \
    if (!(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE) return call; \
    LOCKED(int existed = there(directory, name); fd = call; if (fd >= 0) made(flags, existed, fd)); \
    return fd

int open(const char *name, int flags, ...) { REAL(open); OPENS(real(name, flags, mode), AT_FDCWD, name); }
int openat(int at, const char *name, int flags, ...) { REAL(openat); OPENS(real(at, name, flags, mode), at, name); }

#define NAMES(call, kind, first_at, first, second_at, second) \
    char path[PATH_MAX], other[PATH_MAX] = ""; \
    int done; \
    absolute(first_at, first, path); \
    if (((const char *)second)[0]) absolute(second_at, second, other); \
    LOCKED(done = call; if (done == 0) put(kind, path, other, 0, 0, NULL, 0, 0)); \
    return done

int mkdir(const char *name, mode_t mode) { REAL(mkdir); NAMES(real(name, mode), MAKE_DIRECTORY, AT_FDCWD, name, 0, ""); }
int mkdirat(int at, const char *name, mode_t mode) { REAL(mkdirat); NAMES(real(at, name, mode), MAKE_DIRECTORY, at, name, 0, ""); }
int unlink(const char *name) { REAL(unlink); NAMES(real(name), REMOVE, AT_FDCWD, name, 0, ""); }
int rmdir(const char *name) { REAL(rmdir); NAMES(real(name), REMOVE_DIRECTORY, AT_FDCWD, name, 0, ""); }
int unlinkat(int at, const char *name, int flags)
{
    REAL(unlinkat);
    NAMES(real(at, name, flags), (flags & AT_REMOVEDIR) ? REMOVE_DIRECTORY : REMOVE, at, name, 0, "");
}
int rename(const char *from, const char *to) { REAL(rename); NAMES(real(from, to), RENAME, AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int a, const char *from, int b, const char *to) { REAL(renameat); NAMES(real(a, from, b, to), RENAME, a, from, b, to); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    REAL(renameat2);
    NAMES(real(a, from, b, to, flags), (flags & ~1u) ? UNKNOWN : RENAME, a, from, b, to);
}
int link(const char *from, const char *to) { REAL(link); NAMES(real(from, to), LINK, AT_FDCWD, from, AT_FDCWD, to); }
int linkat(int a, const char *from, int b, const char *to, int flags) { REAL(linkat); NAMES(real(a, from, b, to, flags), LINK, a, from, b, to); }
int symlink(const char *target, const char *name) { REAL(symlink); NAMES(real(target, name), UNKNOWN, AT_FDCWD, name, 0, ""); }

/* ---- the same functions under the names for large files, where those are functions of their own -- */

#ifdef __GLIBC__
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return pwrite(fd, data, size, offset); }
ssize_t pwritev64(int fd, const struct iovec *data, int count, off64_t offset) { return pwritev(fd, data, count, offset); }
ssize_t pwritev2(int fd, const struct iovec *data, int count, off_t offset, int flags)
{
    REAL(pwritev2);
    WRITES(real(fd, data, count, offset, flags), fd, offset, flags & (RWF_DSYNC | RWF_SYNC), data, count);
}
ssize_t pwritev64v2(int fd, const struct iovec *data, int count, off64_t offset, int flags)
{
    return pwritev2(fd, data, count, offset, flags);
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int truncate64(const char *name, off64_t size) { return truncate(name, size); }
int fallocate64(int fd, int mode, off64_t offset, off64_t size) { return fallocate(fd, mode, offset, size); }
int posix_fallocate64(int fd, off64_t offset, off64_t size) { return posix_fallocate(fd, offset, size); }
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset)
{
    return mmap(at, size, protection, flags, fd, offset);
}
int open64(const char *name, int flags, ...) { REAL(open); OPENS(real(name, flags, mode), AT_FDCWD, name); }
int openat64(int at, const char *name, int flags, ...) { REAL(openat); OPENS(real(at, name, flags, mode), at, name); }
#endif

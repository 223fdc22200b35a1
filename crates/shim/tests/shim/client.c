// A program that comes to the driver on one of the ways that there are, allocates without end, and says how often it could.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long ptr;
#define MIB (1ul << 20)

#ifdef LINKED
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(ptr *, size_t);
int cuMemAllocAsync(ptr *, size_t, void *);
int cuMemGetInfo_v2(size_t *, size_t *);
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned, void **);
int nvmlDeviceGetMemoryInfo(void *, unsigned long long *);
static void *find(const char *name, int version) {
    (void)version;
    if (!strcmp(name, "cuInit")) return cuInit;
    if (!strcmp(name, "cuDevicePrimaryCtxRetain")) return cuDevicePrimaryCtxRetain;
    if (!strcmp(name, "cuCtxSetCurrent")) return cuCtxSetCurrent;
    if (!strcmp(name, "cuMemAlloc")) return cuMemAlloc_v2;
    if (!strcmp(name, "cuMemAllocAsync")) return cuMemAllocAsync;
    if (!strcmp(name, "cuMemGetInfo")) return cuMemGetInfo_v2;
    return 0;
}
#else
static const char *way;
static void *cuda;

static const char *symbol(const char *name) {
    if (!strcmp(name, "cuMemAlloc")) return "cuMemAlloc_v2";
    if (!strcmp(name, "cuMemGetInfo")) return "cuMemGetInfo_v2";
    return name;
}

// version: that of CUDA for which the program was made.
static void *find(const char *name, int version) {
    void *found = 0;
    int reason = -1;
    if (!strcmp(way, "dlsym")) return dlsym(cuda, symbol(name));
    if (!strcmp(way, "default")) return dlsym(RTLD_DEFAULT, symbol(name));
    if (!strcmp(way, "between") || !strcmp(way, "replaced")) {
        // By a library that stands between this program and the driver: what is behind it, or what it replaces.
        if (!strcmp(way, "replaced") && !strcmp(name, "cuMemAlloc")) return dlsym(RTLD_DEFAULT, "replaced");
        return ((void *(*)(const char *))dlsym(RTLD_DEFAULT, "behind"))(symbol(name));
    }
    if (!strcmp(way, "v1")) {
        int (*get)(const char *, void **, int, unsigned long long) = dlsym(cuda, "cuGetProcAddress");
        return get(name, &found, version, 0) ? 0 : found;
    }
    int (*get)(const char *, void **, int, unsigned long long, int *) = dlsym(cuda, "cuGetProcAddress_v2");
    unsigned long long flags = !strcmp(way, "perthread") ? 2 : !strcmp(way, "legacy") ? 1 : 0;
    if (!strcmp(way, "twice")) {
        // The runtime asks the look-up for the look-up.
        get("cuGetProcAddress", &found, version, 0, &reason);
        get = found;
    }
    return get(name, &found, version, flags, flags ? 0 : &reason) ? 0 : found;
}
#endif

int main(int argc, char **argv) {
    const char *how = argc > 2 ? argv[2] : "plain";
#ifndef LINKED
    way = argv[1];
    cuda = dlopen(argc > 3 ? argv[3] : "libcuda.so.1", RTLD_NOW | (strstr("default between replaced", way) ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!cuda) return puts(dlerror()), 1;
#endif
    int (*init)(unsigned) = find("cuInit", 12000);
    int (*retain)(void **, int) = find("cuDevicePrimaryCtxRetain", 12000);
    int (*set)(void *) = find("cuCtxSetCurrent", 12000);
    int (*alloc)(ptr *, size_t) = find("cuMemAlloc", 12000);
    int (*async)(ptr *, size_t, void *) = find("cuMemAllocAsync", 12000);
    int (*info)(size_t *, size_t *) = find("cuMemGetInfo", 12000);
    void *context;
    ptr p;
    if (!init || !retain || !set || !alloc || !async || !info) return puts("a function is missing"), 1;
    if (init(0)) return puts("no driver"), 1;
    // A daemon has closed its standard files, and its libraries write to them all the same.
    int is_daemon = !strcmp(how, "daemon"), devices;
    // The driver of the tests opens its own before.
    if (is_daemon && ((int (*)(int *))find("cuDeviceGetCount", 12000))(&devices)) return 1;
    for (int file = 0; is_daemon && file < 3; file++) close(file);
    if (retain(&context, 0) || set(context)) return puts("no context"), 1;
    if (!strcmp(how, "fork")) {
        // The child comes to the driver anew, by exec; this process allocates half of what there is beforehand.
        size_t free, total;
        if (info(&free, &total) || alloc(&p, total / 2)) return puts("half could not be had"), 1;
        if (!fork()) {
            argv[2] = "plain";
            execv(argv[0], argv);
            _exit(1);
        }
        int status;
        wait(&status);
        return status != 0;
    }
    int times = 0, status;
    if (is_daemon && alloc(&p, MIB)) return 1;
    static const char junk[8192];
    for (int file = 0; is_daemon && file < 3; file++)
        if (write(file, junk, sizeof junk) > 0) return 2;
    while (!(status = !strcmp(how, "async") ? async(&p, 64 * MIB, 0) : alloc(&p, 64 * MIB))) times++;
    size_t free, total;
    if (info(&free, &total)) return puts("no memory info"), 1;
    if (is_daemon) return 100 + times;
    printf("%d times, status %d, free %zu of %zu MiB\n", times, status, free / MIB, total / MIB);
    return 0;
}

// Threads that are cancelled while they allocate, and threads with small stacks.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

typedef unsigned long long ptr;
static int (*set)(void *), (*alloc)(ptr *, size_t), (*release)(ptr);
static void *context;

static void *allocates(void *without_end) {
    set(context);
    do {
        ptr p;
        if (!alloc(&p, 4 << 20)) release(p);
        pthread_testcancel();
    } while (without_end);
    return 0;
}

int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*info)(size_t *, size_t *) = dlsym(cuda, "cuMemGetInfo_v2");
    set = dlsym(cuda, "cuCtxSetCurrent"), alloc = dlsym(cuda, "cuMemAlloc_v2"), release = dlsym(cuda, "cuMemFree_v2");
    if (init(0) || retain(&context, 0) || set(context)) return 1;
    int cancelled = 0;
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, 0, allocates, &cancelled);
        usleep(1000 + i * 37);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_t thread;
    pthread_create(&thread, &small, allocates, 0);
    pthread_join(thread, 0);
    size_t free, total;
    info(&free, &total);
    printf("cancelled %d, free %zu of %zu MiB\n", cancelled, free >> 20, total >> 20);
    return 0;
}

// A program that knows nothing of CUDA: it looks functions up on the ways that programs and their constructors do, forks and starts
// threads, and says which files it has open and which libraries.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int early;

// As the run-time libraries of compilers do: before main, several threads, and the next function of a name.
static void *look(void *unused) {
    (void)unused;
    for (int i = 0; i < 2000; i++)
        if (!dlsym(RTLD_NEXT, "write") || !dlsym(RTLD_DEFAULT, "getpid")) return (void *)1;
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t threads[4];
    void *bad = 0;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, look, 0);
    for (int i = 0; i < 4; i++) {
        void *one;
        pthread_join(threads[i], &one);
        if (one) bad = one;
    }
    early = bad == 0;
}

// A function of this program's own with the name of one in the C library: the next one is the library's.
int abs(int number) {
    int (*next)(int) = dlsym(RTLD_NEXT, "abs");
    Dl_info info;
    if (!next || next == abs || !dladdr(next, &info) || !strstr(info.dli_fname, "libc.so")) return -1;
    return next(number);
}

int main(void) {
    volatile int seven = -7;
    void *versioned = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14");
    void *math = dlopen("libm.so.6", RTLD_NOW);
    double (*cosine)(double) = math ? dlsym(math, "cos") : 0;
    dlerror();
    void *none = dlsym(math, "no_such_function");
    const char *why = dlerror();
    printf("early %d, next %d, versioned %d, cos %d, none %d, said %d\n", early, abs(seven),
#ifdef __x86_64__
           versioned != 0,
#else
           1 + (versioned != versioned),
#endif
           cosine && cosine(0) == 1, none == 0, why && strstr(why, "no_such_function") != 0);
    printf("no driver %d %d\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == 0, dlsym(math, "cuMemAlloc_v2") == 0);
    fflush(stdout);
    if (!fork()) _exit(dlsym(RTLD_DEFAULT, "write") ? 0 : 1);
    int status;
    wait(&status);
    printf("fork %d\n", status);
    DIR *files = opendir("/proc/self/fd");
    int count = 0;
    for (struct dirent *file; (file = readdir(files));) count += file->d_name[0] != '.';
    printf("files %d\n", count);
    return 0;
}

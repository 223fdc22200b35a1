/* CUDA C on a processor: a block's threads are fibers that switch at barriers. A kernel without barriers runs thread by thread. */
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
typedef struct { unsigned x, y, z; } dim3_;
static dim3_ threadIdx, blockIdx, blockDim, gridDim;
static unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
static unsigned long long atomicMin(unsigned long long* at, unsigned long long x) { unsigned long long old = *at; if (x < old) *at = x; return old; }
/* Who knows of the conditions of graphs, in a library that a driver has loaded. Without one a handle is the address of the value. */
void (*plimsoll_condition)(unsigned long long, unsigned);
static void cudaGraphSetConditional(unsigned long long handle, unsigned value) {
  if (plimsoll_condition) plimsoll_condition(handle, value); else *(unsigned*)(uintptr_t)handle = value;
}
#define MOST_THREADS 1024
#define STACK 65536
enum { NEW, READY, AT_BARRIER, DONE };
/* A fiber is made once, and runs one block after the other. */
static ucontext_t first, fibers[MOST_THREADS];
static char* stacks;
static int made, state[MOST_THREADS], current;
/* Switching by swapcontext is a call of the system each time; a sanitizer wants to see it. */
#ifdef __SANITIZE_ADDRESS__
#define SWITCH(from, to) swapcontext(&from, &to)
#define BEGIN(to) swapcontext(&first, &to)
#define scheduler first
#define PLACE(t) fibers[t]
#else
static jmp_buf scheduler, places[MOST_THREADS];
#define SWITCH(from, to) do { if (!_setjmp(from)) _longjmp(to, 1); } while (0)
#define BEGIN(to) do { if (!_setjmp(scheduler)) setcontext(&to); } while (0)
#define PLACE(t) places[t]
#endif
static void (*entry_)(unsigned long long*);
static unsigned long long* args_;
static void barrier(void) { int me = current; state[me] = AT_BARRIER; SWITCH(PLACE(me), scheduler); }
#define __syncthreads() barrier()
static void fiber(void) {
  for (int me = current;;) { entry_(args_); state[me] = DONE; SWITCH(PLACE(me), scheduler); }
}
static int block_with_barriers(int threads, int descending) {
  if (!stacks) stacks = malloc((size_t)MOST_THREADS * STACK);
  for (int t = 0; t < threads; ++t) state[t] = t < made ? READY : NEW;
  for (; made < threads; ++made) {
    getcontext(&fibers[made]);
    fibers[made].uc_stack.ss_sp = stacks + (size_t)made * STACK; fibers[made].uc_stack.ss_size = STACK; fibers[made].uc_link = 0;
    makecontext(&fibers[made], fiber, 0);
  }
  for (;;) {
    int done = 0;
    for (int k = 0; k < threads; ++k) {
      int t = descending ? threads - 1 - k : k;
      current = t; threadIdx.x = (unsigned)t;
      if (state[t] == NEW) BEGIN(fibers[t]); else SWITCH(scheduler, PLACE(t));
      done += state[t] == DONE;
    }
    if (done == threads) return 0;
    /* The others stay where they are: no block comes back to them. */
    if (done) made = 0;
    if (done) { fprintf(stderr, "divergent barrier: %d of %d threads have ended\n", done, threads); return 1; }
  }
}
static int launch(void (*kernel)(unsigned long long*), int barriers, unsigned blocks, unsigned threads, unsigned long long* args, int descending) {
  entry_ = kernel; args_ = args;
  blockDim = (dim3_){threads, 1, 1}; gridDim = (dim3_){blocks, 1, 1};
  for (unsigned b = 0; b < blocks; ++b) {
    blockIdx.x = descending ? blocks - 1 - b : b;
    if (barriers) { if (block_with_barriers((int)threads, descending)) return 1; continue; }
    for (unsigned t = 0; t < threads; ++t) { threadIdx.x = descending ? threads - 1 - t : t; kernel(args); }
  }
  return 0;
}

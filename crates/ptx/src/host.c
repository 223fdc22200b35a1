/* Behind the kernels: reads jobs, runs them, and writes their buffers. */
static unsigned long long number(FILE* file) {
  unsigned long long x = 0;
  if (fread(&x, 8, 1, file) != 1) exit(3);
  return x;
}
int main(int count, char** words) {
  if (count != 4) return 3;
  FILE *in = fopen(words[1], "rb"), *out = fopen(words[2], "wb");
  int descending = words[3][0] == '1';
  if (!in || !out) return 3;
  unsigned long long jobs = number(in);
  for (unsigned long long job = 0; job < jobs; ++job) {
    unsigned long long n = number(in), *sizes = calloc(n + 1, 8);
    void** buffers = calloc(n + 1, sizeof(void*));
    for (unsigned long long k = 0; k < n; ++k) {
      sizes[k] = number(in);
      if (posix_memalign(&buffers[k], 256, sizes[k])) return 3;
      if (sizes[k] && fread(buffers[k], 1, sizes[k], in) != sizes[k]) return 3;
    }
    unsigned long long launches = number(in);
    for (unsigned long long k = 0; k < launches; ++k) {
      unsigned long long kernel = number(in), blocks = number(in), threads = number(in), n_args = number(in), args[512];
      for (unsigned long long at = 0; at < n_args && at < 512; ++at) {
        unsigned long long kind = number(in), value = number(in);
        args[at] = kind ? value : (unsigned long long)(uintptr_t)buffers[value];
      }
      fprintf(stderr, "job %llu launch %llu\n", job, k);
      if (launch(kernels[kernel].call, kernels[kernel].barriers, (unsigned)blocks, (unsigned)threads, args, descending)) return 2;
    }
    for (unsigned long long k = 0; k < n; ++k) {
      if (sizes[k] && fwrite(buffers[k], 1, sizes[k], out) != sizes[k]) return 3;
      free(buffers[k]);
    }
    free(buffers); free(sizes);
  }
  return fclose(out) ? 3 : 0;
}

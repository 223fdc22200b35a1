/* What every generated kernel may use. The common part of C and CUDA C, so that tests can compile it for a processor, too. */
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

#ifdef __cplusplus
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#else
#define KERNEL void
#define DEVICE static inline
#endif
#define THREADS 256
/* One block is enough on a multiprocessor: without that number the compiler saves registers for the next fuller count of blocks, and
   keeps some of them in memory for it. */
#define BOUNDS __launch_bounds__(THREADS, 1)

/* Elements that are loaded and stored at once. */
typedef struct __align__(16) { u64 a, b; } w16;
#define VECTOR(T, N, SIZE) typedef struct __align__(SIZE) { T v[N]; } T##x##N;
VECTOR(u8, 2, 2) VECTOR(u8, 4, 4) VECTOR(u8, 8, 8) VECTOR(u8, 16, 16)
VECTOR(i8, 2, 2) VECTOR(i8, 4, 4) VECTOR(i8, 8, 8) VECTOR(i8, 16, 16)
VECTOR(u16, 2, 4) VECTOR(u16, 4, 8) VECTOR(u16, 8, 16)
VECTOR(i16, 2, 4) VECTOR(i16, 4, 8) VECTOR(i16, 8, 16)
VECTOR(u32, 2, 8) VECTOR(u32, 4, 16) VECTOR(i32, 2, 8) VECTOR(i32, 4, 16) VECTOR(f32, 2, 8) VECTOR(f32, 4, 16)
VECTOR(u64, 2, 16) VECTOR(i64, 2, 16) VECTOR(f64, 2, 16)

/* A fault: the least of all keys stays. A key is the command's (in `base`), the element's number, and the fault's. */
DEVICE void fail(u64* fault, u64 base, u64 element, u32 which) { atomicMin(fault, base | element << 4 | which); }

/* Whether a command is not run: its guard is 0, or a command before it has failed. All threads see the same. */
DEVICE int is_passed_over(const u8* guard, const u64* stop, u64 command) {
  return (guard && !*guard) || (stop && *(const volatile u64*)stop < command);
}

/* A number below 2^31 divided, by a factor and a shift that belong to the divisor. */
DEVICE u32 quotient(u32 x, u32 factor, u32 shift) { return (u32)((u64)x * factor >> shift); }

/* Floats of two bytes. They are computed with as floats, and rounded to the nearest, ties to even. */
DEVICE f32 from_bf16(u16 x) { return __uint_as_float((u32)x << 16); }
DEVICE u16 to_bf16(f32 x) {
  u32 bits = __float_as_uint(x);
  return (bits & 0x7FFFFFFFu) > 0x7F800000u ? (u16)((bits >> 16 & 0x8000u) | 0x7FC0u) : (u16)((bits + (0x7FFFu + (bits >> 16 & 1u))) >> 16);
}
DEVICE f32 from_f16(u16 x) {
  u32 sign = ((u32)x & 0x8000u) << 16, size = ((u32)x & 0x7FFFu) << 13;
  u32 scaled = __float_as_uint(__uint_as_float(size) * 5.192296858534828e33f);
  return __uint_as_float(sign | scaled | (size >= 0x0F800000u ? 0x7F800000u : 0u));
}
DEVICE u16 to_f16(f32 x) {
  u32 bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
  u32 rounded = size + (0xFFFu + (size >> 13 & 1u));
  u32 small = __float_as_uint(__uint_as_float(size) + 0.5f) - 0x3F000000u;
  u32 number = size < 0x38800000u ? small : (rounded - (112u << 23)) >> 13;
  number = rounded >= 0x47800000u ? 0x7C00u : number;
  return (u16)(sign | (size > 0x7F800000u ? 0x7E00u : number));
}

/* Functions of floats: those of the processor's library, step by step, where it has fused multiplication. */
DEVICE f32 power_of_two(i32 n) { return __uint_as_float((u32)(n + 127) << 23); }
DEVICE i32 parts_of_exp(f32 x, f32* r) {
  f32 shifted = fmaf(x, 1.44269504088896340736f, 12582912.0f), n = shifted - 12582912.0f;
  *r = fmaf(n, 2.1219444e-4f, fmaf(n, -0.6933594f, x));
  return (i32)((__float_as_uint(shifted) - (0x4B400000u - 256u)) & 0x1FFu) - 256;
}
DEVICE f32 tail_of_exp(f32 r) {
  f32 p = 1.9875691e-4f;
  p = fmaf(p, r, 1.3981999e-3f); p = fmaf(p, r, 8.333452e-3f); p = fmaf(p, r, 4.1665796e-2f);
  p = fmaf(p, r, 1.6666665e-1f); return fmaf(p, r, 5.0000003e-1f);
}
DEVICE f32 exp_f32(f32 x) {
  f32 r, value; i32 n, half;
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  n = parts_of_exp(x, &r);
  value = fmaf(tail_of_exp(r), r * r, r) + 1.0f;
  half = n >> 1;
  return value * power_of_two(half) * power_of_two(n - half);
}
DEVICE f32 expm1_f32(f32 x) {
  f32 r, near, half, value, held = x > 89.0f ? 89.0f : x;
  held = held < -25.0f ? -25.0f : held;
  half = power_of_two(parts_of_exp(held, &r) - 1);
  near = fmaf(tail_of_exp(r), r * r, r);
  value = fmaf(near, half, half - 0.5f) * 2.0f;
  return x == 0.0f ? x : value;
}
DEVICE f32 log_positive(f32 x, f32 correction) {
  u32 is_small = x < 1.17549435e-38f; u32 shifted; i32 n; f32 m, f, z, p, tail, low;
  x = is_small ? x * 33554432.0f : x;
  shifted = __float_as_uint(x) - 0x3F3504F3u;
  n = ((i32)shifted >> 23) - (is_small ? 25 : 0);
  m = __uint_as_float((shifted & 0x007FFFFFu) + 0x3F3504F3u);
  f = m - 1.0f;
  z = f * f;
  p = 7.0376836e-2f;
  p = fmaf(p, f, -1.151461e-1f); p = fmaf(p, f, 1.1676999e-1f); p = fmaf(p, f, -1.2420141e-1f); p = fmaf(p, f, 1.4249323e-1f);
  p = fmaf(p, f, -1.6668058e-1f); p = fmaf(p, f, 2.0000715e-1f); p = fmaf(p, f, -2.4999994e-1f); p = fmaf(p, f, 3.333333e-1f);
  tail = fmaf(-0.5f, z, p * f * z);
  low = fmaf((f32)n, -2.1219444e-4f, tail) + correction;
  return fmaf((f32)n, 0.6933594f, f + low);
}
#define NAN_F32 __uint_as_float(0x7FC00000u)
#define INF_F32 __uint_as_float(0x7F800000u)
#define NAN_F64 __longlong_as_double(0x7FF8000000000000ll)
#define INF_F64 __longlong_as_double(0x7FF0000000000000ll)
#define IS_NAN(x) ((x) != (x))
DEVICE f32 log_f32(f32 x) {
  f32 value = log_positive(x, 0.0f);
  value = x > 3.40282347e38f ? x : value;
  value = x == 0.0f ? -INF_F32 : value;
  return x >= 0.0f ? value : NAN_F32;
}
DEVICE f32 log1p_f32(f32 x) {
  f32 u = 1.0f + x, lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f), value = log_positive(u, lost / u);
  value = x > 3.40282347e38f ? x : value;
  value = x == -1.0f ? -INF_F32 : value;
  value = x >= -1.0f ? value : NAN_F32;
  return x == 0.0f ? x : value;
}
DEVICE f32 tanh_f32(f32 x) {
  f32 size = fabsf(x), far = 1.0f - 2.0f / (exp_f32(2.0f * (size > 10.0f ? 10.0f : size)) + 1.0f), z = size * size, p = -5.7049887e-3f;
  p = fmaf(p, z, 2.063909e-2f); p = fmaf(p, z, -5.3739716e-2f); p = fmaf(p, z, 1.3331442e-1f); p = fmaf(p, z, -3.333328e-1f);
  return copysignf(size > 0.625f ? far : fmaf(p * z, size, size), x);
}
DEVICE f32 sigmoid_f32(f32 x) { return 1.0f / (1.0f + exp_f32(-x)); }
DEVICE f32 erf_f32(f32 x) {
  f32 size = fabsf(x), t = size > 10.0f ? 10.0f : size, s = t * t, r, u, far, p;
  r = fmaf(-1.7285347e-5f, t, 3.83198e-4f);
  u = fmaf(-3.8839644e-3f, t, 2.4254622e-2f);
  r = fmaf(r, s, u);
  r = fmaf(r, t, -1.0677788e-1f); r = fmaf(r, t, -6.348467e-1f); r = fmaf(r, t, -1.2871751e-1f);
  far = copysignf(1.0f - exp_f32(fmaf(r, t, -t)), x);
  s = x * x;
  p = -5.967617e-4f;
  p = fmaf(p, s, 4.9911942e-3f); p = fmaf(p, s, -2.6768135e-2f); p = fmaf(p, s, 1.1281993e-1f);
  p = fmaf(p, s, -3.7612534e-1f); p = fmaf(p, s, 1.2837917e-1f);
  return IS_NAN(x) ? x : size > 0.9277344f ? far : fmaf(p, x, x);
}
DEVICE f32 pow_f32(f32 x, f32 y) {
  return y == 2.0f ? x * x : y == 3.0f ? (f32)((f64)x * (f64)x * (f64)x) : (f32)pow((f64)x, (f64)y);
}
DEVICE f64 sigmoid_f64(f64 x) { return 1.0 / (1.0 + exp(-x)); }

/* What is the same for both types of floats. */
#define FLOATS(T, MOD, FLOOR) \
  DEVICE T sign_##T(T x) { return x > 0 ? (T)1 : x < 0 ? (T)-1 : IS_NAN(x) ? x : (T)0; } \
  DEVICE T least_##T(T x, T y) { return y < x || IS_NAN(y) ? y : x; } \
  DEVICE T most_##T(T x, T y) { return y > x || IS_NAN(y) ? y : x; } \
  DEVICE T floor_mod_##T(T x, T y) { T rest = MOD(x, y); return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest; } \
  DEVICE T floor_div_##T(T x, T y) { return FLOOR(x / y); } \
  DEVICE T div_no_nan_##T(T x, T y) { return y == 0 ? (T)0 : x / y; }
FLOATS(f32, fmodf, floorf)
FLOATS(f64, fmod, floor)

/* Floats to integers, as x86 converts them. */
#define TRUNCATE(T, BELOW) \
  DEVICE i32 T##_to_i32(T x) { return x > (T)BELOW && x < (T)2147483648.0 ? (i32)x : (i32)0x80000000u; } \
  DEVICE i64 T##_to_i64(T x) { \
    return x >= (T)-9223372036854775808.0 && x < (T)9223372036854775808.0 ? (i64)x : (i64)0x8000000000000000ull; } \
  DEVICE u64 T##_to_u64(T x) { \
    i64 low = T##_to_i64(x), high = T##_to_i64(x - (T)9223372036854775808.0); return (u64)(low | (high & (low >> 63))); }
TRUNCATE(f32, -2147483904.0)
TRUNCATE(f64, -2147483649.0)

/* Integers wrap; W is unsigned and at least as wide as the type that C computes in. Division by 0 and negative powers are faults. */
#define INTEGERS(T, W) \
  DEVICE T add_##T(T x, T y) { return (T)((W)x + (W)y); } \
  DEVICE T sub_##T(T x, T y) { return (T)((W)x - (W)y); } \
  DEVICE T mul_##T(T x, T y) { return (T)((W)x * (W)y); } \
  DEVICE T neg_##T(T x) { return (T)((W)0 - (W)x); } \
  DEVICE T least_##T(T x, T y) { return y < x ? y : x; } \
  DEVICE T most_##T(T x, T y) { return y > x ? y : x; } \
  DEVICE T sign_##T(T x) { return (T)((x > 0) - (x < 0)); } \
  DEVICE T shift_##T(T y) { return y < 0 ? 0 : y > (T)(8 * sizeof(T) - 1) ? (T)(8 * sizeof(T) - 1) : y; } \
  DEVICE T left_##T(T x, T y) { return (T)((W)x << shift_##T(y)); } \
  DEVICE T right_##T(T x, T y) { return (T)(x >> shift_##T(y)); } \
  DEVICE T pow_##T(T x, T y, u32* bad) { \
    T product = 1; \
    if (y < 0) { *bad = 2; return 0; } \
    for (; y != 0; y >>= 1) { if (y & 1) product = mul_##T(product, x); x = mul_##T(x, x); } \
    return product; }
#define SIGNED(T, W) INTEGERS(T, W) \
  DEVICE T abs_##T(T x) { return x < 0 ? neg_##T(x) : x; } \
  DEVICE T div_##T(T x, T y, u32* bad) { if (y == 0) { *bad = 1; return 0; } return y == -1 ? neg_##T(x) : (T)(x / y); } \
  DEVICE T rem_##T(T x, T y, u32* bad) { if (y == 0) { *bad = 1; return 0; } return y == -1 ? 0 : (T)(x % y); } \
  DEVICE T floor_div_##T(T x, T y, u32* bad) { \
    T q = div_##T(x, y, bad); return y != 0 && y != -1 && x % y != 0 && (x < 0) != (y < 0) ? (T)(q - 1) : q; } \
  DEVICE T floor_mod_##T(T x, T y, u32* bad) { \
    T rest = rem_##T(x, y, bad); return rest != 0 && (rest < 0) != (y < 0) ? (T)(rest + y) : rest; }
#define UNSIGNED(T, W) INTEGERS(T, W) \
  DEVICE T abs_##T(T x) { return x; } \
  DEVICE T div_##T(T x, T y, u32* bad) { if (y == 0) { *bad = 1; return 0; } return (T)(x / y); } \
  DEVICE T rem_##T(T x, T y, u32* bad) { if (y == 0) { *bad = 1; return 0; } return (T)(x % y); } \
  DEVICE T floor_div_##T(T x, T y, u32* bad) { return div_##T(x, y, bad); } \
  DEVICE T floor_mod_##T(T x, T y, u32* bad) { return rem_##T(x, y, bad); }
SIGNED(i8, u32) SIGNED(i16, u32) SIGNED(i32, u32) SIGNED(i64, u64)
UNSIGNED(u8, u32) UNSIGNED(u16, u32) UNSIGNED(u32, u32) UNSIGNED(u64, u64)

//! One vector register of `f32`, for kernels that choose themselves which values stay in registers.

use plimsoll_base::{Bf16, F16};

/// A vector of `f32`.
///
/// Safety of all methods: the processor has the instruction set of the implementation. Pointers lead to as many elements as are
/// read or written, aligned to the element.
#[expect(clippy::missing_safety_doc, reason = "the same for all; see the trait")]
pub trait Lanes: Copy {
    /// Elements.
    const COUNT: usize;
    /// All zero.
    unsafe fn zero() -> Self;
    /// The same element everywhere.
    unsafe fn splat(value: f32) -> Self;
    /// `COUNT` elements.
    unsafe fn load(from: *const f32) -> Self;
    /// Asks for the line of an address to be brought to the second cache, where the processor can. The address need not be one.
    #[inline(always)]
    fn fetch_ahead(_address: *const f32) {}
    /// Asks for the line of an address to be brought to the first cache to be written, where the processor can. The address need not be one.
    #[inline(always)]
    fn fetch_to_write(_address: *mut f32) {}
    /// The first `count` elements (at most `COUNT`), then zeros.
    unsafe fn load_first(from: *const f32, count: usize) -> Self;
    /// Writes all elements.
    unsafe fn store(self, to: *mut f32);
    /// Writes the first `count` elements (at most `COUNT`).
    unsafe fn store_first(self, to: *mut f32, count: usize);
    /// `self * b + c`, rounded once where the instruction set can.
    unsafe fn madd(self, b: Self, c: Self) -> Self;
    /// The sum.
    unsafe fn add(self, other: Self) -> Self;
    /// The difference.
    unsafe fn sub(self, other: Self) -> Self;
    /// The product.
    unsafe fn mul(self, other: Self) -> Self;
    /// `self` where it is greater, else `other`: so `other` where one of them is NaN, or both are zeros.
    unsafe fn max(self, other: Self) -> Self;
    /// `self` where it is less, else `other`.
    unsafe fn min(self, other: Self) -> Self;
    /// `self` where `other` is above 0, else 0: so 0 where `other` is NaN.
    unsafe fn where_positive(self, other: Self) -> Self;

    /// `COUNT` numbers of two bytes, widened.
    #[inline(always)]
    unsafe fn load_f16(from: *const F16) -> Self {
        let mut wide = [0f32; 16];
        for (at, wide) in wide.iter_mut().enumerate().take(Self::COUNT) {
            // SAFETY: the caller's promise; no vector has more elements than the array.
            *wide = unsafe { from.add(at).read() }.to_f32();
        }
        // SAFETY: as above.
        unsafe { Self::load(wide.as_ptr()) }
    }

    /// As [`Lanes::load_f16`].
    #[inline(always)]
    unsafe fn load_bf16(from: *const Bf16) -> Self {
        let mut wide = [0f32; 16];
        for (at, wide) in wide.iter_mut().enumerate().take(Self::COUNT) {
            // SAFETY: the caller's promise; no vector has more elements than the array.
            *wide = unsafe { from.add(at).read() }.to_f32();
        }
        // SAFETY: as above.
        unsafe { Self::load(wide.as_ptr()) }
    }

    /// Turns `rows` rows of `columns` elements (each at most `COUNT`), `from_row` apart, into `COUNT` columns `to_row` apart:
    /// `to[c * to_row + r] = from[r * from_row + c]` for all `c < columns` and all `r < COUNT`, with zeros for `r >= rows`.
    #[inline(always)]
    unsafe fn transpose(from: *const f32, from_row: usize, rows: usize, columns: usize, to: *mut f32, to_row: usize) {
        for c in 0..columns {
            for r in 0..Self::COUNT {
                // SAFETY: the caller's promise.
                unsafe { to.add(c * to_row + r).write(if r < rows { from.add(r * from_row + c).read() } else { 0.0 }) };
            }
        }
    }
}

/// Four elements, for whatever the architecture has.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub struct Four([f32; 4]);

impl Lanes for Four {
    const COUNT: usize = 4;
    #[inline(always)]
    unsafe fn zero() -> Four {
        Four([0.0; 4])
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Four {
        Four([value; 4])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Four {
        // SAFETY: the caller's promise.
        Four(unsafe { from.cast::<[f32; 4]>().read() })
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Four {
        let mut made = [0.0; 4];
        for (at, element) in made.iter_mut().enumerate().take(count) {
            // SAFETY: the caller's promise.
            *element = unsafe { from.add(at).read() };
        }
        Four(made)
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write(self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        for (at, element) in self.0.iter().enumerate().take(count) {
            // SAFETY: the caller's promise.
            unsafe { to.add(at).write(*element) };
        }
    }
    #[inline(always)]
    unsafe fn madd(self, b: Four, c: Four) -> Four {
        let ([a0, a1, a2, a3], [b0, b1, b2, b3], [c0, c1, c2, c3]) = (self.0, b.0, c.0);
        Four([a0 * b0 + c0, a1 * b1 + c1, a2 * b2 + c2, a3 * b3 + c3])
    }
    #[inline(always)]
    unsafe fn add(self, other: Four) -> Four {
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (self.0, other.0);
        Four([a0 + b0, a1 + b1, a2 + b2, a3 + b3])
    }
    #[inline(always)]
    unsafe fn sub(self, other: Four) -> Four {
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (self.0, other.0);
        Four([a0 - b0, a1 - b1, a2 - b2, a3 - b3])
    }
    #[inline(always)]
    unsafe fn mul(self, other: Four) -> Four {
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (self.0, other.0);
        Four([a0 * b0, a1 * b1, a2 * b2, a3 * b3])
    }
    #[inline(always)]
    unsafe fn max(self, other: Four) -> Four {
        let of = |at: usize| if self.0[at] > other.0[at] { self.0[at] } else { other.0[at] };
        Four([of(0), of(1), of(2), of(3)])
    }
    #[inline(always)]
    unsafe fn min(self, other: Four) -> Four {
        let of = |at: usize| if self.0[at] < other.0[at] { self.0[at] } else { other.0[at] };
        Four([of(0), of(1), of(2), of(3)])
    }
    #[inline(always)]
    unsafe fn where_positive(self, other: Four) -> Four {
        let of = |at: usize| if other.0[at] > 0.0 { self.0[at] } else { 0.0 };
        Four([of(0), of(1), of(2), of(3)])
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use plimsoll_base::{Bf16, F16};

    use super::Lanes;

    impl Lanes for __m256 {
        const COUNT: usize = 8;
        #[inline(always)]
        unsafe fn load_f16(from: *const F16) -> __m256 {
            // SAFETY: as below. As `F16::to_f32`: F16C is another instruction set.
            unsafe {
                let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                let sign = _mm256_slli_epi32::<16>(_mm256_and_si256(bits, _mm256_set1_epi32(0x8000)));
                let size = _mm256_slli_epi32::<13>(_mm256_and_si256(bits, _mm256_set1_epi32(0x7FFF)));
                let scale = _mm256_castsi256_ps(_mm256_set1_epi32(0x7780_0000));
                let scaled = _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(size), scale));
                let is_special = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x0F7F_FFFF));
                let special = _mm256_and_si256(is_special, _mm256_set1_epi32(0x7F80_0000));
                _mm256_castsi256_ps(_mm256_or_si256(_mm256_or_si256(sign, scaled), special))
            }
        }
        #[inline(always)]
        unsafe fn load_bf16(from: *const Bf16) -> __m256 {
            // SAFETY: as below.
            unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())))) }
        }
        #[inline(always)]
        unsafe fn zero() -> __m256 {
            // SAFETY: the caller's promise of the instruction set, here and below.
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        fn fetch_ahead(address: *const f32) {
            // SAFETY: nothing is read: an address without memory is left alone.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast::<i8>()) }
        }
        #[inline(always)]
        fn fetch_to_write(address: *mut f32) {
            // SAFETY: nothing is written: an address without memory is left alone. To processors without the instruction it is none.
            unsafe { std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags)) }
        }
        #[inline(always)]
        unsafe fn splat(value: f32) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_set1_ps(value) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m256 {
            // SAFETY: as above; the elements are there.
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn load_first(from: *const f32, count: usize) -> __m256 {
            // SAFETY: as above; masked elements are not touched.
            unsafe { _mm256_maskload_ps(from, mask(count)) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(to, self) }
        }
        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, count: usize) {
            // SAFETY: as above; masked elements are not touched.
            unsafe { _mm256_maskstore_ps(to, mask(count), self) }
        }
        #[inline(always)]
        unsafe fn madd(self, b: __m256, c: __m256) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_fmadd_ps(self, b, c) }
        }
        #[inline(always)]
        unsafe fn add(self, other: __m256) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_add_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn sub(self, other: __m256) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_sub_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: __m256) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_mul_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn max(self, other: __m256) -> __m256 {
            // SAFETY: as above. Where neither is greater, the instruction gives the second.
            unsafe { _mm256_max_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn min(self, other: __m256) -> __m256 {
            // SAFETY: as above. Where neither is less, the instruction gives the second.
            unsafe { _mm256_min_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn where_positive(self, other: __m256) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_and_ps(self, _mm256_cmp_ps::<_CMP_GT_OQ>(other, _mm256_setzero_ps())) }
        }
        #[inline(always)]
        unsafe fn transpose(from: *const f32, from_row: usize, rows: usize, columns: usize, to: *mut f32, to_row: usize) {
            // SAFETY: as above; rows and columns that are not there are neither read nor written.
            unsafe {
                let mut r = [_mm256_setzero_ps(); 8];
                for (at, row) in r.iter_mut().enumerate().take(rows) {
                    *row = if columns == 8 {
                        _mm256_loadu_ps(from.add(at * from_row))
                    } else {
                        Lanes::load_first(from.add(at * from_row), columns)
                    };
                }
                let [a0, a1, a2, a3, a4, a5, a6, a7] = r;
                let (b0, b1) = (_mm256_unpacklo_ps(a0, a1), _mm256_unpackhi_ps(a0, a1));
                let (b2, b3) = (_mm256_unpacklo_ps(a2, a3), _mm256_unpackhi_ps(a2, a3));
                let (b4, b5) = (_mm256_unpacklo_ps(a4, a5), _mm256_unpackhi_ps(a4, a5));
                let (b6, b7) = (_mm256_unpacklo_ps(a6, a7), _mm256_unpackhi_ps(a6, a7));
                let (c0, c1) = (_mm256_shuffle_ps::<0x44>(b0, b2), _mm256_shuffle_ps::<0xEE>(b0, b2));
                let (c2, c3) = (_mm256_shuffle_ps::<0x44>(b1, b3), _mm256_shuffle_ps::<0xEE>(b1, b3));
                let (c4, c5) = (_mm256_shuffle_ps::<0x44>(b4, b6), _mm256_shuffle_ps::<0xEE>(b4, b6));
                let (c6, c7) = (_mm256_shuffle_ps::<0x44>(b5, b7), _mm256_shuffle_ps::<0xEE>(b5, b7));
                let out = [
                    _mm256_permute2f128_ps::<0x20>(c0, c4),
                    _mm256_permute2f128_ps::<0x20>(c1, c5),
                    _mm256_permute2f128_ps::<0x20>(c2, c6),
                    _mm256_permute2f128_ps::<0x20>(c3, c7),
                    _mm256_permute2f128_ps::<0x31>(c0, c4),
                    _mm256_permute2f128_ps::<0x31>(c1, c5),
                    _mm256_permute2f128_ps::<0x31>(c2, c6),
                    _mm256_permute2f128_ps::<0x31>(c3, c7),
                ];
                for (at, column) in out.iter().enumerate().take(columns) {
                    _mm256_storeu_ps(to.add(at * to_row), *column);
                }
            }
        }
    }

    /// The sign bit set in the first `count` elements.
    #[inline(always)]
    unsafe fn mask(count: usize) -> __m256i {
        // SAFETY: the callers' promise of AVX2.
        unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
    }

    impl Lanes for __m512 {
        const COUNT: usize = 16;
        #[inline(always)]
        unsafe fn load_f16(from: *const F16) -> __m512 {
            // SAFETY: as below.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
        }
        #[inline(always)]
        unsafe fn load_bf16(from: *const Bf16) -> __m512 {
            // SAFETY: as below.
            unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())))) }
        }
        #[inline(always)]
        unsafe fn zero() -> __m512 {
            // SAFETY: the caller's promise of the instruction set, here and below.
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        fn fetch_ahead(address: *const f32) {
            // SAFETY: nothing is read: an address without memory is left alone.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast::<i8>()) }
        }
        #[inline(always)]
        fn fetch_to_write(address: *mut f32) {
            // SAFETY: nothing is written: an address without memory is left alone. To processors without the instruction it is none.
            unsafe { std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags)) }
        }
        #[inline(always)]
        unsafe fn splat(value: f32) -> __m512 {
            // SAFETY: as above.
            unsafe { _mm512_set1_ps(value) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m512 {
            // SAFETY: as above; the elements are there.
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn load_first(from: *const f32, count: usize) -> __m512 {
            // SAFETY: as above; masked elements are not touched.
            unsafe { _mm512_maskz_loadu_ps(bits(count), from) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(to, self) }
        }
        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, count: usize) {
            // SAFETY: as above; masked elements are not touched.
            unsafe { _mm512_mask_storeu_ps(to, bits(count), self) }
        }
        #[inline(always)]
        unsafe fn madd(self, b: __m512, c: __m512) -> __m512 {
            // SAFETY: as above.
            unsafe { _mm512_fmadd_ps(self, b, c) }
        }
        #[inline(always)]
        unsafe fn add(self, other: __m512) -> __m512 {
            // SAFETY: as above.
            unsafe { _mm512_add_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn sub(self, other: __m512) -> __m512 {
            // SAFETY: as above.
            unsafe { _mm512_sub_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: __m512) -> __m512 {
            // SAFETY: as above.
            unsafe { _mm512_mul_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn max(self, other: __m512) -> __m512 {
            // SAFETY: as above. Where neither is greater, the instruction gives the second.
            unsafe { _mm512_max_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn min(self, other: __m512) -> __m512 {
            // SAFETY: as above. Where neither is less, the instruction gives the second.
            unsafe { _mm512_min_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn where_positive(self, other: __m512) -> __m512 {
            // SAFETY: as above.
            unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(other, _mm512_setzero_ps()), self) }
        }
        #[inline(always)]
        unsafe fn transpose(from: *const f32, from_row: usize, rows: usize, columns: usize, to: *mut f32, to_row: usize) {
            // SAFETY: as above; rows and columns that are not there are neither read nor written.
            unsafe {
                let mut r = [_mm512_setzero_ps(); 16];
                for (at, row) in r.iter_mut().enumerate() {
                    if at < rows {
                        *row = Lanes::load_first(from.add(at * from_row), columns);
                    }
                }
                // Pairs of rows, then of pairs: afterwards `q[4 * g + i]` has in its four lanes of 128 bits the columns
                // 4 * lane + i of the rows 4 * g .. 4 * g + 4.
                let mut q = [_mm512_setzero_ps(); 16];
                for g in 0..4 {
                    let [a, b, c, d] = [r[4 * g], r[4 * g + 1], r[4 * g + 2], r[4 * g + 3]];
                    let (low_ab, high_ab) = (_mm512_castps_pd(_mm512_unpacklo_ps(a, b)), _mm512_castps_pd(_mm512_unpackhi_ps(a, b)));
                    let (low_cd, high_cd) = (_mm512_castps_pd(_mm512_unpacklo_ps(c, d)), _mm512_castps_pd(_mm512_unpackhi_ps(c, d)));
                    q[4 * g] = _mm512_castpd_ps(_mm512_unpacklo_pd(low_ab, low_cd));
                    q[4 * g + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low_ab, low_cd));
                    q[4 * g + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high_ab, high_cd));
                    q[4 * g + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high_ab, high_cd));
                }
                for i in 0..4 {
                    // Columns i, 4 + i, 8 + i, 12 + i: lanes of 128 bits, themselves transposed.
                    let (a, b, c, d) = (q[i], q[4 + i], q[8 + i], q[12 + i]);
                    let (low_ab, high_ab) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xDD>(a, b));
                    let (low_cd, high_cd) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xDD>(c, d));
                    let out = [
                        _mm512_shuffle_f32x4::<0x88>(low_ab, low_cd),
                        _mm512_shuffle_f32x4::<0x88>(high_ab, high_cd),
                        _mm512_shuffle_f32x4::<0xDD>(low_ab, low_cd),
                        _mm512_shuffle_f32x4::<0xDD>(high_ab, high_cd),
                    ];
                    for (at, column) in out.iter().enumerate() {
                        if 4 * at + i < columns {
                            _mm512_storeu_ps(to.add((4 * at + i) * to_row), *column);
                        }
                    }
                }
            }
        }
    }

    /// A bit for each of the first `count` elements.
    #[inline(always)]
    fn bits(count: usize) -> __mmask16 {
        ((1u32 << count) - 1) as __mmask16
    }
}

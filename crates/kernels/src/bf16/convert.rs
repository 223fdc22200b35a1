//! Floats rounded to bf16, to the nearest and ties to even. Numbers below the least normal one become 0, as the instructions have it.

/// `(from, count, to)`: so many numbers that follow each other.
///
/// # Safety
/// They are there, and room for as many. The processor has AVX512-BF16.
pub(super) unsafe fn row(from: *const f32, count: usize, to: *mut u16) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        code::row(from, count, to);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, count, to);
}

/// Pairs of two rows of so many columns: `[column][2]`, `width` of them, those beyond `columns` zeros. A row that is null is of zeros.
///
/// # Safety
/// As [`row`]; `width` is a multiple of 16.
pub(super) unsafe fn pairs_of_rows([first, second]: [*const f32; 2], columns: usize, width: usize, to: *mut u16) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        code::pairs_of_rows([first, second], columns, width, to);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (first, second, columns, width, to);
}

/// Pairs of terms, rows of so many columns that lie `row` numbers apart: `[pair][width][2]`. What is beyond is zeros.
///
/// # Safety
/// As [`pairs_of_rows`].
pub(super) unsafe fn pairs_of_terms(from: *const f32, row: usize, columns: usize, terms: usize, width: usize, to: *mut u16) {
    for pair in 0..terms.div_ceil(2) {
        let of = |term: usize| if term < terms { from.wrapping_add(term * row) } else { std::ptr::null() };
        // SAFETY: the caller's promise.
        unsafe { pairs_of_rows([of(2 * pair), of(2 * pair + 1)], columns, width, to.add(2 * pair * width)) };
    }
}

/// Pairs of the `terms` numbers of so many columns, which lie `column` numbers apart: `[pair][width][2]`. What is beyond is zeros.
///
/// # Safety
/// As [`pairs_of_rows`].
pub(super) unsafe fn pairs_of_columns(from: *const f32, column: usize, columns: usize, terms: usize, width: usize, to: *mut u16) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        code::pairs_of_columns(from, column, columns, terms, width, to);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, column, columns, terms, width, to);
}

#[cfg(target_arch = "x86_64")]
mod code {
    use std::arch::x86_64::{
        __m256i, __m512, __m512bh, __m512i, __mmask16, _mm256_mask_storeu_epi16, _mm512_castsi512_si256, _mm512_cvtne2ps_pbh,
        _mm512_loadu_epi16, _mm512_loadu_ps, _mm512_maskz_loadu_ps, _mm512_permutexvar_epi16, _mm512_setzero_ps, _mm512_storeu_epi16,
    };

    use crate::bf16::tiles::LANES;

    /// Puts the numbers of two halves of a vector in turn.
    const IN_TURN: [u16; 32] = {
        let mut index = [0; 32];
        let mut at = 0;
        while at < LANES {
            index[2 * at] = at as u16;
            index[2 * at + 1] = (LANES + at) as u16;
            at += 1;
        }
        index
    };

    /// The first `count` numbers, then zeros.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn load(from: *const f32, count: usize) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe {
            match count {
                0 => _mm512_setzero_ps(),
                LANES.. => _mm512_loadu_ps(from),
                _ => _mm512_maskz_loadu_ps(((1u32 << count) - 1) as __mmask16, from),
            }
        }
    }

    /// The numbers of both, rounded: those of `first` come first.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn rounded(first: __m512, second: __m512) -> __m512i {
        // SAFETY: both types are 64 bytes of numbers.
        unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first)) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn row(from: *const f32, count: usize, to: *mut u16) {
        let mut at = 0;
        // SAFETY: the caller's promise: `count` numbers, and room for as many.
        unsafe {
            while at + 2 * LANES <= count {
                let both = rounded(_mm512_loadu_ps(from.add(at)), _mm512_loadu_ps(from.add(at + LANES)));
                _mm512_storeu_epi16(to.add(at).cast(), both);
                at += 2 * LANES;
            }
            while at < count {
                let some = LANES.min(count - at);
                let half: __m256i = _mm512_castsi512_si256(rounded(load(from.add(at), some), _mm512_setzero_ps()));
                _mm256_mask_storeu_epi16(to.add(at).cast(), ((1u32 << some) - 1) as __mmask16, half);
                at += some;
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn pairs_of_rows([first, second]: [*const f32; 2], columns: usize, width: usize, to: *mut u16) {
        let mut at = 0;
        // SAFETY: the caller's promise: `columns` numbers in rows that are not null, and room for `width` pairs.
        unsafe {
            let in_turn = _mm512_loadu_epi16(IN_TURN.as_ptr().cast());
            while at < width {
                let some = columns.saturating_sub(at);
                let of = |row: *const f32| load(row.wrapping_add(at), if row.is_null() { 0 } else { some });
                let pairs = _mm512_permutexvar_epi16(in_turn, rounded(of(first), of(second)));
                _mm512_storeu_epi16(to.add(2 * at).cast(), pairs);
                at += LANES;
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn pairs_of_columns(from: *const f32, column: usize, columns: usize, terms: usize, width: usize, to: *mut u16) {
        let to = to.cast::<u32>();
        let pairs = terms.div_ceil(2);
        // SAFETY: the caller's promise: `terms` numbers in each of `columns` columns, and room for `pairs` rows of `width` pairs.
        unsafe {
            for at in (0..pairs).step_by(LANES) {
                let some = LANES.min(pairs - at);
                for number in 0..width {
                    let mut both = [0u32; LANES];
                    if number < columns {
                        let from = from.add(number * column + 2 * at);
                        let rest = terms - 2 * at;
                        let second = rest.saturating_sub(LANES);
                        let halves = rounded(load(from, rest), load(from.wrapping_add(LANES), second));
                        _mm512_storeu_epi16(both.as_mut_ptr().cast(), halves);
                    }
                    for (pair, value) in both[..some].iter().enumerate() {
                        to.add((at + pair) * width + number).write(*value);
                    }
                }
            }
        }
    }
}

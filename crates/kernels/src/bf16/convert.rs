//! Floats rounded to bf16, to the nearest and ties to even. Numbers below the least normal one become 0, as the instructions have it.

macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        $($(#[$doc])*
        pub(super) unsafe fn $name($($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's promise.
            unsafe {
                code::$name($($arg),*);
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = ($($arg),*);
        })*
    };
}

functions! {
    /// So many rows of `count` numbers that follow each other. Where `count` is odd, a zero follows.
    ///
    /// # Safety
    /// They are there, and room for as many. The processor has AVX512-BF16.
    fn rows(from: *const f32, from_row: usize, count: usize, rows: usize, to: *mut u16, to_row: usize);
    /// Pairs of two rows of so many columns: `[column][2]`, `width` of them, those beyond `columns` zeros. A row that is null is of zeros.
    ///
    /// # Safety
    /// As [`rows`]; `width` is a multiple of 16.
    fn pairs_of_rows(both: [*const f32; 2], columns: usize, width: usize, to: *mut u16);
    /// As [`pairs_of_rows`], of so many rows, each with the one that is `apart` numbers behind it: `[row][width][2]`.
    ///
    /// # Safety
    /// As [`pairs_of_rows`].
    fn pairs_of_neighbours(from: *const f32, from_row: usize, apart: usize, rows: usize, columns: usize, width: usize, to: *mut u16);
    /// Pairs of terms, rows of so many columns that lie `row` numbers apart: `[pair][width][2]`. What is beyond is zeros.
    ///
    /// # Safety
    /// As [`pairs_of_rows`].
    fn pairs_of_terms(from: *const f32, row: usize, columns: usize, terms: usize, width: usize, to: *mut u16);
    /// Pairs of the `terms` numbers of so many columns, which lie `column` numbers apart: `[pair][width][2]`. What is beyond is zeros.
    ///
    /// # Safety
    /// As [`pairs_of_rows`].
    fn pairs_of_columns(from: *const f32, column: usize, columns: usize, terms: usize, width: usize, to: *mut u16);
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
    #[inline]
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
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn rounded(first: __m512, second: __m512) -> __m512i {
        // SAFETY: both types are 64 bytes of numbers.
        unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first)) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn rows(from: *const f32, from_row: usize, count: usize, rows: usize, to: *mut u16, to_row: usize) {
        for number in 0..rows {
            // SAFETY: the caller's promise.
            unsafe {
                let to = to.add(number * to_row);
                row(from.add(number * from_row), count, to);
                if count % 2 == 1 {
                    to.add(count).write(0);
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn row(from: *const f32, count: usize, to: *mut u16) {
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
    pub(super) unsafe fn pairs_of_neighbours(
        from: *const f32,
        from_row: usize,
        apart: usize,
        rows: usize,
        columns: usize,
        width: usize,
        to: *mut u16,
    ) {
        for number in 0..rows {
            let first = from.wrapping_add(number * from_row);
            // SAFETY: the caller's promise.
            unsafe { pairs_of_rows([first, first.wrapping_add(apart)], columns, width, to.add(2 * number * width)) };
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn pairs_of_terms(from: *const f32, row: usize, columns: usize, terms: usize, width: usize, to: *mut u16) {
        let pairs = terms / 2;
        // SAFETY: the caller's promise. A last term has no neighbour.
        unsafe {
            pairs_of_neighbours(from, 2 * row, row, pairs, columns, width, to);
            if terms % 2 == 1 {
                let last = from.wrapping_add(2 * pairs * row);
                pairs_of_rows([last, std::ptr::null()], columns, width, to.add(2 * pairs * width));
            }
        }
    }

    #[inline]
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

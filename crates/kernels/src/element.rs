//! Element types: how kernels read and write their numbers, the type that they compute and sum in, and the one dispatch by type.

use std::fmt::Debug;

use plimsoll_base::{Bf16, DataType, F16};

use crate::conv::groups::{self, GROUP};
use crate::simd::Lanes;

/// Numbers in memory.
pub(crate) trait Element: Copy + Send + Sync + Debug + 'static {
    /// Their type.
    const TYPE: DataType;
    /// The type that they are computed and summed in: that of [`DataType::compute_type`].
    type Sum: Element;
    /// The same number.
    fn widen(self) -> Self::Sum;
    /// The nearest number.
    fn narrow(sum: Self::Sum) -> Self;
}

macro_rules! elements {
    ($($variant:ident = $of:ty, sum $sum:ty, $widen:expr, $narrow:expr;)*) => {
        $(
            impl Element for $of {
                const TYPE: DataType = DataType::$variant;
                type Sum = $sum;
                #[inline(always)]
                fn widen(self) -> $sum {
                    $widen(self)
                }
                #[inline(always)]
                fn narrow(sum: $sum) -> $of {
                    $narrow(sum)
                }
            }
        )*

        /// The elements of each type, by TensorFlow's names, for [`of_type`].
        pub(crate) mod types {
            $(pub(crate) type $variant = $of;)*
            /// A byte, 0 or 1.
            pub(crate) type Bool = u8;
            // Integers that only kernels by index compute with.
            pub(crate) type Int8 = i8;
            pub(crate) type Int16 = i16;
            pub(crate) type Uint16 = u16;
            pub(crate) type Uint32 = u32;
            pub(crate) type Uint64 = u64;
            use super::{Bf16, F16};
        }
    };
}

#[inline(always)]
fn same<T>(value: T) -> T {
    value
}

elements! {
    Float = f32, sum f32, same, same;
    Double = f64, sum f64, same, same;
    Half = F16, sum f32, F16::to_f32, F16::from_f32;
    Bfloat16 = Bf16, sum f32, Bf16::to_f32, Bf16::from_f32;
    Int32 = i32, sum i32, same, same;
    Int64 = i64, sum i64, same, same;
    Uint8 = u8, sum u8, same, same;
}

/// `$body`, where `$T` is the type of the elements, for the types in the list; `$other` for all others. The only place where kernels
/// go from a [`DataType`] to a type of Rust.
macro_rules! of_type {
    ($data_type:expr, [$($variant:ident),+ $(,)?], $T:ident => $body:expr, _ => $other:expr $(,)?) => {
        match $data_type {
            $(
                plimsoll_base::DataType::$variant => {
                    type $T = $crate::element::types::$variant;
                    $body
                }
            )+
            _ => $other,
        }
    };
}
pub(crate) use of_type;

/// Numbers that are computed as `f32`, in vectors.
pub(crate) trait InFloats: Element<Sum = f32> {
    /// `V::COUNT` elements.
    ///
    /// # Safety
    /// As [`Lanes::load`].
    unsafe fn load<V: Lanes>(from: *const Self) -> V;

    /// The first `count` elements, then zeros.
    ///
    /// # Safety
    /// As [`Lanes::load_first`].
    unsafe fn load_first<V: Lanes>(from: *const Self, count: usize) -> V;

    /// As [`Lanes::transpose`].
    ///
    /// # Safety
    /// As there.
    unsafe fn transpose<V: Lanes>(from: *const Self, from_row: usize, rows: usize, columns: usize, to: *mut f32, to_row: usize);

    /// As [`groups::get`], then zeros.
    ///
    /// # Safety
    /// As there.
    unsafe fn get(from: *const Self, count: usize) -> [f32; GROUP];

    /// As [`groups::put`].
    ///
    /// # Safety
    /// As there.
    unsafe fn put(to: *mut Self, count: usize, group: [f32; GROUP]);
}

impl InFloats for f32 {
    #[inline(always)]
    unsafe fn load<V: Lanes>(from: *const f32) -> V {
        // SAFETY: the caller's promise, here and below.
        unsafe { V::load(from) }
    }
    #[inline(always)]
    unsafe fn load_first<V: Lanes>(from: *const f32, count: usize) -> V {
        // SAFETY: as above.
        unsafe { V::load_first(from, count) }
    }
    #[inline(always)]
    unsafe fn transpose<V: Lanes>(from: *const f32, from_row: usize, rows: usize, columns: usize, to: *mut f32, to_row: usize) {
        // SAFETY: as above.
        unsafe { V::transpose(from, from_row, rows, columns, to, to_row) }
    }
    #[inline(always)]
    unsafe fn get(from: *const f32, count: usize) -> [f32; GROUP] {
        // SAFETY: as above.
        unsafe { groups::get(from, count, 0.0) }
    }
    #[inline(always)]
    unsafe fn put(to: *mut f32, count: usize, group: [f32; GROUP]) {
        // SAFETY: as above.
        unsafe { groups::put(to, count, group) }
    }
}

/// The most elements that a vector has.
const MOST: usize = 16;

/// Numbers that are widened when they are loaded.
macro_rules! widened {
    ($($of:ty, $load:ident;)*) => {
        $(
            impl InFloats for $of {
                #[inline(always)]
                unsafe fn load<V: Lanes>(from: *const $of) -> V {
                    // SAFETY: the caller's promise, here and below.
                    unsafe { V::$load(from) }
                }
                #[inline(always)]
                unsafe fn load_first<V: Lanes>(from: *const $of, count: usize) -> V {
                    if count == V::COUNT {
                        // SAFETY: as above.
                        return unsafe { V::$load(from) };
                    }
                    let mut first = [<$of>::from_bits(0); MOST];
                    for (at, first) in first.iter_mut().enumerate().take(count) {
                        // SAFETY: as above; no vector has more elements than the array.
                        *first = unsafe { from.add(at).read() };
                    }
                    // SAFETY: as above.
                    unsafe { V::$load(first.as_ptr()) }
                }
                #[inline(always)]
                unsafe fn transpose<V: Lanes>(from: *const $of, from_row: usize, rows: usize, columns: usize, to: *mut f32, to_row: usize) {
                    let mut wide = [0f32; MOST * MOST];
                    for row in 0..rows {
                        // SAFETY: as above: a row has `columns` elements, at most as many as a vector.
                        unsafe { Self::load_first::<V>(from.add(row * from_row), columns).store(wide.as_mut_ptr().add(row * MOST)) };
                    }
                    // SAFETY: as above.
                    unsafe { V::transpose(wide.as_ptr(), MOST, rows, columns, to, to_row) }
                }
                #[inline(always)]
                unsafe fn get(from: *const $of, count: usize) -> [f32; GROUP] {
                    // SAFETY: as above.
                    let group = unsafe { groups::get(from, count, <$of>::from_bits(0)) };
                    let mut wide = [0f32; GROUP];
                    for lane in 0..GROUP {
                        wide[lane] = group[lane].widen();
                    }
                    wide
                }
                #[inline(always)]
                unsafe fn put(to: *mut $of, count: usize, group: [f32; GROUP]) {
                    let mut narrow = [<$of>::from_bits(0); GROUP];
                    for lane in 0..GROUP {
                        narrow[lane] = <$of>::narrow(group[lane]);
                    }
                    // SAFETY: as above.
                    unsafe { groups::put(to, count, narrow) }
                }
            }
        )*
    };
}
widened! {
    F16, load_f16;
    Bf16, load_bf16;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::packing;
    use crate::simd::Isa;

    #[test]
    fn sums_have_the_type_that_is_computed_in() {
        let mut known = 0;
        for &data_type in DataType::ALL {
            of_type!(
                data_type,
                [Float, Double, Half, Bfloat16, Int32, Int64, Uint8],
                T => {
                    assert_eq!((T::TYPE, <T as Element>::Sum::TYPE), (data_type, data_type.compute_type()));
                    assert_eq!(data_type.size(), Some(size_of::<T>()));
                    known += 1;
                },
                _ => assert_eq!(data_type.compute_type(), data_type),
            );
        }
        assert_eq!(known, 7);
    }

    /// The numbers as one row of whole vectors.
    fn packed<E: InFloats>(isa: Isa, numbers: &[E], lanes: usize) -> Vec<f32> {
        let vectors = numbers.len().div_ceil(lanes);
        let mut floats = vec![f32::NAN; vectors * lanes];
        let last = numbers.len() - (vectors - 1) * lanes;
        // SAFETY: the processor has the set; the row is there, and room for whole vectors.
        unsafe { (packing::<E>(isa).copy)(numbers.as_ptr(), 0, 1, vectors, last, floats.as_mut_ptr()) };
        floats
    }

    #[test]
    fn every_number_of_two_bytes_is_widened() {
        fn check<E: InFloats>(from_bits: fn(u16) -> E) {
            let numbers: Vec<E> = (0..=u16::MAX).map(from_bits).collect();
            for (isa, lanes) in Isa::available().into_iter().zip([4, 8, 16]) {
                for part in [&numbers[..], &numbers[..65_533], &numbers[7..8]] {
                    let floats = packed(isa, part, lanes);
                    for (at, float) in floats.iter().enumerate() {
                        let expected = part.get(at).map_or(0.0, |number| number.widen());
                        let same = float.to_bits() == expected.to_bits() || float.is_nan() && expected.is_nan();
                        assert!(same, "{isa:?} {} {at}: {float} and not {expected}", E::TYPE);
                    }
                }
            }
        }
        check(F16::from_bits);
        check(Bf16::from_bits);
    }
}

//! Instruction sets: which ones the processor has, and running code compiled for one of them.
//!
//! Kernels choose when they are prepared ([`Isa::best`]), never while they run. Loops are written once, generic over
//! [`Vectorised`], and compiled for every instruction set.

mod lanes;
pub mod math;

pub use lanes::{Four, Lanes};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// The instructions of every processor of the architecture.
    Portable,
    /// AVX2 and FMA (x86-64).
    Avx2,
    /// AVX-512 F, BW, DQ and VL (x86-64), with FMA.
    Avx512,
}

/// Code that is the same for every instruction set. `run` and all that it calls must be `#[inline(always)]`, else the
/// called part is compiled for the portable set.
pub trait Vectorised {
    /// Its result.
    type Output;
    /// The code; `FMA` says whether [`f32::mul_add`] is an instruction here (else it is a slow call).
    fn run<const FMA: bool>(self) -> Self::Output;
}

/// Asks for the line of an address to be brought to the second cache, where the processor can. The address need not be one.
#[inline(always)]
pub fn fetch_ahead(address: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: nothing is read: an address without memory is left alone. Every processor of the architecture has the instruction.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl Isa {
    /// The largest set that this processor has.
    pub fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            let fma = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if fma && avx512 {
                return Isa::Avx512;
            }
            if fma {
                return Isa::Avx2;
            }
        }
        Isa::Portable
    }

    /// Every set that this processor has, smallest first.
    pub fn available() -> Vec<Isa> {
        [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| *isa <= Isa::best()).collect()
    }

    /// Runs `code` as compiled for this set.
    ///
    /// # Safety
    /// The processor has the set ([`Isa::available`]).
    #[inline]
    pub unsafe fn run<V: Vectorised>(self, code: V) -> V::Output {
        match self {
            Isa::Portable => code.run::<false>(),
            // SAFETY: the caller promises that the processor has the features.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { run_avx2(code) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { run_avx512(code) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => code.run::<false>(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<V: Vectorised>(code: V) -> V::Output {
    code.run::<true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn run_avx512<V: Vectorised>(code: V) -> V::Output {
    code.run::<true>()
}

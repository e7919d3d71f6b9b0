//! Eight f32 lanes, chosen at run time.
//!
//! A kernel is written once, generic over [`Lanes`], as the body of a [`Kernel`]. [`run`] instantiates it for AVX2 with
//! FMA and F16C where the processor has them, and otherwise for plain arrays, which the compiler turns into SSE2,
//! NEON or WebAssembly SIMD. Everything between `run` and the lanes is `inline(always)`, so that the whole body is
//! compiled with the chosen instructions. Closures cannot be marked so: one that handles lanes must be tiny, or it
//! becomes a function of its own that lacks them, and runs ten times slower.

/// Lanes of one [`Lanes`] value.
pub(crate) const LANES: usize = 8;

/// Eight f32 numbers and the arithmetic that kernels need.
pub(crate) trait Lanes: Copy {
    fn splat(x: f32) -> Self;
    fn load(x: &[f32; LANES]) -> Self;
    fn store(self, x: &mut [f32; LANES]);
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    fn div(self, o: Self) -> Self;
    /// `self · a + b`, rounded once where the instructions allow.
    fn fma(self, a: Self, b: Self) -> Self;
    /// The larger one; NaN if `self` is.
    fn at_least(self, low: Self) -> Self;
    /// The smaller one; NaN if `self` is.
    fn at_most(self, high: Self) -> Self;
    /// `if self < bound { small } else { large }`, lane by lane; `large` if `self` is NaN.
    fn select_lt(self, bound: Self, small: Self, large: Self) -> Self;
    /// To the nearest integer, ties to even.
    fn round(self) -> Self;
    /// `2^self` for integers in −126..=128; 128 gives infinity.
    fn exp2_int(self) -> Self;
    /// `(e, m)` with `self = m·2^e` and m in `[√½, √2)`, for positive normal numbers.
    fn split(self) -> (Self, Self);
    /// Absolute value.
    fn abs(self) -> Self;
    /// Sum of the lanes, in one fixed order: `((0+4)+(2+6)) + ((1+5)+(3+7))`.
    fn sum(self) -> f32;
    /// [`Lanes::sum`] of four at a time.
    fn sum4(x: [Self; 4]) -> [f32; 4];
    /// Little-endian f32, at any address.
    fn load_f32_bytes(x: &[u8; 32]) -> Self;
    /// Little-endian IEEE halves, at any address.
    fn load_f16_bytes(x: &[u8; 16]) -> Self;
    /// Little-endian bfloat16, at any address.
    fn load_bf16_bytes(x: &[u8; 16]) -> Self;
    /// Asks for a cache line that will be read soon. Any address will do.
    fn prefetch(at: *const u8);
    /// Runs another kernel with these lanes, as a function of its own: what is called from several places is then
    /// compiled once.
    fn call<K: Kernel>(kernel: K) -> K::Output;
}

/// A computation that wants lanes.
pub(crate) trait Kernel {
    type Output;
    /// The body. Mark it `#[inline(always)]`, and every helper it calls with lanes.
    fn run<L: Lanes>(self) -> Self::Output;
}

/// Whether [`run`] uses AVX2, FMA and F16C.
#[cfg_attr(target_family = "wasm", allow(dead_code))]
pub(crate) fn has_avx2() -> bool {
    #[cfg(test)]
    if tests::PLAIN.get() {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Runs a kernel with the best lanes this processor has.
#[inline]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the features were detected just now.
        return unsafe { x86::run(kernel) };
    }
    kernel.run::<Plain>()
}

/// Lanes as a plain array.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; LANES]);

impl Plain {
    #[inline(always)]
    fn zip(self, o: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], o.0[i])))
    }
}

impl Lanes for Plain {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; LANES])
    }
    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        Self(*x)
    }
    #[inline(always)]
    fn store(self, x: &mut [f32; LANES]) {
        *x = self.0;
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        self.zip(o, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        self.zip(o, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        self.zip(o, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, o: Self) -> Self {
        self.zip(o, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        // Only AArch64 has a fused instruction in its baseline; elsewhere `mul_add` would call into libm.
        #[cfg(target_arch = "aarch64")]
        return Self(std::array::from_fn(|i| self.0[i].mul_add(a.0[i], b.0[i])));
        #[cfg(not(target_arch = "aarch64"))]
        Self(std::array::from_fn(|i| self.0[i] * a.0[i] + b.0[i]))
    }
    #[inline(always)]
    fn at_least(self, low: Self) -> Self {
        self.zip(low, |x, l| if x < l { l } else { x })
    }
    #[inline(always)]
    fn at_most(self, high: Self) -> Self {
        self.zip(high, |x, h| if x > h { h } else { x })
    }
    #[inline(always)]
    fn select_lt(self, bound: Self, small: Self, large: Self) -> Self {
        Self(std::array::from_fn(|i| if self.0[i] < bound.0[i] { small.0[i] } else { large.0[i] }))
    }
    #[inline(always)]
    fn round(self) -> Self {
        // Adding and subtracting 1.5·2²³ rounds to an integer in the current (nearest, even) mode; |x| < 2²² here.
        const MAGIC: f32 = 12_582_912.0;
        Self(self.0.map(|x| (x + MAGIC) - MAGIC))
    }
    #[inline(always)]
    fn exp2_int(self) -> Self {
        // SAFETY of the cast: the contract bounds the value, and `as` saturates besides.
        Self(self.0.map(|x| f32::from_bits((((x as i32) + 127) << 23) as u32)))
    }
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        const ROOT_HALF: i32 = 0x3f35_04f3;
        let e = self.0.map(|x| (x.to_bits() as i32).wrapping_sub(ROOT_HALF) >> 23);
        let m = std::array::from_fn(|i| f32::from_bits((self.0[i].to_bits() as i32).wrapping_sub(e[i] << 23) as u32));
        (Self(e.map(|e| e as f32)), Self(m))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.map(f32::abs))
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        let x = self.0;
        ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]))
    }
    #[inline(always)]
    fn sum4(x: [Self; 4]) -> [f32; 4] {
        x.map(Self::sum)
    }
    #[inline(always)]
    fn load_f32_bytes(x: &[u8; 32]) -> Self {
        let (x, _) = x.as_chunks::<4>();
        Self(std::array::from_fn(|i| f32::from_le_bytes(x[i])))
    }
    #[inline(always)]
    fn load_f16_bytes(x: &[u8; 16]) -> Self {
        let (x, _) = x.as_chunks::<2>();
        Self(std::array::from_fn(|i| half::f16::from_le_bytes(x[i]).to_f32()))
    }
    #[inline(always)]
    fn load_bf16_bytes(x: &[u8; 16]) -> Self {
        let (x, _) = x.as_chunks::<2>();
        Self(std::array::from_fn(|i| f32::from_bits(u32::from(u16::from_le_bytes(x[i])) << 16)))
    }
    #[inline(always)]
    fn prefetch(_: *const u8) {}
    #[inline(always)]
    fn call<K: Kernel>(kernel: K) -> K::Output {
        outlined(kernel)
    }
}

#[inline(never)]
fn outlined<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Plain>()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Kernel, LANES, Lanes};
    use std::arch::x86_64::*;

    /// # Safety
    /// The processor must have AVX2, FMA and F16C.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline(never)]
    pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<Avx2>()
    }

    /// Lanes in a ymm register.
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(__m256);

    // SAFETY, of every intrinsic below: this type is private to the module, and `run` alone makes kernels use it,
    // after the features were detected. Loads and stores go through references to arrays of the right size, and are
    // of the unaligned kind.
    impl Lanes for Avx2 {
        #[inline(always)]
        fn splat(x: f32) -> Self {
            Self(unsafe { _mm256_set1_ps(x) })
        }
        #[inline(always)]
        fn load(x: &[f32; LANES]) -> Self {
            Self(unsafe { _mm256_loadu_ps(x.as_ptr()) })
        }
        #[inline(always)]
        fn store(self, x: &mut [f32; LANES]) {
            unsafe { _mm256_storeu_ps(x.as_mut_ptr(), self.0) }
        }
        #[inline(always)]
        fn add(self, o: Self) -> Self {
            Self(unsafe { _mm256_add_ps(self.0, o.0) })
        }
        #[inline(always)]
        fn sub(self, o: Self) -> Self {
            Self(unsafe { _mm256_sub_ps(self.0, o.0) })
        }
        #[inline(always)]
        fn mul(self, o: Self) -> Self {
            Self(unsafe { _mm256_mul_ps(self.0, o.0) })
        }
        #[inline(always)]
        fn div(self, o: Self) -> Self {
            Self(unsafe { _mm256_div_ps(self.0, o.0) })
        }
        #[inline(always)]
        fn fma(self, a: Self, b: Self) -> Self {
            Self(unsafe { _mm256_fmadd_ps(self.0, a.0, b.0) })
        }
        #[inline(always)]
        fn at_least(self, low: Self) -> Self {
            // The second operand is returned when one is NaN.
            Self(unsafe { _mm256_max_ps(low.0, self.0) })
        }
        #[inline(always)]
        fn at_most(self, high: Self) -> Self {
            Self(unsafe { _mm256_min_ps(high.0, self.0) })
        }
        #[inline(always)]
        fn select_lt(self, bound: Self, small: Self, large: Self) -> Self {
            unsafe {
                let mask = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, bound.0);
                Self(_mm256_blendv_ps(large.0, small.0, mask))
            }
        }
        #[inline(always)]
        fn round(self) -> Self {
            Self(unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
        }
        #[inline(always)]
        fn exp2_int(self) -> Self {
            unsafe {
                let e = _mm256_add_epi32(_mm256_cvtps_epi32(self.0), _mm256_set1_epi32(127));
                Self(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(e)))
            }
        }
        #[inline(always)]
        fn split(self) -> (Self, Self) {
            unsafe {
                let bits = _mm256_castps_si256(self.0);
                let e = _mm256_srai_epi32::<23>(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f35_04f3)));
                let m = _mm256_sub_epi32(bits, _mm256_slli_epi32::<23>(e));
                (Self(_mm256_cvtepi32_ps(e)), Self(_mm256_castsi256_ps(m)))
            }
        }
        #[inline(always)]
        fn abs(self) -> Self {
            Self(unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0) })
        }
        #[inline(always)]
        fn sum(self) -> f32 {
            unsafe {
                let x = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
                let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
                _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
            }
        }
        #[inline(always)]
        fn sum4([a, b, c, d]: [Self; 4]) -> [f32; 4] {
            #[inline(always)]
            unsafe fn half(x: __m256) -> __m128 {
                unsafe { _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)) }
            }
            #[inline(always)]
            unsafe fn pair(x: __m128, y: __m128) -> __m128 {
                unsafe { _mm_add_ps(_mm_movelh_ps(x, y), _mm_movehl_ps(y, x)) }
            }
            let mut out = [0.0; 4];
            unsafe {
                let (ab, cd) = (pair(half(a.0), half(b.0)), pair(half(c.0), half(d.0)));
                _mm_storeu_ps(out.as_mut_ptr(), _mm_hadd_ps(ab, cd));
            }
            out
        }
        #[inline(always)]
        fn load_f32_bytes(x: &[u8; 32]) -> Self {
            Self(unsafe { _mm256_loadu_ps(x.as_ptr().cast()) })
        }
        #[inline(always)]
        fn load_f16_bytes(x: &[u8; 16]) -> Self {
            Self(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())) })
        }
        #[inline(always)]
        fn load_bf16_bytes(x: &[u8; 16]) -> Self {
            unsafe {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().cast()));
                Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
            }
        }
        #[inline(always)]
        fn prefetch(at: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
        #[inline(always)]
        fn call<K: Kernel>(kernel: K) -> K::Output {
            unsafe { run(kernel) }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    thread_local! {
        pub(super) static PLAIN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    /// Runs a kernel with plain lanes, whatever the processor has.
    pub(crate) fn run_plain<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<Plain>()
    }

    /// Runs a test with one thread and plain lanes.
    pub(crate) fn all_plain(test: impl FnOnce() + Send) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        pool.install(|| {
            PLAIN.set(true);
            test();
        });
    }

    struct Everything([f32; 8]);
    impl Kernel for Everything {
        type Output = Vec<[f32; 8]>;
        #[inline(always)]
        fn run<L: Lanes>(self) -> Self::Output {
            let out = |x: L| {
                let mut o = [0.0; 8];
                x.store(&mut o);
                o
            };
            let x = L::load(&self.0);
            let (e, m) = x.abs().split();
            vec![
                out(x.round()),
                out(x.round().exp2_int()),
                out(e),
                out(m),
                out(x.at_least(L::splat(0.0))),
                out(x.at_most(L::splat(1.0))),
                out(x.select_lt(L::splat(0.5), L::splat(1.0), x)),
                [x.sum(); 8],
                {
                    let s = L::sum4([x, x.abs(), x.add(x), x.mul(x)]);
                    let alone = [x.sum(), x.abs().sum(), x.add(x).sum(), x.mul(x).sum()];
                    assert_eq!(s.map(f32::to_bits), alone.map(f32::to_bits));
                    [s[0], s[1], s[2], s[3], 0.0, 0.0, 0.0, 0.0]
                },
            ]
        }
    }

    #[test]
    fn both_kinds_of_lanes_agree_bitwise() {
        for x in [[0.5, 1.5, -2.5, 3.7, 100.0, -90.25, 1e-3, 127.0], [f32::NAN, 1.0, 2.0, -3.0, 0.1, 0.7, 1.4, 1.5]] {
            let bits = |v: Vec<[f32; 8]>| v.into_iter().map(|r| r.map(f32::to_bits)).collect::<Vec<_>>();
            let (fast, plain) = (bits(run(Everything(x))), bits(run_plain(Everything(x))));
            let skip_nan = |v: &[[u32; 8]]| v.iter().map(|r| r[1..].to_vec()).collect::<Vec<_>>();
            if x[0].is_nan() {
                // Exponent tricks are undefined on NaN; the other lanes and the clamps must hold.
                assert_eq!(skip_nan(&fast[..7]), skip_nan(&plain[..7]));
                assert!(f32::from_bits(fast[4][0]).is_nan() && f32::from_bits(plain[4][0]).is_nan());
            } else {
                assert_eq!(fast, plain);
            }
        }
    }
}

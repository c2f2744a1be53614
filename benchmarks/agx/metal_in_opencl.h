// The part of Metal that the kernels use, in C++ for OpenCL, for clang --target=spir64.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma clang diagnostic ignored "-Wunused-value"
#define device __global
#define thread __private
#define threadgroup __local
#define METAL_FUNC inline __attribute__((__always_inline__))
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t; typedef long int64_t; typedef unsigned long uint64_t;
typedef half float16_t;
// 16 bits with the exponent of a float, rounded to nearest even. The conversion from float is implicit, unlike
// Metal's, because "condition ? bfloat in device memory : bfloat" is a float here. tests/metal/language.py checks
// that the source is Metal.
struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  bfloat16_t(float value) : bits(of(as_uint(value))) {}
  template <typename U> explicit bfloat16_t(U value) : bits(of(as_uint(float(value)))) {}
  operator float() const { return as_float(uint(bits) << 16); }
  static uint16_t of(uint u) {
    return (u & 0x7fffffffu) > 0x7f800000u ? uint16_t((u >> 16) | 0x40u)
                                           : uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};
#define MSL_BF(op) \
  METAL_FUNC bfloat16_t operator op(bfloat16_t a, bfloat16_t b) { return bfloat16_t(float(a) op float(b)); }
MSL_BF(+) MSL_BF(-) MSL_BF(*) MSL_BF(/)
#undef MSL_BF
typedef bfloat16_t bfloat;
#undef INFINITY
#define INFINITY __builtin_inff()
namespace metal {
template <typename T> struct numeric_limits;
#define MSL_LIM(t, lo) template <> struct numeric_limits<t> { static constexpr t lowest() { return t(lo); } };
MSL_LIM(int8_t, -128) MSL_LIM(uint8_t, 0) MSL_LIM(int16_t, -32768) MSL_LIM(uint16_t, 0) MSL_LIM(int32_t, -2147483647 - 1) MSL_LIM(uint32_t, 0)
MSL_LIM(int64_t, -9223372036854775807L - 1) MSL_LIM(uint64_t, 0) MSL_LIM(float, -3e38f) MSL_LIM(half, -65504.f)
#undef MSL_LIM
enum memory_order_ { memory_order_relaxed_ };
}
template <typename T> struct atomic { T value; };
#define memory_order_relaxed metal::memory_order_relaxed_
#define MSL_ATOMIC(name, builtin) \
  METAL_FUNC uint32_t name(__global atomic<uint32_t>* o, uint32_t m, metal::memory_order_) { return builtin((volatile __global uint*)o, m); } \
  METAL_FUNC int32_t name(__global atomic<int32_t>* o, int32_t m, metal::memory_order_) { return builtin((volatile __global int*)o, m); }
MSL_ATOMIC(atomic_fetch_or_explicit, atomic_or)
MSL_ATOMIC(atomic_fetch_and_explicit, atomic_and)
MSL_ATOMIC(atomic_fetch_xor_explicit, atomic_xor)
MSL_ATOMIC(atomic_fetch_max_explicit, atomic_max)
MSL_ATOMIC(atomic_fetch_min_explicit, atomic_min)
MSL_ATOMIC(atomic_fetch_add_explicit, atomic_add)
MSL_ATOMIC(atomic_fetch_sub_explicit, atomic_sub)
MSL_ATOMIC(atomic_exchange_explicit, atomic_xchg)
#undef MSL_ATOMIC
template <typename T, typename U> METAL_FUNC T as_type(U u) { return __builtin_bit_cast(T, u); }
namespace metal {
template <typename T> METAL_FUNC T min(T a, T b) { return b < a ? b : a; }
template <typename T> METAL_FUNC T max(T a, T b) { return a < b ? b : a; }
template <typename T> METAL_FUNC T clamp(T x, T a, T b) { return min(max(x, a), b); }
template <typename T> METAL_FUNC T select(T a, T b, bool c) { return c ? b : a; }
template <typename T> METAL_FUNC T abs(T x) { return x < T(0) ? T(-x) : x; }
}
extern "C" __attribute__((const)) uint msl_position(uint axis);  // defined by toolchain.py

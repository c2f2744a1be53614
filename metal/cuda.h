// Definitions for CUDA of the language features that the kernels use; metal.h has those for Metal.
// MLX compiles this file after its own header for 16-bit types and limits, with all functions as
// device functions by default.

typedef unsigned int uint;
typedef __nv_bfloat16 bfloat16_t;
#define thread
#define thread_position_in_grid                 \
  (uint3{blockIdx.x * blockDim.x + threadIdx.x, \
         blockIdx.y * blockDim.y + threadIdx.y, \
         blockIdx.z * blockDim.z + threadIdx.z})

// The smallest value of a type: minus infinity for floating-point types.
template <typename T> inline T lowest() {
  static_assert(T(1) / T(2) == T(0), "integers only");
  return cuda::std::numeric_limits<T>::lowest();
}
template <> inline float lowest<float>() { return -cuda::std::numeric_limits<float>::infinity(); }
template <> inline __half lowest<__half>() { return __float2half(lowest<float>()); }
template <> inline __nv_bfloat16 lowest<__nv_bfloat16>() {
  return __float2bfloat16(lowest<float>());
}

template <typename T> struct Order {
  static_assert(T(1) / T(2) == T(0), "integers only");
  typedef T type;
  enum { same = 1 }; // whether values are compared directly
};
template <> struct Order<__half> { typedef __half type; enum { same = 1 }; };
template <> struct Order<float> { typedef int32_t type; enum { same = 0 }; };
template <> struct Order<__nv_bfloat16> { typedef int32_t type; enum { same = 0 }; };
inline int32_t bits_of(float value) { return __float_as_int(value); }
inline int32_t bits_of(__nv_bfloat16 value) { return int32_t(__bfloat16_as_ushort(value)) << 16; }

inline uint32_t set_bits(uint32_t* word, uint32_t bits) { return atomicOr(word, bits); }

inline void raise_to(int32_t* number, int32_t least) { atomicMax(number, least); }

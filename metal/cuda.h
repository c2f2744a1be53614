// Definitions for CUDA of the language features that the kernels use; metal.h has those for Metal. MLX compiles this
// file after its own header for 16-bit types and limits, with all functions as device functions by default.

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
template <> inline __nv_bfloat16 lowest<__nv_bfloat16>() { return __float2bfloat16(lowest<float>()); }

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

// A vector for one aligned load or store. Its length is the largest power of two that divides N, the number of
// neighbouring elements (a run), and at most 16 bytes.
template <typename T, int M> struct alignas(M * sizeof(T)) Word { T part[M]; };
template <int N, typename T> constexpr int word_lanes() {
  return (N & -N) * sizeof(T) < 16 ? N & -N : int(16 / sizeof(T));
}

// Whether runs of an array can be accessed in aligned words of M elements. The offset of each run is a multiple of every
// power of two that divides both `step` and the length of the run. MLX may pass an array that starts at any element, so
// its address is tested at run time; the result is the same for all threads.
template <int M, typename T> inline bool in_words(const T* array, uint step) {
  return M > 1 && step % M == 0 && size_t(array) % sizeof(Word<T, M>) == 0;
}

// Loads `lanes` of N neighbouring elements in words and sets the others to zero. Returns false, without loading
// anything, if words cannot be used.
template <int N, typename T, typename U>
inline bool load_words(T* to, const U* array, const U* from, int lanes, uint step) {
  const int M = word_lanes<N, U>();
  if (!in_words<M>(array, step)) {
    return false;
  }
  #pragma unroll
  for (int n = 0; n < N; n += M) {
    Word<U, M> word = {};
    if (n < lanes) {
      word = *(const Word<U, M>*)(from + n);
    }
    #pragma unroll
    for (int m = 0; m < M; ++m) {
      to[n + m] = T(word.part[m]);
    }
  }
  return true;
}

template <int N, typename T, typename U>
inline bool store_words(U* array, U* to, const T* from, int lanes, uint step) {
  const int M = word_lanes<N, U>();
  if (!in_words<M>(array, step)) {
    return false;
  }
  #pragma unroll
  for (int n = 0; n < N; n += M) {
    Word<U, M> word;
    #pragma unroll
    for (int m = 0; m < M; ++m) {
      word.part[m] = from[n + m];
    }
    if (n < lanes) {
      *(Word<U, M>*)(to + n) = word;
    }
  }
  return true;
}

// Definitions for Metal of the language features that the kernels use; cuda.h has those for CUDA.

// The smallest value of a type: minus infinity for floating-point types.
template <typename T> METAL_FUNC T lowest() {
  static_assert(T(1) / T(2) == T(0), "integers only");
  return metal::numeric_limits<T>::lowest();
}
template <> METAL_FUNC float lowest<float>() { return -INFINITY; }
template <> METAL_FUNC half lowest<half>() { return half(-INFINITY); }
template <> METAL_FUNC bfloat16_t lowest<bfloat16_t>() { return bfloat16_t(-INFINITY); }

// Apple's GPUs flush 32-bit subnormal numbers to zero. Therefore float and bfloat16, which is
// widened to 32 bits, are compared as integers of the same order (see `ordered` in order.h). half
// keeps its subnormal numbers.
template <typename T> struct Order {
  static_assert(T(1) / T(2) == T(0), "integers only");
  typedef T type;
  enum { same = 1 }; // whether values are compared directly
};
template <> struct Order<half> { typedef half type; enum { same = 1 }; };
template <> struct Order<float> { typedef int32_t type; enum { same = 0 }; };
template <> struct Order<bfloat16_t> { typedef int32_t type; enum { same = 0 }; };
METAL_FUNC int32_t bits_of(float value) { return as_type<int32_t>(value); }
METAL_FUNC int32_t bits_of(bfloat16_t value) { return int32_t(as_type<uint16_t>(value)) << 16; }

// Sets bits of a 32-bit word atomically and returns its previous value.
METAL_FUNC uint32_t set_bits(device atomic<uint32_t>* word, uint32_t bits) {
  return atomic_fetch_or_explicit(word, bits, memory_order_relaxed);
}

// Atomically sets a number to the maximum of itself and `least`.
METAL_FUNC void raise_to(device atomic<int32_t>* number, int32_t least) {
  atomic_fetch_max_explicit(number, least, memory_order_relaxed);
}

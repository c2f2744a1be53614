// What the kernels need of the language, in Metal's words; cuda.h says the same in CUDA's.

// The least value of a type: minus infinity where there is one.
template <typename T> METAL_FUNC T lowest() { return metal::numeric_limits<T>::lowest(); }
template <> METAL_FUNC float lowest<float>() { return -INFINITY; }
template <> METAL_FUNC half lowest<half>() { return half(-INFINITY); }
template <> METAL_FUNC bfloat16_t lowest<bfloat16_t>() { return bfloat16_t(-INFINITY); }

// Apple's GPUs take 32-bit subnormal numbers for zero, so numbers of 32 bits, and those of bfloat16, which widen to
// 32, are compared as integers of the same order (see ordered in order.h). Those of 16 bits keep their subnormals.
template <typename T> struct Order { typedef T type; enum { same = 1 }; }; // same: a number is its own order
template <> struct Order<float> { typedef int32_t type; enum { same = 0 }; };
template <> struct Order<bfloat16_t> { typedef int32_t type; enum { same = 0 }; };
METAL_FUNC int32_t bits_of(float value) { return as_type<int32_t>(value); }
METAL_FUNC int32_t bits_of(bfloat16_t value) { return int32_t(as_type<uint16_t>(value)) << 16; }

// Sets bits of a word; the word as it was.
METAL_FUNC uint32_t set_bits(device atomic<uint32_t>* word, uint32_t bits) {
  return atomic_fetch_or_explicit(word, bits, memory_order_relaxed);
}

METAL_FUNC void raise_to(device atomic<int32_t>* number, int32_t least) {
  atomic_fetch_max_explicit(number, least, memory_order_relaxed);
}

// Moves `lanes` of N neighbours in words, and says whether it did: never, as Apple's compiler joins neighbours itself.
template <int N, typename T, typename P> METAL_FUNC bool load_words(thread T*, P, P, int, uint) { return false; }
template <int N, typename T, typename P> METAL_FUNC bool store_words(P, P, const thread T*, int, uint) { return false; }

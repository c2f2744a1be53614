// What the kernels need of the language, in Metal's words; cuda.h says the same in CUDA's.

// The least value of a type: minus infinity where there is one.
template <typename T> METAL_FUNC T lowest() { return metal::numeric_limits<T>::lowest(); }
template <> METAL_FUNC float lowest<float>() { return -INFINITY; }
template <> METAL_FUNC half lowest<half>() { return half(-INFINITY); }
template <> METAL_FUNC bfloat16_t lowest<bfloat16_t>() { return bfloat16_t(-INFINITY); }

METAL_FUNC void set_bits(device atomic<uint32_t>* word, uint32_t bits) {
  atomic_fetch_or_explicit(word, bits, memory_order_relaxed);
}

METAL_FUNC void raise_to(device atomic<int32_t>* number, int32_t least) {
  atomic_fetch_max_explicit(number, least, memory_order_relaxed);
}

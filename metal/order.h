// Maxima: comparison of floating-point numbers as integers, which is correct for subnormal numbers
// even on devices that flush them to zero.

// Maps the bits of a floating-point number to an integer of the same order; both zeros become 0.
inline int32_t ordered(int32_t bits) {
  return bits < 0 ? int32_t(0x80000000u - uint32_t(bits)) : bits;
}
template <typename T> inline T order_of(T value) { return value; }
// A NaN of either sign compares greater than all numbers.
inline int32_t order_of(float value) {
  return value != value ? 0x7fffffff : ordered(bits_of(value));
}
inline int32_t order_of(bfloat16_t value) {
  return value != value ? 0x7fffffff : ordered(bits_of(value));
}

// The maximum of some elements, and its index: the first of equal maxima, or the last NaN.
template <typename T, typename N> struct Maximum {
  T value;
  typename Order<T>::type order;
  N index;
};

template <typename T, typename N> inline Maximum<T, N> lowest_at(N index) {
  Maximum<T, N> best;
  best.value = lowest<T>();
  best.order = order_of(best.value);
  best.index = index;
  return best;
}

template <typename T, typename N>
inline void replace_if(bool better, thread Maximum<T, N>& best, T value, N index) {
  const auto order = order_of(value);
  best.value = better ? value : best.value;
  best.order = better ? order : best.order;
  best.index = better ? index : best.index;
}

template <typename T, typename N>
inline void include(thread Maximum<T, N>& best, T value, N index) {
  const auto held = Order<T>::same ? order_of(best.value) : best.order;
  replace_if((order_of(value) > held) | (value != value), best, value, index);
}

// Stores the maxima of V channels, and their indices unless VALUES_ONLY. Then the array of indices
// has one element, which becomes 0.
template <bool VALUES_ONLY, typename I, int V, typename T, typename N, typename P, typename Q>
inline void store(P out, Q indices, N to, const thread Maximum<T, N>* best) {
  const P target = out + to;
  const Q index = indices + (VALUES_ONLY ? N(0) : to);
  #pragma unroll
  for (int v = 0; v < V; ++v) {
    target[v] = best[v].value;
    if (!VALUES_ONLY) {
      index[v] = I(best[v].index);
    } else if (to + v == 0) {
      indices[0] = I(0);
    }
  }
}

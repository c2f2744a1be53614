// Comparison of floating-point numbers as integers, which is correct for subnormal numbers even on devices that flush
// them to zero.

// Maps the bits of a floating-point number to an integer of the same order; both zeros become 0.
inline int32_t ordered(int32_t bits) { return bits < 0 ? int32_t(0x80000000u - uint32_t(bits)) : bits; }
template <typename T> inline T order_of(T value) { return value; }
// A NaN of either sign compares greater than all numbers.
inline int32_t order_of(float value) { return value != value ? 0x7fffffff : ordered(bits_of(value)); }
inline int32_t order_of(bfloat16_t value) { return value != value ? 0x7fffffff : ordered(bits_of(value)); }

// The maximum of the elements so far, and its index: the first of equal maxima, or the last NaN.
template <typename T, typename N> struct Maximum {
  T value;
  typename Order<T>::type order;
  N where;
};

template <typename T, typename N> inline Maximum<T, N> lowest_at(N where) {
  Maximum<T, N> best;
  best.value = lowest<T>();
  best.order = order_of(best.value);
  best.where = where;
  return best;
}

template <typename T, typename N> inline void include(thread Maximum<T, N>& best, T value, N where) {
  const auto order = order_of(value);
  const auto held = Order<T>::same ? order_of(best.value) : best.order;
  const bool nan = value != value, better = (order > held) | nan;
  best.value = better ? value : best.value;
  best.order = better ? order : best.order;
  best.where = better ? where : best.where;
}

// Comparison of floating-point numbers as integers, which is correct for subnormal numbers even on devices that flush
// them to zero.

// Maps the bits of a floating-point number to an integer of the same order; both zeros become 0.
inline int32_t ordered(int32_t bits) { return bits < 0 ? int32_t(0x80000000u - uint32_t(bits)) : bits; }
template <typename T> inline T order_of(T value) { return value; }
// A NaN of either sign compares greater than all numbers.
inline int32_t order_of(float value) { return value != value ? 0x7fffffff : ordered(bits_of(value)); }
inline int32_t order_of(bfloat16_t value) { return value != value ? 0x7fffffff : ordered(bits_of(value)); }

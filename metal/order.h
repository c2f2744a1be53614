// The order of numbers, as integers: subnormals compare correctly on devices that flush them.

// The bits of a floating-point number as an integer of the same order; both zeros are 0.
inline int32_t ordered(int32_t bits) { return bits < 0 ? int32_t(0x80000000u - uint32_t(bits)) : bits; }
template <typename T> inline T order_of(T value) { return value; }
// A NaN of either sign is above all numbers.
inline int32_t order_of(float value) { return value != value ? 0x7fffffff : ordered(bits_of(value)); }
inline int32_t order_of(bfloat16_t value) { return value != value ? 0x7fffffff : ordered(bits_of(value)); }

// Work items and windows: what one thread computes, and the elements that a window covers. The name
// of a window constant is its kind (K kernel, S stride, P padding, D dilation) and its axis
// (D depth, H height, W width).
//
// Template arguments of the kernels:
//   T, I          types of values and of indices
//   VALUES_ONLY   indices are not stored
//   V             channels per thread, a divisor of C
//   ONE           V is C, so there is one channel group
//   PLANAR        all arrays have depth 1
//   N             type of coordinates, offsets and indices: 64 bits if 32 could overflow
//   FLAT          indices are flat, not window offsets

// The work item of one thread: V channels, starting at `c`, of column `w` in row `h` of layer `d`
// of image `b`.
template <typename N> struct WorkItem {
  N b, d, h, w;
  int c;
  bool exists; // false outside the grid, because CUDA runs whole blocks
};

template <typename N, int V>
inline WorkItem<N> work_item_of(uint3 number, int B, int D, int H, int W, int C) {
  const uint groups = uint(C) / V;
  WorkItem<N> at;
  at.b = N(number.z);
  at.d = 0;
  at.h = N(number.y);
  at.w = N(number.x);
  at.c = 0;
  if (groups > 1) { // the same for all threads; saves a division
    at.w = N(number.x / groups);
    at.c = int(number.x % groups) * V;
  }
  if (D > 1) {
    at.d = N(number.y / uint(H));
    at.h = N(number.y % uint(H));
  }
  at.exists = number.x < uint(W) * groups && number.y < uint(D) * uint(H) && number.z < uint(B);
  return at;
}

inline bool within(int number, int count) { return uint(number) < uint(count); }
inline bool within(int64_t number, int count) { return number >= 0 && number < count; }
template <typename N> inline bool inside(N d, N h, N w, int D, int H, int W) {
  return within(d, D) & within(h, H) & within(w, W);
}

// The elements of a window that are inside an axis: numbers `first` to `last`. Element k is at
// position start + k * step. Only a dilated window can have none; its elements may be so far
// outside that a product of their coordinates overflows.
template <typename N> struct Elements {
  N start, step, first, last;
};

// For a window that starts at a position below `length`.
template <typename N>
inline Elements<N> elements_of(N start, int K, N step, int padding, int length) {
  Elements<N> e;
  e.start = start;
  e.step = step;
  e.first = padding > 0 && start < 0 ? (step - 1 - start) / step : 0;
  e.last = (length - 1 - start) / step;
  e.last = e.last < K - 1 ? e.last : N(K - 1);
  return e;
}

// The elements from bounds[at] to bounds[at + step] - 1.
template <typename N, typename P> inline Elements<N> elements_between(P bounds, N at, int step) {
  Elements<N> e;
  e.start = bounds[at];
  e.step = 1;
  e.first = 0;
  e.last = bounds[at + step] - e.start - 1;
  return e;
}

template <typename N> inline bool is_empty(Elements<N> e) { return e.last < e.first; }
template <typename N> inline N position_of(Elements<N> e, N k) { return e.start + k * e.step; }
// The number of the element nearest to element k among those inside.
template <typename N> inline N nearest(Elements<N> e, int k) {
  return k < e.first ? e.first : k > e.last ? e.last : N(k);
}

// n / LENGTH for 0 <= n < ROWS * LENGTH; by comparisons if there are few rows, because a division
// is slower.
template <int ROWS, int LENGTH> inline int row_of(int n) {
  int row = ROWS > 9 ? n / LENGTH : 0;
  #pragma unroll
  for (int r = 1; r < (ROWS > 9 ? 1 : ROWS); ++r) {
    row += n >= r * LENGTH ? 1 : 0;
  }
  return row;
}

// The windows that may cover positions of a tile. Tile t starts where window t would start without
// padding. covering_count is the number of these windows, and covering_window(n, ...) + t is the
// number of the n-th one. If dilation exceeds the stride, there is one window per window element;
// otherwise these are all windows from the first to the last one that covers a position.
template <typename N> constexpr int covering_count(int K, N S, N P, N D) {
  return D > S ? K : int(((K - 1) * D - P) / S + (S - 1 + P) / S + 1);
}
template <typename N> inline N covering_window(int n, int K, N S, N P, N D) {
  if (D > S) {
    const N ahead = P - (K - 1 - n) * D; // minus the position of element K - 1 - n of window 0
    return ahead > 0 ? (ahead + S - 1) / S : -(-ahead / S);
  }
  return n - ((K - 1) * D - P) / S;
}

// The number of the window element that is `ahead` positions after the start of the window, or -1.
template <typename N> inline int element_at(N ahead, int K, N step) {
  return ahead >= 0 && ahead % step == 0 && ahead / step < K ? int(ahead / step) : -1;
}

// The windows that cover a position of an axis, from `first` to the last one below `stop`.
template <typename N> struct Range {
  N first, stop;
};

// The windows that have an element `ahead` positions after the start of window 0.
template <typename N> inline Range<N> covering_windows(N ahead, int K, int S, int D, int windows) {
  Range<N> r;
  const N last = ahead / D < K - 1 ? ahead / D : N(K - 1);
  N start = ahead - last * D; // of the first window that spans the position, if there is one
  if (D == 1) {
    start = (start + S - 1) / S * S;
  }
  for (N n = last; D > 1 && n > 0 && start % S != 0; --n) {
    start += D;
  }
  r.first = start / S;
  r.stop = start % S != 0 ? N(0) : ahead / S < windows ? ahead / S + 1 : N(windows);
  return r;
}

template <typename N, typename P> inline Range<N> range_at(P range) {
  Range<N> r;
  r.first = range[0];
  r.stop = range[1];
  return r;
}

// Bit sets: `count` bits, at least one, in 32-bit words.
template <typename N> inline N words_of(N count) { return (count - 1) / 32 + 1; }
template <typename P, typename N> inline bool has_bit(P words, N number) {
  return (words[number / 32] >> uint(number % 32)) & 1u;
}

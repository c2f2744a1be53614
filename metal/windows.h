// Work items and windows: what one thread computes, and the elements that a window covers. The name of a window constant is
// its kind (K kernel, S stride, P padding, D dilation) and its axis (D depth, H height, W width).
//
// Template arguments of the kernels:
//   T, I     types of values and of indices
//   V        channels per thread, a divisor of C
//   ONE      V is C, so there is one channel group
//   PLANAR   all arrays have depth 1
//   N        type of coordinates, offsets and numbers: 64 bits if 32 could overflow
//   FLAT     indices are flat, not window offsets
//   VALUES_ONLY   values are stored, but no indices

// The work item of one thread: V channels, starting at `c`, of column `w` in row `h` of layer `d`.
template <typename N> struct WorkItem {
  N d, h, w;
  int c;
  bool beyond; // outside the grid, because CUDA runs whole blocks
};

template <typename N, int V> inline WorkItem<N> work_item_of(uint3 at, int D, int H, int W, int C, int B) {
  const uint groups = uint(C) / V;
  WorkItem<N> s;
  s.w = N(at.x);
  s.h = N(at.y);
  s.c = 0;
  s.d = 0;
  if (groups > 1) { // the same for all threads; saves a division
    s.w = N(at.x / groups);
    s.c = int(at.x % groups) * V;
  }
  if (D > 1) {
    s.d = N(at.y / uint(H));
    s.h = N(at.y % uint(H));
  }
  s.beyond = at.x >= uint(W) * groups || at.y >= uint(D) * uint(H) || at.z >= uint(B);
  return s;
}

inline bool within(int number, int count) { return uint(number) < uint(count); }
inline bool within(int64_t number, int count) { return number >= 0 && number < count; }

// The elements of a window that are inside an axis: those from number `least` to number `most`, which start at `start` and
// are `step` apart. Only a dilated window can have none.
template <typename N> struct Elements {
  N start, step, least, most;
};

template <typename N> inline Elements<N> elements_of(N start, int K, N step, int padding, int length) {
  Elements<N> e;
  e.start = start;
  e.step = step;
  e.least = padding > 0 && start < 0 ? (step - 1 - start) / step : 0;
  e.most = (length - 1 - start) / step;
  e.most = e.most < K - 1 ? e.most : N(K - 1);
  return e;
}

// The number of the element nearest to element k among those inside, and the position of an element.
template <typename N> inline N nearest(Elements<N> e, int k) { return k < e.least ? e.least : k > e.most ? e.most : N(k); }
template <typename N> inline N position_of(Elements<N> e, N k) { return e.start + k * e.step; }

template <typename N> inline N count_of(Elements<N> e) { return e.most < e.least ? N(0) : e.most - e.least + 1; }

template <typename N, typename P> inline Elements<N> elements_between(P bounds, N at, int columns) {
  Elements<N> e;
  e.start = bounds[at];
  e.step = 1;
  e.least = 0;
  e.most = bounds[at + columns] - e.start - 1;
  return e;
}

// n / LENGTH for a number of ROWS rows of this length, or ROWS - 1 after the last one; avoids the division for few rows.
template <int ROWS, int LENGTH> inline int row_of(int n) {
  if (ROWS > 9) {
    return n / LENGTH < ROWS ? n / LENGTH : ROWS - 1;
  }
  int row = 0;
  #pragma unroll
  for (int r = 1; r < ROWS; ++r) {
    row += n >= r * LENGTH ? 1 : 0;
  }
  return row;
}

// The number of tiles, each one stride long, that cover an axis; at least the number of windows.
inline int tiles(int length, int stride, int windows) {
  const int covering = int((uint(length) + uint(stride) - 1) / uint(stride));
  return covering > windows ? covering : windows;
}

// The windows that may cover positions of a tile. Tile t starts where window t would start without padding.
// covering_count is the number of these windows, and covering_window(n, ...) + t is the number of the n-th one. If dilation
// exceeds the stride, there is one window per window element; otherwise these are all windows from the first to the last
// one that covers a position.
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

// The same for arguments known only at run time; avoids the division if there is no dilation.
template <typename N> inline int element_of(N ahead, int K, N step) {
  N k = ahead;
  if (step > 1) { // the same for all threads
    k = element_at(ahead, K, step);
  }
  return within(k, K) ? int(k) : -1;
}

// The windows that may cover a position of an axis: `count` windows, starting at window `first`. With DILATED, dilation may
// exceed the stride. On an axis where it does, `count` is the number of elements of a window, and the n-th window is the one
// that starts `first + n * step` positions after window 0, if there is one.
template <typename N> struct Cover {
  N first, step;
  int count, stride, windows;
};

template <bool DILATED, typename N>
inline Cover<N> cover_of(N position, int K, int stride, int padding, int step, int windows) {
  Cover<N> cover;
  cover.first = 0;
  cover.count = cover.windows = windows;
  cover.stride = stride;
  cover.step = 0;
  if (DILATED && step > stride) { // the same for all threads
    cover.first = position + padding - N(K - 1) * step;
    cover.step = step;
    cover.count = K;
  } else if (windows > 1) { // the same for all threads; saves the divisions for one window
    const N reached = position + padding - N(K - 1) * step, begun = (position + padding) / stride + 1;
    cover.first = reached > 0 ? (reached + stride - 1) / stride : 0;
    cover.count = int((begun < windows ? begun : windows) - cover.first);
  }
  return cover;
}

template <typename N, typename P> inline Cover<N> cover_between(P covering, N position) {
  Cover<N> cover;
  cover.first = covering[2 * position];
  cover.count = int(covering[2 * position + 1] - cover.first);
  cover.step = 0;
  cover.stride = cover.windows = 1;
  return cover;
}

// The n-th window of a cover, or -1 if there is none.
template <bool DILATED, typename N> inline N window_of(Cover<N> cover, int n) {
  if (!DILATED || cover.step == 0) { // the same for all threads
    return cover.first + n;
  }
  const N start = cover.first + n * cover.step, window = start / cover.stride;
  return start >= 0 && window * cover.stride == start && window < cover.windows ? window : N(-1);
}

// Bit sets: `count` bits, at least one, in 32-bit words.
template <typename N> inline N words_of(N count) { return (count - 1) / 32 + 1; }
template <typename P, typename N> inline bool has_bit(P words, N number) {
  return (words[number / 32] >> uint(number % 32)) & 1u;
}
